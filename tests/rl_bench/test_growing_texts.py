"""Texts encoded from where an earlier one ended have the ids of the whole text."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from rl_bench.engine.growing_texts import NOWHERE, NUM_COMPARED, GrowingTexts, cutting_tokens

START, END, PAD = "<|im_start|>", "<|im_end|>", "<pad>"
PIECES = [START, END, PAD, "<|im", "<|im_start", "[x]"]
WORDS = ["go", " to shelf", "1", "é", "漢", " ", "\n", "\t", "'s", *PIECES]


def tokenizer_of(
    *added: AddedToken,
    pre: pre_tokenizers.PreTokenizer,
    norm: normalizers.Normalizer | None = None,
) -> Any:  # noqa: ANN401  transformers' untyped class
    """A byte tokenizer, or one of characters, with the given added tokens."""
    from transformers import PreTrainedTokenizerFast

    letters = sorted({*pre_tokenizers.ByteLevel.alphabet(), *"".join(WORDS), "▁", " "})
    merges = [("g", "o"), ("t", "o"), ("s", "h"), ("Ġ", "go"), ("▁", "go")]
    vocab = [*letters, *(a + b for a, b in merges)]
    plain = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(vocab)}, merges=merges))
    plain.pre_tokenizer = pre
    plain.decoder = decoders.ByteLevel()
    if norm is not None:
        plain.normalizer = norm
    plain.add_tokens(list(added))
    return cast(Any, PreTrainedTokenizerFast)(tokenizer_object=plain)


def special(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, special=True, normalized=False, **flags)


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
PLAIN = [special(START), special(END)]
TOKENIZERS = {
    "bytes": tokenizer_of(*PLAIN, pre=BYTES),
    "a space before": tokenizer_of(*PLAIN, pre=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "first only": tokenizer_of(*PLAIN, pre=pre_tokenizers.Metaspace(prepend_scheme="first")),
    "always": tokenizer_of(*PLAIN, pre=pre_tokenizers.Metaspace(prepend_scheme="always")),
    "normalised": tokenizer_of(
        *PLAIN,
        AddedToken("go", normalized=True),
        pre=BYTES,
        norm=normalizers.Sequence([normalizers.NFD(), normalizers.Prepend("x")]),
    ),
    "eats to the right": tokenizer_of(special(START, rstrip=True), special(END), pre=BYTES),
    "eats to the left": tokenizer_of(special(START), special(END, lstrip=True), pre=BYTES),
    "neighbours": tokenizer_of(*PLAIN, special(PAD, rstrip=True, lstrip=True), pre=BYTES),
    "phrases": tokenizer_of(*PLAIN, AddedToken(" to shelf", normalized=False), pre=BYTES),
}


def talk(rng: random.Random, *, num_turns: int) -> list[str]:
    """A prompt a turn, each the one before and more; some of it looks like special tokens."""
    said, prompts = rng.choice(["", "rules "]), []
    for _ in range(num_turns):
        said += START + "".join(rng.choices(WORDS, k=rng.randint(0, 12))) + END
        prompts.append(said + rng.choice(["", "\n"]) + START)
        said += START + "".join(rng.choices(WORDS, k=rng.randint(0, 3))) + END
    return prompts


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_are_those_of_the_whole_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    cuts = cutting_tokens(tokenizer)
    assert START in cuts.pattern.replace("\\", "")
    num_chars = 0

    def encode(texts: Sequence[str]) -> list[list[int]]:
        nonlocal num_chars
        num_chars += sum(map(len, texts))
        return [list(i) for i in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

    growing = GrowingTexts(encode, cuts=cuts)
    growing._num_to_compare = 0  # it is compared here
    rng = random.Random(7)
    talks = [talk(rng, num_turns=20) for _ in range(12)]
    for prompts in zip(*talks, strict=True):
        found = growing.encode(prompts)
        assert found == encode(prompts)
    num_whole = sum(len(prompt) for prompts in talks for prompt in prompts)
    assert num_chars < 1.5 * num_whole  # of which one part is the comparison's


def test_no_place_is_safe_beside_tokens_that_reach_into_it() -> None:
    def cuts(*added: AddedToken) -> str:
        return cutting_tokens(tokenizer_of(*added, pre=BYTES)).pattern.replace("\\", "")

    assert cuts(special(START), special(END)) == f"{START}|{END}"
    assert cuts(special(START), AddedToken("to <|", normalized=False)) == NOWHERE.pattern
    assert cuts(special(START), AddedToken(f"{START}user", normalized=False)) == NOWHERE.pattern
    assert cuts(special(START, lstrip=True), special(END)) == END
    assert cuts(special(START, single_word=True), special(END)) == END
    assert cuts(AddedToken(START, special=True, normalized=True)) == NOWHERE.pattern
    assert cuts() == NOWHERE.pattern


def test_a_tokenizer_that_proves_it_wrong_is_given_whole_texts() -> None:
    def by_length(texts: Sequence[str]) -> list[list[int]]:
        return [[len(text)] for text in texts]

    growing = GrowingTexts(by_length, cuts=re.compile(re.escape(START)))
    for size in range(1, NUM_COMPARED + 5):
        text = f"x{START}" * size
        assert growing.encode([text]) == [[len(text)]]


def test_a_checkpoints_own_tokenizer(tmp_path: Path) -> None:
    from rl_bench.engine.prompts import CheckpointTokenizer
    from rl_bench.models.tiny import build_tiny

    tokenizer = CheckpointTokenizer(build_tiny(tmp_path / "tiny", seed=1))
    rng = random.Random(3)
    chat: list[Any] = []
    for turn in range(3 * NUM_COMPARED):
        chat.append({"role": "user", "content": "".join(rng.choices(WORDS, k=turn))})
        [ids] = tokenizer.encode_chats([chat])
        [alone] = CheckpointTokenizer(tmp_path / "tiny").encode_chats([chat])
        assert ids == alone
        chat.append({"role": "assistant", "content": "go to shelf 1"})
