"""Which known word a misspelt one was likely meant to be: flags, keys and options alike."""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

CLOSE = 0.65
"""How alike two words are at least, of 1, so that one is named for the other."""
_MIN_PART = 3
_OF_TIME = ("time", "timeout", "duration", "seconds", "minutes", "hours")
_SECONDS = "_s"
"""How the names of keys end that are a time."""


def nearest(word: str, choices: Iterable[str], *, close: float = CLOSE) -> str | None:
    """The choice that is most like ``word``, or begins so; None where none is much like it."""
    likeness = {choice: _likeness(word.strip("-"), choice.strip("-")) for choice in choices}
    best = max(likeness, key=lambda choice: likeness[choice], default=None)
    return best if best is not None and likeness[best] >= close else None


def did_you_mean(word: str, choices: Sequence[str], *, meant: str | None = None) -> str:
    """A cure that lists ``choices`` and points at the one that was likely meant.

    Args:
        word: What was written.
        choices: What may stand in its place.
        meant: What was meant, where that is known; else it is the nearest choice, one that has
            the word in it, or one that is a time where the word is one.
    """
    if word in _OF_TIME:
        alike = [choice for choice in choices if choice.endswith(_SECONDS)]
    else:
        alike = [choice for choice in choices if len(word) >= _MIN_PART and word in choice]
    meant = meant or nearest(word, choices) or next(iter(alike), None)
    listed = f"Choices: {', '.join(choices) or 'none'}"
    return f"{listed}; did you mean {meant}?" if meant else listed


def _likeness(word: str, choice: str) -> float:
    """Of 0 to 1: of the whole, or a little less of the beginning, which people shorten words to."""
    whole = SequenceMatcher(None, choice, word).ratio()
    start = SequenceMatcher(None, choice[: len(word)], word).ratio()
    return max(whole, 0.95 * start if len(word) >= _MIN_PART else 0.0)
