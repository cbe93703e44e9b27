"""How a completion's number is found and compared: the rules of GSM8K's scoring.

``opencompass`` is the published rule (OpenCompass, ``gsm8k_gen_1d7fe4``, which Agent² RL-Bench
uses): reasoning between tags is dropped, then everything from ``Question:`` on; the last number of
the rest counts, where a comma ends a number (``1,234`` reads 234); the reference is what follows
``####``, without commas; a number within 1e-6 of it is right.

``marked`` prefers the number after the last ``####``, knows thousands separators, and compares
values: for models that are taught the data's own form of an answer.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum

from rl_bench.tasks.reasoning import without_reasoning

MARK = "####"
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")
_PLAIN_NUMBER = re.compile(r"-?\d+\.\d+|-?\d+")
_TOLERANCE = 1e-6


class RuleName(StrEnum):
    """The rules there are."""

    MARKED = "marked"
    OPENCOMPASS = "opencompass"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRule:
    """One rule; `RULES` has them all.

    Attributes:
        prediction: A completion's number, or ``None`` if it has none.
        gold: The number of a row's worked answer.
        is_right: Whether a prediction equals a gold answer.
        words: The rule in words, for the agent.
    """

    prediction: Callable[[str], str | None]
    gold: Callable[[str], str | None]
    is_right: Callable[[str, str | None], bool]
    words: str


def marked_answer(text: str) -> str | None:
    """The number after the last ``####``, else the last one, normalised; ``None`` if none.

    Thousands separators are dropped and a value is written as a value: ``1,000.0`` is ``1000``.
    """
    _, mark, tail = text.rpartition(MARK)
    numbers = _NUMBER.findall(tail)
    if not numbers:
        return None
    return _normalise(numbers[0] if mark else numbers[-1])


def _normalise(number: str) -> str:
    try:
        value = Decimal(number.replace(",", ""))
    except InvalidOperation:  # more digits than a decimal holds: compare as text
        return number
    return format(value.normalize(), "f")


def last_number(text: str) -> str | None:
    """The last number before any ``Question:``, as it is written; ``None`` if none."""
    numbers = _PLAIN_NUMBER.findall(without_reasoning(text).partition("Question:")[0])
    return numbers[-1] if numbers else None


def reference_number(answer: str) -> str | None:
    """What follows ``#### `` in a worked answer, without commas."""
    _, _, tail = answer.partition(f"{MARK} ")
    return tail.partition(f"{MARK} ")[0].replace(",", "") or None


def is_close(prediction: str, gold: str | None) -> bool:
    """Whether both are the same text, or numbers within 1e-6 with a whole reference."""
    if gold is None or prediction == gold:
        return gold is not None
    try:
        return abs(float(prediction) - int(gold)) < _TOLERANCE
    except (ValueError, OverflowError):
        return False


RULES = {
    RuleName.MARKED: AnswerRule(
        prediction=marked_answer,
        gold=marked_answer,
        is_right=lambda prediction, gold: prediction == gold,
        words="the number after `####`, or else the last number",
    ),
    RuleName.OPENCOMPASS: AnswerRule(
        prediction=last_number,
        gold=reference_number,
        is_right=is_close,
        words="the last number (write none with a thousands separator; what stands between "
        "`<think>` and `</think>`, and all from `Question:` on, is dropped first)",
    ),
}
