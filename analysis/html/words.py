"""Values as pages show them, and texts of agents made safe to look at.

Templates escape everything. What is left here: control characters and those that turn the direction
of text are shown as replacement characters, and texts are cut, with what was left out stated.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from markupsafe import Markup

from rl_bench.counts import plural

DASH = "–"
MINUS = "−"
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)

_SLASH = re.compile(r"(?<=/)(?=\w)")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SHORT = 12


def printable(text: object) -> str:
    """Text without characters that hide or turn what stands beside them; line ends stay."""
    words = str(text)
    if words.isprintable():  # nearly all are, and nothing of the kind is
        return words
    return _HIDDEN.sub("\ufffd", words.replace("\r\n", "\n"))


def breakable(text: object) -> Markup:
    """Text for a narrow column, escaped: a line may break in ``codex/gpt_5_4`` and ``HumanEval``.

    A long name without such a place may break once, at the underscore next to its middle.
    """
    words = printable(text)
    joint = _SLASH if "/" in words else _CAPITAL
    parts = joint.split(words)
    if len(parts) == 1 and len(words) > _SHORT and " " not in words:
        middle = min(_underscores(words), key=lambda at: abs(2 * at - len(words)), default=0)
        parts = [words[:middle], words[middle:]] if middle else parts
    return Markup("<wbr>").join(parts)


def _underscores(words: str) -> list[int]:
    return [at for at, letter in enumerate(words, 1) if letter == "_" and at < len(words)]


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, and how many were left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… {len(text) - limit:,} more characters"


def first_line(text: str, limit: int = 120) -> str:
    """The first line that says something, shortened."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def sentence(text: object) -> str:
    """A summary as a sentence: with a full stop, and a capital unless it begins with a name."""
    words = str(text).strip()
    first = words.split(" ", 1)[0]
    words = words[:1].upper() + words[1:] if first.isalpha() and first.islower() else words
    return words if not words or words[-1] in ".!?:…" else f"{words}."


def number(value: float | None, digits: int = 1) -> str:
    """``12.3``; a dash for what is missing, which is not 0."""
    if value is None:
        return DASH
    return f"{value:,.{digits}f}".replace("-", MINUS)


def signed(value: float | None, digits: int = 1) -> str:
    """``+12.3``."""
    if value is None:
        return DASH
    return f"{value:+,.{digits}f}".replace("-", MINUS)


def count(value: float | Decimal | None) -> str:
    """``12,345``."""
    return DASH if value is None else f"{value:,.0f}"


def usd(value: float | None) -> str:
    """``$1.23``, with four digits below ten cents."""
    if value is None:
        return DASH
    return f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def clock(seconds: float | None) -> str:
    """``1:02:03``."""
    if seconds is None:
        return DASH
    minutes, secs = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}"


def duration(seconds: float | None) -> str:
    """``3.2 s``, ``4 min 05 s`` or ``1 h 02 min``."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, secs = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {secs:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def size(num_bytes: float | None) -> str:
    """``1.2 GB``, in decimal units."""
    if num_bytes is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def moment(value: datetime | None) -> str:
    """UTC, to the second."""
    return DASH if value is None else f"{value:%Y-%m-%d %H:%M:%S} UTC"


def label(value: object) -> str:
    """A slug in words: ``timed_out`` is ``timed out``."""
    return DASH if value is None or value == "" else printable(value).replace("_", " ")


FILTERS: Mapping[str, object] = {
    "printable": printable,
    "breakable": breakable,
    "cut": cut,
    "first_line": first_line,
    "sentence": sentence,
    "plural": plural,
    "number": number,
    "signed": signed,
    "count": count,
    "usd": usd,
    "clock": clock,
    "duration": duration,
    "size": size,
    "moment": moment,
    "label": label,
}
