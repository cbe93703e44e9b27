"""Text to index terms, as Lucene's English analysis of Anserini and Pyserini has it.

The chain: split at Unicode word boundaries (UAX #29), drop the possessive "'s", lower-case, drop 33
stop words, stem by Porter's algorithm with its author's two later rules. Word boundaries come from
the package `regex`, the stemmer from `nltk`; this module owns the order and the rules between them.
Pure and deterministic; stems are remembered, since a catalogue's vocabulary is small.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer

STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it"}
    | {"no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these"}
    | {"they", "this", "to", "was", "will", "with"}
)
"""Lucene's English stop words."""
MAX_TOKEN_CHARS = 255
"""A longer word is cut into pieces of this length."""

_BOUNDARY = regex.compile(r"\b", flags=regex.WORD | regex.V1)
_PICTOGRAPHS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9-\u21aa\u231a-\u231b\u2328\u2388\u23cf"
    "\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25aa-\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612"
    "\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733-\u2734\u2744\u2747\u274c"
    "\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\u2934-\u2935\u2b05-\u2b07"
    "\u2b1b-\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f"
    "\U0001f12f\U0001f16c-\U0001f171\U0001f17e-\U0001f17f\U0001f18e\U0001f191-\U0001f19a"
    "\U0001f1ad-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f23c-\U0001f23f"
    "\U0001f249-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f"
    "\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f"
    "\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945"
    "\U0001f947-\U0001fffd"
)
"""Extended_Pictographic of Unicode's emoji data 12, which Lucene 8 takes for words; later versions
of Unicode took the plain symbols among them (stars, hearts) out."""
_LETTERS = (
    r"\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Katakana}\p{WB=Numeric}"
    r"\p{Ideographic}\p{Hiragana}\p{Line_Break=SA}"
)
_WORD = regex.compile(rf"[{_LETTERS}{_PICTOGRAPHS}]")
_POSSESSIVE = ("'s", "’s", "＇s", "'S", "’S", "＇S")


def analyze(text: str) -> list[str]:
    """The index terms of ``text``, in order, with repetitions."""
    return [stem for word in _words(text) if (stem := _term(word))]


def _words(text: str) -> Iterator[str]:
    for piece in _BOUNDARY.split(text):
        if _WORD.search(piece):
            for start in range(0, len(piece), MAX_TOKEN_CHARS):
                yield piece[start : start + MAX_TOKEN_CHARS]


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    """The term of a word; empty for a stop word."""
    if word.endswith(_POSSESSIVE):
        word = word[:-2]
    word = word.lower()
    return "" if word in STOP_WORDS else str(_stemmer().stem(word, to_lowercase=False))


@lru_cache(maxsize=1)
def _stemmer() -> "PorterStemmer":
    """Loaded when first used: nltk imports much beside its stemmers."""
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(PorterStemmer.MARTIN_EXTENSIONS)
