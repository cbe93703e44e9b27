"""A request's body: read whole before it is sent on, since it names the model; then let go.

Large bodies (images, long sessions) are let in a few at a time, so that no agent can fill the
memory of its run.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx
from starlette.types import Receive

from rl_bench.gateway.json_read import obj, parse, text
from rl_bench.gateway.routes import Headers

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Twice what Anthropic takes."""
LARGE_BYTES = 1024 * 1024
MAX_LARGE = 8
PIECE_BYTES = 256 * 1024


class TooLargeError(Exception):
    """A body beyond `MAX_BODY_BYTES`."""


class HungUpError(Exception):
    """The agent closed the connection."""


class RequestBody(httpx.AsyncByteStream):
    """Reads a body, and gives it to the HTTP client in pieces, once.

    Args:
        room: Bounds how many large ones there are; see `MAX_LARGE`.
    """

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room = room
        self._holds_room = False
        self._data = b""

    @property
    def num_bytes(self) -> int:
        """Its length, until it has been sent."""
        return len(self._data)

    async def read(self, receive: Receive, headers: Headers) -> None:
        """Reads it from the agent.

        Raises:
            TooLargeError: It is too large; read no further than that.
            HungUpError: The agent left before its end.
        """
        told = _told_length(headers)
        if told is None or told > LARGE_BYTES:
            if told is not None and told > MAX_BODY_BYTES:
                raise TooLargeError
            await self._room.acquire()
            self._holds_room = True
        data = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HungUpError
            data += message.get("body", b"")
            more = message.get("more_body", False)
            if len(data) > MAX_BODY_BYTES:
                raise TooLargeError
        self._data = bytes(data)

    def model(self) -> str:
        """The model that it asks for; empty when it names none that can be read."""
        return text(obj(parse(self._data)), "model")

    def release(self) -> None:
        """Forgets the bytes; safe to call twice."""
        self._data = b""
        if self._holds_room:
            self._holds_room = False
            self._room.release()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        data = self._data
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]
        del data
        self.release()


def _told_length(headers: Headers) -> int | None:
    names = {name.lower(): value for name, value in headers}
    if b"transfer-encoding" in names:
        return None
    return int(names.get(b"content-length", b"0"))
