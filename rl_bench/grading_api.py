"""The grading API over HTTP: FastAPI on uvicorn, loopback only, the run's token in the path.

    POST /submit   GET /submissions/{id}   GET /scores   GET /time   GET /health

Everything else, and everything with another token, is a 404 that the run's ledger notes: there is
no route that changes anything but ``/submit``. What answers mean is `rl_bench.grading_desk`'s; this
module reads requests within limits and writes answers.
"""

import asyncio
import hmac
import json
import logging
from pathlib import Path
from typing import Any, Protocol, Self

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

from rl_bench import __version__
from rl_bench.local_server import LocalServer
from rl_bench.wire import (
    RETRY_AFTER_S,
    FlatSubmissionView,
    FlatWaitingSubmission,
    Health,
    MultiScores,
    Refusal,
    Reply,
    Scores,
    SubmissionView,
    SubmitRequest,
    Times,
    WaitingSubmission,
    refusal,
)

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024

_NOTHING_HERE: dict[int | str, dict[str, Any]] = {
    404: {"model": Refusal, "description": "No such submission or route, or another token"}
}
_SUBMIT_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": FlatSubmissionView | SubmissionView, "description": "Graded"},
    202: {
        "model": FlatWaitingSubmission | WaitingSubmission,
        "description": "Accepted, for `wait=false`: the score is at `status_url`",
    },
    400: {"model": Refusal, "description": "The request or its path is malformed"},
    **_NOTHING_HERE,
    409: {"model": Refusal, "description": "The folder was written to while it was copied"},
    410: {"model": Refusal, "description": "The deadline has passed"},
    413: {"model": Refusal, "description": f"The body is larger than {MAX_BODY_BYTES} bytes"},
    422: {"model": Refusal, "description": "The checkpoint cannot be graded; names the cure"},
    429: {"model": Refusal, "description": "All submissions of the run are used"},
    503: {
        "model": Refusal,
        "description": "Grading is down: send the same request after `Retry-After` seconds",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
    },
}
_SUBMIT_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SubmitRequest.model_json_schema()}},
    }
}


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

    def check_token(token_given: str) -> None:
        if not hmac.compare_digest(token_given.encode(), token.encode()):
            raise HTTPException(404)

    # On the app itself: a router's routes would all be made a second time for it.
    app = _GradingApp(
        title="rl_bench grading API",
        version=__version__,
        summary="Grades an agent's checkpoints while it trains.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=[Depends(check_token)],
    )

    @app.post("/{token_given}/submit", responses=_SUBMIT_ANSWERS, openapi_extra=_SUBMIT_BODY)
    async def submit(request: Request) -> JSONResponse:
        """Submits a checkpoint folder, and returns its score; the same content is graded once."""
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

    @app.get(
        "/{token_given}/submissions/{submission_id}",
        responses={200: {"model": FlatSubmissionView | SubmissionView}, **_NOTHING_HERE},
    )
    async def submission(submission_id: int) -> JSONResponse:
        """One submission's state and score."""
        return _response(desk.status(submission_id))

    @app.get(
        "/{token_given}/scores", responses={200: {"model": Scores | MultiScores}, **_NOTHING_HERE}
    )
    async def scores() -> JSONResponse:
        """All submissions, the best so far, and what the base model scored."""
        return _Json(desk.scores())

    @app.get("/{token_given}/time", responses=_NOTHING_HERE)
    async def time() -> Times:
        """What is left of the run's budget."""
        return desk.times()

    @app.get("/{token_given}/health", responses=_NOTHING_HERE)
    async def health() -> Health:
        """Whether the server answers."""
        return Health()

    _refuse_the_rest(app, desk, token)
    return app


class _GradingApp(FastAPI):
    """Describes what it answers: FastAPI's own 422, of a path that is not one, is a 404 here."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            for path in schema["paths"].values():
                for method, operation in path.items():
                    if method == "get":
                        operation["responses"].pop("422", None)
            for unused in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(unused, None)
        return super().openapi()


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
    app.add_exception_handler(RequestValidationError, not_found)
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


class GradingServer(LocalServer):
    """Serves one run's API; its event loop owns the desk.

    Use as a context manager, or `open` and `close`.

    Args:
        desk: Answers; from the start on only this server's loop may use it, see `run`.
        port: Preferred port; 0, or when it is taken: any free one.
        socket_path: A unix socket to answer on as well.

    Attributes:
        url: What the agent gets as ``GRADING_SERVER_URL``; known before the start.

    Raises:
        WorkspaceError: No port could be had.
    """

    def __init__(self, desk: Desk, *, port: int = 0, socket_path: Path | None = None) -> None:
        super().__init__("grading API", port=port, socket_path=socket_path)
        self._desk = desk

    def open(self) -> Self:
        """Starts to serve; returns when requests are answered.

        Raises:
            WorkspaceError: It did not come up.
        """
        return self.start(create_app(self._desk, token=self.token, base_url=self.url))

    def __enter__(self) -> Self:
        return self.open()
