"""Small random Qwen3 models whose answers vary, and copies of them with changed weights."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file

END_TOKEN = "<|im_end|>"  # noqa: S105  a token of a vocabulary
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def make_model(folder: Path, *, seed: int, tied: bool) -> Path:
    """A random two-layer Qwen3 whose greedy answers vary with the prompt, and a byte tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    special = [END_TOKEN, "<|im_start|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    wrapped: Any = cast(Any, PreTrainedTokenizerFast)(
        tokenizer_object=tokenizer, eos_token=END_TOKEN
    )
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(wrapped),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        eos_token_id=wrapped.eos_token_id,
    )
    cast(Any, Qwen3ForCausalLM)(config).float().save_pretrained(folder)
    return folder


def variant(
    source: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], object]
) -> Path:
    """A copy of a checkpoint with changed weights."""
    shutil.copytree(source, folder)
    weights = load_file(source / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
