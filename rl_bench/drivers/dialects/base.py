"""What a dialect is: a request read from its JSON, and answers written in its forms."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

from rl_bench.drivers.dialogue import Answer, Ask, compact

Json = dict[str, object]
JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"


class MalformedError(ValueError):
    """The request is not one of this API; answered with 400."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What an answer is marked with: equal requests get equal ids.

    Attributes:
        seed: Hexadecimal digits that belong to the request.
        created_s: The time, Unix seconds.
    """

    seed: str
    created_s: int

    @classmethod
    def of(cls, body: bytes, *, created_s: int) -> "Stamp":
        """The stamp of a request with this body."""
        return cls(hashlib.sha256(body).hexdigest(), created_s)

    def id(self, prefix: str, *, length: int = 24) -> str:
        """An id, e.g. ``msg_…``: of its own for every prefix."""
        digest = hashlib.sha256(f"{prefix}/{self.seed}".encode()).hexdigest()
        return prefix + digest[:length]


class Exchange(Protocol):
    """One request in its dialect, and the forms of its answer."""

    @property
    def ask(self) -> Ask: ...

    @property
    def stream_type(self) -> str:
        """The media type of a streamed answer."""
        ...

    def whole(self, answer: Answer) -> Json:
        """The body of an answer that is not streamed."""
        ...

    def stream(self, answer: Answer) -> list[bytes]:
        """The frames of a streamed answer, to its proper end."""
        ...

    def broken(self, message: str, *, num_sent: int) -> bytes:
        """The frame that ends a stream with an error, after ``num_sent`` others."""
        ...


def event(data: Json, *, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {compact(data)}\n\n".encode("utf-8", "replace")
