"""A provider that plays what it is told, byte by byte, and a gateway before it.

`Provider` is a real HTTP server whose answers can break off, wait and lie; `fetch` is a client that
shows exactly what it got.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import h11
import httpx

from rl_bench.config import Api, DriverConfig
from rl_bench.events import DriverCall
from rl_bench.gateway.gateway import Gateway
from rl_bench.gateway.routes import HOP_BY_HOP
from rl_bench.gateway.upstream import Timeouts

KEY = "sk-real-4f9d2c71b3a85e60-NEVER-SHOWN-wxyz"
DUMMY = "sk-dummy"
LIMIT_S = 30.0
OF_THE_CONNECTION = {*HOP_BY_HOP, b"x-hop"}
"""Headers that are none of the answer's; X-Hop is one that tests name so."""
ASK = b'{"model": "m1"}'
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as the provider got it."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = (v.decode() for n, v in self.headers if n.lower() == name.encode())
        return next(found, None)


class Out:
    """One answer on its way out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_chunked = False
        self.num_bytes = 0
        self.was_left = threading.Event()

    async def head(self, status: int, headers: Pairs, *, length: int | None = None) -> None:
        """Status and headers; the body is chunked unless it has a length."""
        self._is_chunked = length is None
        framing = ("Transfer-Encoding", "chunked") if length is None else None
        framing = framing or ("Content-Length", str(length))
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{n}: {v}" for n, v in [*headers, framing])]
        await self._write("\r\n".join([*lines, "", ""]).encode())

    async def body(self, data: bytes) -> None:
        self.num_bytes += len(data)
        await self._write(b"%x\r\n%s\r\n" % (len(data), data) if self._is_chunked else data)

    async def end(self) -> None:
        if self._is_chunked:
            await self._write(b"0\r\n\r\n")

    async def whole(self, status: int, headers: Pairs, data: bytes) -> None:
        await self.head(status, headers, length=len(data))
        await self.body(data)

    async def stream(self, pieces: list[bytes], *, headers: Pairs | None = None) -> None:
        await self.head(200, headers or [("Content-Type", "text/event-stream")])
        for piece in pieces:
            await self.body(piece)
        await self.end()

    def cut(self) -> None:
        """Closes without an end."""
        self._writer.close()

    async def wait(self, event: threading.Event) -> None:
        """Waits for the test; notes when the other side leaves meanwhile."""
        for _ in range(int(LIMIT_S / 0.005)):
            if event.is_set():
                return
            if self._reader.at_eof():
                break
            await asyncio.sleep(0.005)
        self.was_left.set()
        raise ConnectionResetError

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


Play = Callable[[Received, Out], Awaitable[None]]


class Provider:
    """Serves ``play``, on a thread of its own.

    Attributes:
        requests: What it was asked.
        url: Where it is.
    """

    def __init__(self, play: Play) -> None:
        self.play = play
        self.requests: list[Received] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._stopping = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def _serve(self) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._connection, sock=self._socket)
            await self._stopping.wait()
            server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._loop.run_until_complete(serve())

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                await self.play(request, Out(reader, writer))
                if writer.is_closing():
                    break
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    connection = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return Received(
                method=head.method.decode(),
                target=head.target.decode(),
                headers=list(head.headers.raw_items()),
                body=bytes(body),
            )
        else:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """What a client got. ``is_whole``: the answer came to its proper end."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_whole: bool

    def header(self, name: str) -> str | None:
        found = (v.decode() for n, v in self.headers if n.lower() == name.encode())
        return next(found, None)


def fetch(
    url: str,
    path: str,
    *,
    method: str = "POST",
    body: bytes = ASK,
    headers: Pairs | None = None,
) -> Got:
    """Sends one request, its path as it is, and reads to the end of the connection."""
    parts = httpx.URL(url)
    target = parts.raw_path + path.encode()
    sent = [("Host", "x"), ("Connection", "close"), *(headers or [])]
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method=method, target=target, headers=[*sent, ("Content-Length", str(len(body)))]
    )
    with socket.create_connection((parts.host, parts.port or 80), timeout=LIMIT_S) as wire:
        wire.sendall(connection.send(request) or b"")
        wire.sendall(connection.send(h11.Data(data=body)) or b"")
        connection.send(h11.EndOfMessage())
        return _answer(wire, connection)


def _answer(wire: socket.socket, connection: h11.Connection) -> Got:
    head: h11.Response | None = None
    body = bytearray()
    is_whole = False
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            break
        if event is h11.NEED_DATA:
            connection.receive_data(wire.recv(65536))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            is_whole = isinstance(event, h11.EndOfMessage)
            break
    assert head is not None, "no answer"
    kept = [(n, v) for n, v in head.headers.raw_items() if n.lower() not in OF_THE_CONNECTION]
    return Got(status=head.status_code, headers=kept, body=bytes(body), is_whole=is_whole)


def make_driver(api: Api, **fields: object) -> DriverConfig:
    """A driver at dollars that are easy to reckon with."""
    prices = {
        "usd_per_million_input": 100.0,
        "usd_per_million_output": 1000.0,
        "usd_per_million_cached_input": 10.0,
        "usd_per_million_cache_write": 200.0,
    }
    return DriverConfig.model_validate(
        {"name": "d", "api": api, "model_id": "m1", "base_url": "http://x", **prices, **fields}
    )


@dataclass(slots=True, kw_only=True)
class Scene:
    """A provider, a gateway before it, and what the gateway told."""

    provider: Provider
    gateway: Gateway
    told: list[DriverCall] = field(default_factory=list)
    capped: list[str] = field(default_factory=list)

    @property
    def calls(self) -> list[DriverCall]:
        """What was told, in order of arrival: a client may ask again before a call is recorded."""
        return sorted(self.told, key=lambda call: call.call)

    @property
    def url(self) -> str:
        return self.gateway.url

    def fetch(self, path: str, *, body: bytes = ASK, headers: Pairs | None = None) -> Got:
        return fetch(self.url, path, body=body, headers=headers)

    def wait_for_calls(self, number: int) -> list[DriverCall]:
        wait_for(lambda: len(self.told) >= number)
        return self.calls


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


@contextmanager
def scene(
    play: Play,
    *,
    api: Api = Api.ANTHROPIC,
    key: str = KEY,
    base_url: str = "",
    max_calls: int | None = None,
    max_usd: float | None = None,
    socket_path: Path | None = None,
    timeouts: Timeouts | None = None,
    on_call: Callable[[DriverCall], None] | None = None,
    **driver: object,
) -> Iterator[Scene]:
    """Both, running. Its calls are all there when it is left."""
    calls: list[DriverCall] = []
    capped: list[str] = []
    with Provider(play) as provider:
        base_url = base_url or provider.url + ("/v1" if api is Api.OPENAI else "")
        gateway = Gateway(
            make_driver(api, **driver),
            api=api,
            base_url=base_url,
            key=key,
            max_calls=max_calls,
            max_usd=max_usd,
            used_s=lambda: 12.5,
            on_call=on_call or calls.append,
            on_capped=capped.append,
            socket_path=socket_path,
            timeouts=timeouts,
        )
        with gateway:
            yield Scene(provider=provider, gateway=gateway, told=calls, capped=capped)
