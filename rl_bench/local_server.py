"""An HTTP server on loopback for one run's agent: a token in the path, a thread of its own.

The grading API, the gateway and the scripted driver are apps on one of these each. A sandbox whose
network is its own reaches it by a unix socket beside the port.
"""

import asyncio
import contextlib
import errno
import logging
import secrets
import socket
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rl_bench.errors import WorkspaceError

T = TypeVar("T")
HOST = "127.0.0.1"
MAX_HEADER_BYTES = 64 * 1024
START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
STEPS_TO_ACCEPT = 3
"""Steps of the loop from an accepted client to a connection that the server knows of."""
LAST_WORDS_S = 0.5
"""Answers that were cancelled may still say so."""
MAX_CONNECTIONS = 256
"""Beyond it requests are answered by a 503."""
MAX_SPARE = 64
"""Beyond so many more a connection is reset: one that asks for nothing costs a descriptor as well,
and a run has two servers and, where nothing was set, 1024 descriptors."""


class BrokenOffError(Exception):
    """Raised within an answer to leave it without an end: the connection is dropped, no error."""


class LocalServer:
    """Serves one app. Use as a context manager, or `start` and `close`.

    Args:
        name: What it is, for errors and its thread.
        port: Preferred port; 0, or when it is taken: any free one.
        socket_path: A unix socket to answer on as well, at most 107 bytes long.

    Attributes:
        token: Names the run; the app must refuse paths that do not begin with it.
        port: The port that was got.
        url: With the token, without a slash at its end; known before the start.

    Raises:
        WorkspaceError: No port could be had.
    """

    def __init__(self, name: str, *, port: int = 0, socket_path: Path | None = None) -> None:
        self.token = secrets.token_urlsafe(24)
        self._name = name
        self._sockets = [_bind(port, name)]
        if socket_path is not None:
            self._sockets.append(_bind_unix(socket_path, name))
        self._socket_path = socket_path
        self.port: int = self._sockets[0].getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{self.token}"
        self._server: _Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self, app: ASGIApp) -> Self:
        """Starts to serve ``app``; returns when requests are answered.

        Raises:
            WorkspaceError: It did not come up.
        """
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            # Over h11: the other parser of uvicorn takes headers without end.
            http=_BoundedProtocol,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=2,
            # Longer than clients keep an idle connection: none is closed as it is used again.
            timeout_keep_alive=75,
            # What an agent does wrong without end must not fill a log.
            log_level="error",
            server_header=False,
            date_header=False,
        )
        server_log = logging.getLogger("uvicorn.error")
        if _is_unplanned not in server_log.filters:
            server_log.addFilter(_is_unplanned)
        self._server = _Server(config)
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        deadline = time.monotonic() + START_LIMIT_S
        while not self._server.is_up.wait(0.1):
            if not self._thread.is_alive() or time.monotonic() > deadline:
                break
        if not self._server.started:
            self.close()
            raise WorkspaceError(f"the {self._name} did not start on port {self.port}")
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the server's loop, from another thread, to its end."""
        assert self._loop is not None, "the server has not been started"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stops answering; safe to call twice."""
        if self._server is not None and self._loop is not None:
            self._server.end(self._loop)
        if self._thread.is_alive():
            self._thread.join(STOP_LIMIT_S)
        for each in self._sockets:
            each.close()
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self) -> None:
        assert self._loop is not None
        assert self._server is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=self._sockets))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class _Server(uvicorn.Server):
    """Ends when it is told to, where uvicorn looks ten times a second and then waits as long."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self._told = asyncio.Event()

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has the server that runs on ``loop`` end; from any thread."""
        self.should_exit = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
            loop.call_soon_threadsafe(self._told.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First only deaf: asyncio forgets a client for whom it is making a connection in a server
        # that is closed meanwhile, and leaves it waiting.
        for listener in sockets or ():
            asyncio.get_running_loop().remove_reader(listener)
        for _ in range(STEPS_TO_ACCEPT):
            await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            await self._break_off()
        for listener in (*self.servers, *(sockets or ())):
            listener.close()

    async def _break_off(self) -> None:
        """What is still open is dropped: a loop that ends would leave its clients waiting."""
        if self.server_state.tasks:  # cancelled by now
            await asyncio.wait(self.server_state.tasks, timeout=LAST_WORDS_S)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


class _BoundedProtocol(H11Protocol):
    """Takes no more connections than are answered, and a few to be refused in words."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # h11 is untyped
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS + MAX_SPARE:
            transport.abort()


def _is_unplanned(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], BrokenOffError)


def _bind(port: int, name: str) -> socket.socket:
    """A socket on loopback, bound here so that nobody can take the port before uvicorn has it."""
    for candidate in (port, 0):
        # With the protocol named, asyncio sets TCP_NODELAY: answers come 40 ms earlier.
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.bind((HOST, candidate))
        except OSError as error:
            bound.close()
            problem = error
            if error.errno != errno.EADDRINUSE:
                break
        else:
            return bound
    raise WorkspaceError(f"no port for the {name}: {problem}") from problem


def _bind_unix(path: Path, name: str) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        bound.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        bound.close()
        raise WorkspaceError(f"no socket for the {name} at {path}: {error}") from error
    return bound
