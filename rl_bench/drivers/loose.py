"""Reading JSON that others wrote: what is absent or of another type reads as empty."""

from collections.abc import Mapping


def mapping(value: object) -> Mapping[str, object]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Mapping[str, object]]:
    """The objects in an array."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def string(value: object) -> str:
    """``value`` if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def text_in(value: object, *, joint: str = "\n") -> str:
    """The text of content that is a string, or an array of parts with ``text``."""
    if isinstance(value, str):
        return value
    return joint.join(string(part.get("text")) for part in rows(value) if "text" in part)
