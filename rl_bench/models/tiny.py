"""The ``tiny`` base model: Qwen3's architecture, a third of a million parameters, shipped whole.

`build_tiny` writes a complete checkpoint folder in about a second, from the weights and the
tokenizer under ``data/``. Those are the output of `rl_bench.models.pretrain_tiny`, which anyone can
run again. The model has read random play and sums; it follows no instruction and solves next to
nothing, but tunes within a minute on one core.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rl_bench.models.tiny_tokenizer import CHAT_TEMPLATE, END_OF_TEXT, TURN_END

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast, Qwen3Config

DATA = Path(__file__).parent / "data"
WEIGHTS_FILE = DATA / "tiny.safetensors"
TOKENIZER_FILE = DATA / "tiny_tokenizer.json"
MAX_POSITIONS = 2048
SHIPPED_SEED = 0


def data_digest() -> str:
    """Digest of the shipped files: changes whenever the built checkpoint would."""
    digest = hashlib.sha256()
    for path in (WEIGHTS_FILE, TOKENIZER_FILE, Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tiny_config(vocab_size: int) -> "Qwen3Config":
    """The architecture. ``head_dim`` 32 is the smallest that vLLM's CPU attention takes."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        architectures=["Qwen3ForCausalLM"],
        dtype="float32",
    )


def wrap_tokenizer(tokenizer: "Tokenizer") -> "PreTrainedTokenizerFast":
    """The tokenizer as transformers, TRL and vLLM take it, chat template included."""
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        model_max_length=MAX_POSITIONS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def build_tiny(folder: Path, *, seed: int = SHIPPED_SEED) -> Path:
    """Writes the tiny base model as a plain Hugging Face checkpoint.

    Args:
        folder: Where the checkpoint goes; made if missing.
        seed: 0 is the shipped, pre-trained base. Any other seed draws untrained weights of the same
            shapes, for whoever needs a second, different checkpoint.

    Returns:
        ``folder``. Equal arguments give equal files.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer
    from transformers import Qwen3ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    plain = Tokenizer.from_file(str(TOKENIZER_FILE))
    tokenizer = wrap_tokenizer(plain)
    tokenizer.save_pretrained(folder)
    end, pad = (int(plain.token_to_id(token) or 0) for token in (TURN_END, END_OF_TEXT))
    config = tiny_config(len(tokenizer))
    config.eos_token_id, config.pad_token_id = end, pad
    config.save_pretrained(folder)
    generation = {"eos_token_id": end, "pad_token_id": pad, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2))
    if seed == SHIPPED_SEED:
        weights = load_file(WEIGHTS_FILE)
    else:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            weights = Qwen3ForCausalLM(config).state_dict()
        weights.pop("lm_head.weight", None)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
