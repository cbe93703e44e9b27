"""The tiny base model: deterministic, complete, small, and its chat form."""

import hashlib
from pathlib import Path
from typing import cast

import pytest

from rl_bench.models.tiny import build_tiny

MESSAGES = [
    {"role": "user", "content": "You see a desk 1."},
    {"role": "assistant", "content": "go to desk 1"},
    {"role": "user", "content": "You arrive at desk 1."},
    {"role": "assistant", "content": "take mug 2 from desk 1"},
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


def _digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_building_twice_gives_the_same_files(base: Path, tmp_path: Path) -> None:
    assert _digests(build_tiny(tmp_path / "again")) == _digests(base)
    assert _digests(build_tiny(tmp_path / "a", seed=5)) == _digests(
        build_tiny(tmp_path / "b", seed=5)
    )


def test_other_seeds_differ_in_weights_alone(base: Path, tmp_path: Path) -> None:
    other = _digests(build_tiny(tmp_path / "other", seed=5))
    changed = {name for name, digest in _digests(base).items() if other[name] != digest}
    assert changed == {"model.safetensors"}


def test_loads_as_a_small_causal_language_model(base: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base)
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize(
    "text",
    [
        "You arrive at desk 12. On the desk 12, you see a mug 1, and a cd 3.",
        "Ünïcode, tabs\tand 家 survive",
        "12 + 7 = 19\n#### 19",
        "  spaces   stay  ",
    ],
)
def test_text_survives_the_tokenizer(base: Path, text: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_prompt_is_a_prefix_of_the_next_one(base: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)

    def prompt(num: int) -> list[int]:
        ids = tokenizer.apply_chat_template(
            MESSAGES[:num], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return list(ids)

    assert prompt(3)[: len(prompt(1))] == prompt(1)


def test_the_template_marks_what_the_assistant_says(base: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    rendered = cast(
        dict[str, list[int]],
        tokenizer.apply_chat_template(
            MESSAGES, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        ),
    )
    ids, masks = rendered["input_ids"], rendered["assistant_masks"]
    marked = [token for token, mask in zip(ids, masks, strict=True) if mask]
    assert tokenizer.decode(marked) == "go to desk 1<|im_end|>take mug 2 from desk 1<|im_end|>"
    assert tokenizer.decode(ids) == (
        "You see a desk 1.<|im_start|>go to desk 1<|im_end|>"
        "You arrive at desk 1.<|im_start|>take mug 2 from desk 1<|im_end|>"
    )
