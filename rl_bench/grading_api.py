"""The grading API over HTTP: FastAPI on uvicorn, loopback only, the run's token in the path.

    POST /submit   GET /submissions/{id}   GET /scores   GET /time   GET /health

Everything else, and everything with another token, is a 404 that the run's ledger notes: there is
no route that changes anything but ``/submit``. What answers mean is `rl_bench.grading_desk`'s; this
module reads requests within limits and writes answers.
"""

import asyncio
import errno
import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from rl_bench.errors import WorkspaceError
from rl_bench.wire import RETRY_AFTER_S, Reply, SubmitRequest, Times, refusal

log = logging.getLogger(__name__)
T = TypeVar("T")

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
MAX_CONNECTIONS = 256


class Desk(Protocol):
    """What answers; `rl_bench.grading_desk.GradingDesk` is one."""

    async def submit(self, request: SubmitRequest, *, status_url: str) -> Reply: ...
    def status(self, submission_id: int) -> Reply: ...
    def scores(self) -> dict[str, object]: ...
    def times(self) -> Times: ...
    def note(self, topic: str, message: str) -> None: ...
    async def refuse_malformed(self, message: str) -> Reply: ...


def create_app(desk: Desk, *, token: str, base_url: str) -> FastAPI:
    """The API of one run.

    Args:
        desk: Answers.
        token: The first part of every path.
        base_url: With the token, as the agent knows it.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def check_token(token_given: str) -> None:
        if not hmac.compare_digest(token_given.encode(), token.encode()):
            raise HTTPException(404)

    router = APIRouter(prefix="/{token_given}", dependencies=[Depends(check_token)])

    @router.post("/submit")
    async def submit(request: Request) -> JSONResponse:
        try:
            body = await _read_body(request)
        except ClientDisconnect:
            return _response(refusal(400, "disconnected", "the request was never complete"))
        if body is None:
            message = f"the body is larger than {MAX_BODY_BYTES} bytes"
            return _response(refusal(413, "body_too_large", message))
        try:
            parsed = SubmitRequest.model_validate_json(body)
        except ValidationError as error:
            return _response(await desk.refuse_malformed(_explain(error)))
        url = f"{base_url}/submissions/{{submission_id}}"
        return _response(await desk.submit(parsed, status_url=url))

    @router.get("/submissions/{submission_id}")
    async def submission(submission_id: int) -> JSONResponse:
        return _response(desk.status(submission_id))

    @router.get("/scores")
    async def scores() -> JSONResponse:
        return _Json(desk.scores())

    @router.get("/time")
    async def time() -> Times:
        return desk.times()

    @router.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    app.include_router(router)
    _refuse_the_rest(app, desk, token)
    return app


def _refuse_the_rest(app: FastAPI, desk: Desk, token: str) -> None:
    async def not_found(request: Request, error: Exception) -> JSONResponse:
        status = error.status_code if isinstance(error, StarletteHTTPException) else 404
        path = request.url.path.replace(token, "<token>")[:200]
        message = f"{request.method} {path}: refused with 404"
        await asyncio.to_thread(desk.note, "unknown_request", message)
        log.info("%s (%d)", message, status)
        return _response(refusal(404, "not_found", "there is nothing here"))

    async def broken(request: Request, error: Exception) -> JSONResponse:
        # The last boundary: whatever escapes is ours, and must not look like the agent's fault.
        await asyncio.to_thread(desk.note, "grading_api_error", f"{type(error).__name__}: {error}")
        message = "the grading API failed; send the same request again"
        return _response(refusal(503, "internal_error", message, retry_after_s=RETRY_AFTER_S))

    app.add_exception_handler(StarletteHTTPException, not_found)
    app.add_exception_handler(Exception, broken)


async def _read_body(request: Request) -> bytes | None:
    """The body; None when it is too large, read no further than that."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    return body


def _explain(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else problem["msg"]


def _response(reply: Reply) -> JSONResponse:
    headers = {} if reply.retry_after_s is None else {"Retry-After": str(reply.retry_after_s)}
    return _Json(reply.body, status_code=reply.status, headers=headers)


class _Json(JSONResponse):
    """Names of the agent's files and tensors may hold lone surrogates, which UTF-8 cannot carry."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


class GradingServer:
    """Serves one run's API from a thread of its own, whose event loop owns the desk.

    Use as a context manager, or `start` and `close`.

    Args:
        desk: Answers; from the start on only this server's loop may use it, see `run`.
        port: Preferred port; 0, or when it is taken: any free one.

    Attributes:
        token: Names the run; whoever knows it may submit.
        port: The port that was got.
        url: What the agent gets as ``GRADING_SERVER_URL``; known before the start.

    Raises:
        WorkspaceError: No port could be had.
    """

    def __init__(self, desk: Desk, *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self._socket = _bind(port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{self.token}"
        app = create_app(desk, token=self.token, base_url=self.url)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            # The other parser of uvicorn takes headers without end.
            http="h11",
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="grading-api", daemon=True)

    def start(self) -> Self:
        """Starts to serve; returns when requests are answered.

        Raises:
            WorkspaceError: It did not come up.
        """
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(START_LIMIT_S / 0.01)):
            if self._server.started or not self._thread.is_alive():
                break
            waited.wait(0.01)
        if not self._server.started:
            raise WorkspaceError(f"the grading API did not start on port {self.port}")
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of the desk on the server's loop, from another thread, to its end."""
        assert self._loop is not None, "the server has not been started"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stops answering; safe to call twice."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_LIMIT_S)
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _bind(port: int) -> socket.socket:
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
    raise WorkspaceError(f"no port for the grading API: {problem}") from problem
