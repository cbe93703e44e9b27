"""Reads what a CLI tells of itself on stdout, one JSON object a line, by rules from `conf/agent`.

Whatever is no JSON object is passed over: banners, warnings, torn lines, lines without end, binary.
The reader believes nothing: texts are cut, numbers that are none are left out.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rl_bench.config import StreamRule
from rl_bench.events import AgentEvent

MAX_TEXT = 4000
"""Characters that an event's text keeps."""
MAX_NAME = 200
MAX_LINE_BYTES = 8 * 1024 * 1024
"""A longer line is passed over."""
MAX_ELEMENTS = 1000
"""Of a line's list so many are read."""
_MAX_INT = 2**53
_NOT_AN_ERROR = frozenset(
    {"", "0", "false", "none", "null", "ok", "success", "succeeded"}
    | {"completed", "complete", "done", "finished", "in_progress", "pending", "running"}
)

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


class StreamReader:
    """Turns bytes of a CLI's output into events, in order.

    For each line the lists that rules name by ``each`` come first, in the rules' order, element by
    element (what is no list counts as a list of one); then the line itself. Of the rules for one
    element the first that matches is taken.

    Args:
        rules: The agent's.

    Attributes:
        num_lines: JSON objects that were read.
        num_passed_over: Other lines.
    """

    def __init__(self, rules: Sequence[StreamRule]) -> None:
        lists = dict.fromkeys(rule.each for rule in rules if rule.each)
        self._groups = [
            (each, [rule for rule in rules if rule.each == each]) for each in (*lists, "")
        ]
        self._buffer = bytearray()
        self._is_overlong = False
        self.num_lines = 0
        self.num_passed_over = 0

    def feed(self, data: bytes, *, budget_used_s: float = 0.0) -> list[AgentEvent]:
        """Events of the lines that ``data`` completes.

        Args:
            data: The next bytes of the output, cut anywhere.
            budget_used_s: The time that the events get.
        """
        found: list[AgentEvent] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            if self._buffer or self._is_overlong:
                self._keep(part)
                part, self._buffer = bytes(self._buffer), bytearray()
            if self._is_overlong or len(part) > MAX_LINE_BYTES:
                self._is_overlong = False
                self.num_passed_over += 1
            else:
                found += self._read(part, budget_used_s)
        self._keep(rest)
        return found

    def finish(self, *, budget_used_s: float = 0.0) -> list[AgentEvent]:
        """Events of a last line without its newline."""
        return self.feed(b"\n", budget_used_s=budget_used_s) if self._buffer else []

    def restart(self) -> None:
        """Forgets the line that was begun: what comes next does not continue it."""
        self._buffer.clear()
        self._is_overlong = False

    def _keep(self, part: bytes) -> None:
        if self._is_overlong or len(self._buffer) + len(part) > MAX_LINE_BYTES:
            self._buffer.clear()
            self._is_overlong = True
        else:
            self._buffer += part

    def _read(self, raw: bytes, budget_used_s: float) -> list[AgentEvent]:
        line = parse_object(raw)
        if line is None:
            self.num_passed_over += bool(raw.strip())
            return []
        try:
            found = self._events(line, budget_used_s)
        except RecursionError:  # nested so deep that it can be read and not be written
            self.num_passed_over += 1
            return []
        self.num_lines += 1
        return found

    def _events(self, line: "dict[str, Json]", budget_used_s: float) -> list[AgentEvent]:
        found: list[AgentEvent] = []
        for each, rules in self._groups:
            for element in _elements(line, each)[:MAX_ELEMENTS]:
                rule = next((rule for rule in rules if _matches(rule, line, element)), None)
                if rule is not None:
                    found.append(_event(rule, line, element, budget_used_s))
        return found


def parse_object(raw: bytes) -> "dict[str, Json] | None":
    """The JSON object that a line is; None for anything else."""
    text = raw.strip().decode("utf-8", errors="replace").removeprefix("\ufeff")
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _elements(line: Json, each: str) -> "list[Json]":
    """The list at a path; what is no list is one of one."""
    if not each:
        return [line]
    value = _value(line, each)
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _matches(rule: StreamRule, line: Json, element: Json) -> bool:
    return all(_equals(_value(line, path), wanted) for path, wanted in rule.when.items()) and all(
        _equals(_value(element, path), wanted) for path, wanted in rule.only.items()
    )


def _equals(value: Json, wanted: str | int | float | bool | None) -> bool:
    # In Python true is 1; in JSON it is not.
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _value(element: Json, path: str) -> Json:
    """What is at a path of keys; None when any of them is missing."""
    for key in path.split("."):
        if not isinstance(element, dict):
            return None
        element = element.get(key)
    return element


def _at(path: str, line: Json, element: Json) -> Json:
    return _value(line, path[1:]) if path.startswith("^") else _value(element, path)


def _event(rule: StreamRule, line: Json, element: Json, budget_used_s: float) -> AgentEvent:
    def at(path: str) -> Json:
        return _at(path, line, element) if path else None

    text = next((value for path in rule.text if (value := at(path)) not in (None, "")), None)
    tokens = {name: _sum(path, at) for name, path in rule.tokens.items()}
    return AgentEvent(
        kind=rule.kind,
        budget_used_s=budget_used_s,
        name=cut(as_text(at(rule.name)), MAX_NAME),
        text=cut(as_text(text), MAX_TEXT),
        call_id=cut(as_text(at(rule.call_id)), MAX_NAME),
        is_error=rule.kind == "error" or is_error(at(rule.is_error)),
        totals=rule.totals,
        input_tokens=tokens.get("input_tokens"),
        output_tokens=tokens.get("output_tokens"),
        cached_tokens=tokens.get("cached_tokens"),
        cache_write_tokens=tokens.get("cache_write_tokens"),
        cost_usd=_amount(at(rule.cost_usd)),
        num_turns=_count(at(rule.num_turns)),
    )


def is_error(value: Json) -> bool:
    """Whether a field tells of an error: true, a code that is not 0, an object, a bad status."""
    if isinstance(value, str):
        return value.strip().lower() not in _NOT_AN_ERROR
    return bool(value)


def as_text(value: Json) -> str:
    """A value in words: a string as it is, the texts of a list of parts, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and value and all(_is_part(part) for part in value):
        text = "\n".join(as_text(_value(part, "text")) for part in value)
    else:
        text = json.dumps(value, ensure_ascii=False)
    # Half of a surrogate pair is legal JSON, and cannot be written as UTF-8.
    return text.encode("utf-8", errors="replace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of a text, and how many were left out."""
    if len(text) <= limit:
        return text
    note = f" … [{len(text) - limit} more characters]"
    return text[: max(0, limit - len(note))] + note[:limit]


def _is_part(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str)


def _sum(path: str, at: Callable[[str], Json]) -> int | None:
    """The count at a path, or the sum of several that are joined by ``+``."""
    counts = [_count(at(part.strip())) for part in path.split("+")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _count(value: Json) -> int | None:
    number = _amount(value)
    return int(number) if number is not None else None


def _amount(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= _MAX_INT else None
