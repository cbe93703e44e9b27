"""A request and its answer, apart from the API that carries them.

Tokens are counted as one for every four bytes of compact JSON, rounded up. Of a conversation, what
stands before the driver's last message was in the request before, and counts as cached.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BYTES_PER_TOKEN = 4
FRAME_TOKENS = 3
"""Of every request, never cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the agent offers; ``schema`` is a JSON schema of its arguments."""

    name: str
    schema: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Told:
    """Something that the user, or the agent in the user's place, said to the driver."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the driver said earlier."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A tool that the driver called earlier."""

    name: str
    arguments: Mapping[str, object]
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """What a tool gave back; ``call`` is None when the conversation no longer holds the call."""

    call: Called | None
    text: str


Turn = Told | Words | Called | Returned


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request.

    Attributes:
        model: The model it names.
        stream: Whether the answer is streamed.
        turns: The conversation.
        tools: What the agent offers.
        schema: The JSON schema that the answer must fulfil, if one is asked for.
        num_tokens: Of the whole request.
        num_cached: Of them, those that the request before had.
    """

    model: str
    stream: bool = False
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, object] | None = None
    num_tokens: int = 0
    num_cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the driver says.

    Attributes:
        text: Words; may be empty when there is a call.
        call: A tool to call.
        step: The session's step that this is, from 1; None for what is beside the session.
    """

    text: str = ""
    call: Called | None = None
    step: int | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that it takes."""
        arguments = [] if self.call is None else [self.call.name, dict(self.call.arguments)]
        return max(1, count_tokens([self.text, *arguments]))


@dataclass(slots=True)
class Calls:
    """Calls by their ids, so that results find them, and by name where results have no ids."""

    _calls: dict[str, Called] = field(default_factory=dict)

    def add(self, call: Called) -> Called:
        """Remembers ``call``."""
        self._calls[call.call_id] = self._calls[call.name] = call
        return call

    def returned(self, call_id: str, text: str) -> Returned:
        """The result of the call with this id, or of the last one with this name."""
        return Returned(self._calls.get(call_id), text)


def count_tokens(parts: Sequence[object]) -> int:
    """Tokens of the parts of a request."""
    num_bytes = sum(len(compact(part).encode("utf-8", "replace")) for part in parts)
    return -(-num_bytes // BYTES_PER_TOKEN)


def compact(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pieces(text: str, *, size: int = 48) -> list[str]:
    """``text`` in the pieces that a stream sends; none of an empty text."""
    return [text[start : start + size] for start in range(0, len(text), size)]
