"""Reading JSON that others wrote: nothing in it is taken for granted, nothing in it raises."""

import json
from collections.abc import Mapping

Object = Mapping[str, object]
EMPTY: Object = {}
MAX_COUNT = 10**12


def parse(data: bytes) -> object:
    """What the text holds; None when it is no JSON."""
    try:
        parsed: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return parsed


def obj(value: object, *keys: str) -> Object:
    """The object below these keys; empty when there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else EMPTY


def count(value: Object, *keys: str) -> int | None:
    """The first of the keys that holds a count."""
    for key in keys:
        found = value.get(key)
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_COUNT:
            return found
    return None


def text(value: object, key: str = "") -> str:
    """The text (below the key), or a number as such; empty when there is none."""
    found = value.get(key) if key and isinstance(value, dict) else value
    if isinstance(found, bool) or not isinstance(found, str | int):
        return ""
    return str(found) if not isinstance(found, int) or abs(found) <= MAX_COUNT else ""


def plain(words: str, limit: int) -> str:
    """On one line, at most ``limit`` characters, none of which a ledger could not hold."""
    line = " ".join(words[: limit * 4].encode("utf-8", "replace").decode().split())
    line = "".join(character for character in line if character.isprintable())
    return line if len(line) <= limit else line[: limit - 1] + "…"
