"""Words and numbers in alternative texts and labels."""

from collections.abc import Sequence


def points(value: float) -> str:
    """A gain, e.g. ``+3.2 points``."""
    return f"{signed(value)} points"


def signed(value: float) -> str:
    """With a plus or a minus, one digit."""
    rounded = round(value, 1) + 0.0
    return f"{'−' if rounded < 0 else '+' if rounded > 0 else ''}{abs(rounded):.1f}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def short_number(value: float) -> str:
    """``1.2M``, ``34k``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def clipped(name: str, size: int = 26) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= size else f"{name[: size - 1]}…"
