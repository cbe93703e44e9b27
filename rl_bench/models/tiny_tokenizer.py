"""The tiny model's tokenizer: a byte-level BPE over words, numbers and whole phrases.

Numbers below 100 and frequent words are one token each, always with their leading space, so that a
name reads the same in an observation and in an action. Fixed phrases of the games and of the word
problems are one token as well, which keeps a whole game within some 200 tokens. Any other text is
still representable, byte by byte.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "<|im_start|>{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
"""Every observation is bare text, every action is wrapped: short, and a prefix of what follows."""

_PIECES = re.compile(r" ?[A-Za-z]+| ?\d{1,2}| ?[^A-Za-z0-9\s]|\s")
_PRE_TOKENS = Regex(r" ?[A-Za-z]+| ?\d{1,2}| ?[^A-Za-z0-9\s]+|\s+")
_SPECIAL = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS))
_LONGEST_PHRASE = 7
_EMPHASIS = 60


def find_phrases(texts: Iterable[str], *, num: int, names: Iterable[str] = ()) -> list[str]:
    """The ``num`` runs of words whose merging saves the most tokens.

    A phrase holds no special token, no number, none of ``names`` and no word that a number ever
    follows (a thing).
    """
    runs = [run for text in texts for run in _SPECIAL.split(text)]
    split = [_PIECES.findall(run) for run in runs]
    names = {
        before for pieces in split for before, piece in pairwise(pieces) if piece[-1].isdigit()
    } | {f" {word}" for word in names}
    phrases: list[str] = []
    for _ in range(num):
        counts: Counter[tuple[str, ...]] = Counter()
        for pieces in split:
            _count_runs(pieces, names, counts)
        if not counts:
            break
        best = max(counts, key=lambda run: (counts[run] * (len(run) - 1), run))
        phrases.append("".join(best))
        split = [_merge(pieces, best) for pieces in split]
    return phrases


def _count_runs(pieces: Sequence[str], names: set[str], counts: Counter[tuple[str, ...]]) -> None:
    for start in range(len(pieces)):
        run: list[str] = []
        for piece in pieces[start : start + _LONGEST_PHRASE]:
            if piece in names or piece[-1].isdigit() or "\n" in piece:
                break
            run.append(piece)
            if len(run) > 1:
                counts[tuple(run)] += 1


def _merge(pieces: Sequence[str], run: tuple[str, ...]) -> list[str]:
    merged: list[str] = []
    index = 0
    while index < len(pieces):
        if tuple(pieces[index : index + len(run)]) == run:
            merged.append("".join(run))
            index += len(run)
        else:
            merged.append(pieces[index])
            index += 1
    return merged


def train_tokenizer(
    texts: Sequence[str], *, vocab_size: int, num_phrases: int, names: Iterable[str] = ()
) -> Tokenizer:
    """Trains the tokenizer; the result depends on the arguments alone.

    Args:
        texts: A sample of everything the model will read.
        vocab_size: All tokens: special, bytes, numbers, words and phrases.
        num_phrases: Phrases among them.
        names: Words that are one token each and part of no phrase, so that they can be copied.
    """
    names = sorted(names)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PRE_TOKENS, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - num_phrases,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    spaced = "".join(f" {number}" for number in range(100))
    lines = "\n".join(str(number) for number in range(100))
    spelled = "".join(f" {name}" for name in names)
    always = [f"{spaced}{spelled}\n{lines}\n####"] * _EMPHASIS
    runs = [run for text in texts for run in _SPECIAL.split(text)]
    tokenizer.train_from_iterator([*runs, *always], trainer)
    phrases = find_phrases(texts, num=num_phrases, names=names)
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    return tokenizer
