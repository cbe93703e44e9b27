"""Whether an answer matches the reference by rule: a proxy, since only a judge can tell.

``2,5 million`` and ``2.5m`` are the same to a judge and not here. So the rule rewards training
episodes and scores generated questions, whose answers have one spelling; it never stands in for a
judge that failed.
"""

import re
import unicodedata

SINGLE_ANSWER = "Single Answer"
SET_ANSWER = "Set Answer"
_SEPARATOR = re.compile(r"[,;\n]+|\s+and\s+(?=\S+$)")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)](?=\s))\s*")
_ARTICLE = re.compile(r"^(?:and\s+)?(?:the\s+|a\s+|an\s+)?")


def match(answer: str, reference: str, *, answer_type: str) -> float:
    """How well ``answer`` matches, in [0, 1].

    Args:
        answer: What was answered; nothing is worth 0.
        reference: The reference answer.
        answer_type: ``Single Answer``: equal or not. ``Set Answer``: F1 over the items, which
            commas, semicolons or lines separate.
    """
    if answer_type != SET_ANSWER:
        return float(bool(normalised(answer)) and normalised(answer) == normalised(reference))
    given, wanted = items(answer), items(reference)
    return 2 * len(given & wanted) / (len(given) + len(wanted)) if given and wanted else 0.0


def items(text: str) -> frozenset[str]:
    """The distinct items of a list, normalised."""
    parts = (_BULLET.sub("", part) for part in _SEPARATOR.split(text))
    return frozenset(filter(None, map(normalised, parts)))


def normalised(text: str) -> str:
    """Lower-case letters, digits and single spaces, without a leading article."""
    folded = unicodedata.normalize("NFKC", text).casefold().strip()
    kept = "".join(c if c.isalnum() or unicodedata.combining(c) else " " for c in folded)
    return _ARTICLE.sub("", " ".join(kept.split()))
