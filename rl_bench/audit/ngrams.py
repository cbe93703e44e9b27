"""Which evaluation texts stand in a stream of text: n-grams of normalised words, vectorised.

Words are runs of letters and digits in lower case; JSON's escapes count as what they stand for.
A text of n or more words is n-grams of `NGRAM_WORDS`; a shorter one is one whole gram. Word numbers
are mixed with random multipliers into 64 bits, so that grams are compared as integers; with a
million of them two differ by chance once in a hundred million audits.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rl_bench.audit.rules import FOUND_SHARE, MIN_TEXT_WORDS, NGRAM_WORDS

Hashes = NDArray[np.uint64]
_WORD = re.compile(r"\w+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf\"/\\])")
_SEED = 13


def words_of(text: str) -> list[str]:
    """The normalised words of a text."""
    return _WORD.findall(_ESCAPE.sub(_unescaped, text).lower())


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else " "


@dataclass(slots=True)
class _Text:
    item_id: str
    grams: frozenset[int]


@dataclass(slots=True)
class TextIndex:
    """The evaluation texts of a run's tasks; made by `of`.

    Attributes:
        num_items: Items with a text that is long enough to be looked for.
        num_skipped: Texts that are too short.
    """

    num_items: int = 0
    num_skipped: int = 0
    _vocabulary: dict[str, int] = field(default_factory=dict)
    _codes: Hashes = field(default_factory=lambda: np.zeros(1, dtype=np.uint64))
    _multipliers: Hashes = field(default_factory=lambda: np.zeros(1, dtype=np.uint64))
    _texts: list[_Text] = field(default_factory=list)
    _by_length: dict[int, Hashes] = field(default_factory=dict)
    _owners: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _common: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> "TextIndex":
        """Indexes pairs of an item's id and one of its texts."""
        index = cls()
        kept = []
        for item_id, text in texts:
            words = words_of(text)
            if len(words) < MIN_TEXT_WORDS:
                index.num_skipped += 1
                continue
            kept.append((item_id, words))
            for word in words:
                index._vocabulary.setdefault(word, len(index._vocabulary) + 1)
        rng = np.random.default_rng(_SEED)
        size = len(index._vocabulary) + 1
        index._codes = rng.integers(1, 2**64, size=size, dtype=np.uint64)
        index._multipliers = rng.integers(0, 2**63, size=NGRAM_WORDS, dtype=np.uint64) * 2 + 1
        by_length: dict[int, set[int]] = defaultdict(set)
        for item_id, words in kept:
            length = min(len(words), NGRAM_WORDS)
            grams = index._grams(index._numbers(words), length)
            by_length[length].update(grams.tolist())
            index._texts.append(_Text(item_id, frozenset(grams.tolist())))
        for number, kept_text in enumerate(index._texts):
            for gram in kept_text.grams:
                index._owners[gram].append(number)
        index._by_length = {
            length: np.array(sorted(grams), dtype=np.uint64) for length, grams in by_length.items()
        }
        index.num_items = len({text.item_id for text in index._texts})
        return index

    def items(self) -> set[str]:
        """Ids of the items that are looked for."""
        return {text.item_id for text in self._texts}

    def _numbers(self, words: list[str]) -> NDArray[np.int64]:
        get = self._vocabulary.get
        return np.array([get(word, 0) for word in words], dtype=np.int64)

    def _grams(self, numbers: NDArray[np.int64], length: int) -> Hashes:
        """Every window of ``length`` words that are all known."""
        if len(numbers) < length:
            return np.zeros(0, dtype=np.uint64)
        codes = self._codes[numbers]
        size = len(numbers) - length + 1
        total = np.zeros(size, dtype=np.uint64)
        for place in range(length):
            total += codes[place : place + size] * self._multipliers[place]
        unknown = np.concatenate(([0], np.cumsum(numbers == 0)))
        whole = unknown[length : length + size] == unknown[:size]
        grams: Hashes = total[whole]
        return grams

    def hits(self, words: list[str]) -> set[int]:
        """The evaluation set's grams that stand in a text."""
        numbers = self._numbers(words)
        found: set[int] = set()
        for length, known in self._by_length.items():
            grams = np.unique(self._grams(numbers, length))
            places = np.searchsorted(known, grams)
            places[places == len(known)] = 0
            found.update(grams[known[places] == grams].tolist())
        return found

    def forget(self, words: list[str]) -> None:
        """Grams of the train split say nothing."""
        self._common |= self.hits(words)

    def items_in(self, hits: set[int]) -> dict[str, float]:
        """Items of which a text is found among a file's grams, with the share that is.

        A text whose every gram is the train split's too is never found.
        """
        touched = {number for gram in hits - self._common for number in self._owners[gram]}
        found: dict[str, float] = {}
        for number in touched:
            text = self._texts[number]
            own = text.grams - self._common
            share = len(own & hits) / len(own) if own else 0.0
            if share >= FOUND_SHARE:
                found[text.item_id] = max(share, found.get(text.item_id, 0.0))
        return found


@dataclass(slots=True)
class FileScan:
    """Gathers the grams of one file over its pieces; a gram may go over the edge of two."""

    index: TextIndex
    hits: set[int] = field(default_factory=set)
    _carried: list[str] = field(default_factory=list)

    def take(self, text: str) -> None:
        """The file's next piece."""
        words = self._carried + words_of(text)
        self.hits |= self.index.hits(words)
        self._carried = words[-(NGRAM_WORDS - 1) :]

    def items(self) -> Mapping[str, float]:
        """See `TextIndex.items_in`."""
        return self.index.items_in(self.hits)
