"""Reads along what a provider answers, in bounded memory, and never in the way of it.

Whatever cannot be read is only not known: the bytes have long been passed on.
"""

import logging
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from rl_bench.gateway.dialects import STATES, AnswerState, Problem, problem_in
from rl_bench.gateway.json_read import obj, parse
from rl_bench.gateway.routes import Dialect, Headers
from rl_bench.gateway.usage import NO_TOKENS, Tokens

log = logging.getLogger(__name__)

MAX_JSON_BYTES = 8 * 1024 * 1024
"""Of one event, or of an answer that is no stream; what is larger is not read."""
MAX_INFLATED_BYTES = 1024 * 1024
"""Inflated at a time."""


class Reading(NamedTuple):
    """What an answer told.

    Attributes:
        tokens: As far as it told them.
        problem: The error in it.
        has_end: It said that it is over; False: it is a stream that did not; None: who knows.
    """

    tokens: Tokens
    problem: Problem | None
    has_end: bool | None


class AnswerReader:
    """Reads one answer.

    Args:
        dialect: How it is written.
        status: Of the answer.
        headers: Of the answer.
        generates: Its route makes tokens; else only errors are read.
    """

    def __init__(self, dialect: Dialect, *, status: int, headers: Headers, generates: bool) -> None:
        named = {name.lower(): value.lower() for name, value in headers}
        self._state = STATES[dialect]()
        self._reads_state = generates and status < 300
        self._is_stream = b"text/event-stream" in named.get(b"content-type", b"")
        self._inflate = _inflater(named.get(b"content-encoding", b"identity").strip())
        self._events = _EventLines(self._state)
        self._json = bytearray()
        self._problem: Problem | None = None
        self._skipped = self._inflate is None

    def feed(self, data: bytes) -> None:
        """Reads the next bytes; never raises."""
        if self._skipped:
            return
        try:
            self._feed(data)
        except Exception as error:  # noqa: BLE001  a reader must not break the stream it reads
            self._give_up(error)

    @property
    def is_ended(self) -> bool:
        """Whether a stream has said that it is over."""
        return self._state.is_ended

    @property
    def tokens(self) -> Tokens:
        """What was told so far."""
        return NO_TOKENS if self._skipped else self._state.tokens

    def finish(self) -> Reading:
        """What was told, when no more comes."""
        if not self._skipped:
            try:
                self._finish()
            except Exception as error:  # noqa: BLE001  as in `feed`
                self._give_up(error)
        skipped = self._skipped or self._events.skipped
        has_end: bool | None = self._state.is_ended or None
        if self._is_stream and self._reads_state and not skipped:
            has_end = self._state.is_ended
        return Reading(self.tokens, self._state.problem or self._problem, has_end)

    def _give_up(self, error: Exception) -> None:
        log.warning("an answer could not be read along: %s", type(error).__name__)
        self._skipped = True

    def _feed(self, data: bytes) -> None:
        assert self._inflate is not None
        for piece in self._inflate.pieces(data):
            if self._is_stream and self._reads_state:
                self._events.feed(piece)
                continue
            self._json += piece
            if len(self._json) > MAX_JSON_BYTES:
                self._skipped = True
                self._json.clear()
                return

    def _finish(self) -> None:
        if self._is_stream and self._reads_state:
            self._events.end()
            return
        answer = parse(bytes(self._json))
        # Gemini without alt=sse streams a list, and its OpenAI dialect lists errors.
        for item in answer if isinstance(answer, list) else [answer]:
            if self._reads_state:
                self._state.take(obj(item))
            self._problem = problem_in(obj(item)) or self._problem


class _EventLines:
    """Server-sent events, line by line."""

    def __init__(self, state: AnswerState) -> None:
        self._state = state
        self._line = bytearray()
        self._data: list[bytes] = []
        self._num_bytes = 0
        self.skipped = False

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._take_line(bytes(self._line).removesuffix(b"\r"))
            self._line.clear()
        self._line += rest
        if len(self._line) > MAX_JSON_BYTES:
            self._line.clear()
            self.skipped = True

    def end(self) -> None:
        if self._line:
            self.feed(b"\n")
        self._dispatch()

    def _take_line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(b"data:"):
            self._num_bytes += len(line)
            if self._num_bytes > MAX_JSON_BYTES:
                self._data.clear()
                self.skipped = True
            else:
                self._data.append(line.removeprefix(b"data:").removeprefix(b" "))

    def _dispatch(self) -> None:
        data = b"\n".join(self._data)
        self._data.clear()
        self._num_bytes = 0
        if data.strip() == b"[DONE]":
            self._state.done()
        elif data:
            self._state.take(obj(parse(data)))


class _Inflater:
    """Undoes a compression that nobody asked for, a bounded piece at a time."""

    def __init__(self, decoder: "zlib._Decompress | None") -> None:
        self._decoder = decoder

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._decoder is None:
            yield data
            return
        while data:
            yield self._decoder.decompress(data, MAX_INFLATED_BYTES)
            data = self._decoder.unconsumed_tail


def _inflater(encoding: bytes) -> _Inflater | None:
    if encoding in {b"", b"identity"}:
        return _Inflater(None)
    # 32 more than the window's bits: gzip and zlib, told apart by their headers.
    return (
        _Inflater(zlib.decompressobj(32 + zlib.MAX_WBITS))
        if encoding in {b"gzip", b"x-gzip", b"deflate"}
        else None
    )
