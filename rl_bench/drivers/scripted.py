"""The scripted driver's server: plays a session to whichever CLI asks, in the API that it speaks.

    /anthropic/v1/messages   .../messages/count_tokens   .../models
    /openai/v1/responses     .../chat/completions   .../models
    /google/v1beta/models/M:generateContent   :streamGenerateContent   :countTokens   .../models

All below the server's own token; the key comes in each provider's way, and another is a 401. To try
any CLI with it:

    python -m rl_bench.drivers.scripted --session improve

prints the URLs and the key, and a line for each request.
"""

import argparse
import asyncio
import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rl_bench.command_line import complain, read_flags, say
from rl_bench.config import Api
from rl_bench.drivers.dialects.base import JSON, Exchange, Json, MalformedError, Stamp
from rl_bench.drivers.dialects.routing import Wanted, route
from rl_bench.drivers.dialogue import Answer, compact
from rl_bench.drivers.faults import (
    BreakingResponse,
    FaultBook,
    FramesResponse,
    halves,
    wait,
)
from rl_bench.drivers.player import answer
from rl_bench.drivers.provider_errors import provider_error
from rl_bench.drivers.session import Fault, Session, load_session, session_names
from rl_bench.errors import RlBenchError, WorkspaceError
from rl_bench.lines import one_line
from rl_bench.local_server import LocalServer

MODEL_ID = "scripted-1"
MAX_BODY_BYTES = 64 * 1024 * 1024
_BASES = {Api.ANTHROPIC: "/anthropic", Api.OPENAI: "/openai/v1", Api.GOOGLE: "/google"}
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(slots=True, kw_only=True)
class Served:
    """A request, and what became of it.

    Attributes:
        api: Its API.
        method: ``GET`` or ``POST``.
        path: Below the API's base.
        model: The model it asked for, if it did.
        status: Of the answer.
        step: The session's step that was due, from 1; None: beside the session.
        fault: The kind of fault that it got; empty: none.
    """

    api: Api
    method: str
    path: str
    model: str = ""
    status: int = 0
    step: int | None = None
    fault: str = ""


class ScriptedDriver(LocalServer):
    """Serves one session. Use as a context manager.

    Args:
        session: What is played.
        model_id: The model in the lists of models; requests may name any.
        port: Preferred port; 0, or when it is taken: any free one.
        on_served: Called on the server's thread when an answer begins.

    Attributes:
        key: What clients must send.
        served: The requests so far, in order of their answers.

    Raises:
        WorkspaceError: No port could be had, or it did not come up.
    """

    def __init__(
        self,
        session: Session,
        *,
        model_id: str = MODEL_ID,
        port: int = 0,
        on_served: Callable[[Served], None] | None = None,
    ) -> None:
        super().__init__("scripted driver", port=port)
        self.key = f"sk-scripted-{secrets.token_urlsafe(24)}"
        self.served: list[Served] = []
        self._session = session
        self._model_id = model_id
        self._faults = FaultBook(session.faults)
        self._closing = asyncio.Event()
        self._on_served = on_served

    def url_for(self, api: Api) -> str:
        """The base URL that a client of ``api`` is given, as the provider's own would be."""
        return self.url + _BASES[api]

    def __enter__(self) -> Self:
        routes = [
            Route(f"/{{token}}{base}/{{path:path}}", self._endpoint(api), methods=_METHODS)
            for api, base in _BASES.items()
        ]
        return self.start(Starlette(routes=routes))

    def close(self) -> None:
        """Ends answers that hang, and stops; safe to call twice."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._closing.set)
        super().close()

    def _endpoint(self, api: Api) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if not hmac.compare_digest(request.path_params["token"].encode(), self.token.encode()):
                return Response(status_code=404)
            seen = Served(api=api, method=request.method, path=request.path_params["path"])
            response = await self._answer(request, seen)
            seen.status = response.status_code
            self.served.append(seen)
            if self._on_served is not None:
                self._on_served(seen)
            return response

        return endpoint

    async def _answer(self, request: Request, seen: Served) -> Response:
        if not hmac.compare_digest(_key_of(request, seen.api).encode(), self.key.encode()):
            return _refusal(seen.api, 401)
        try:
            body = await _body_of(request)
        except ClientDisconnect:
            return Response(status_code=400)
        if len(body) > MAX_BODY_BYTES:
            return _refusal(seen.api, 413)
        stamp = Stamp.of(body, created_s=int(time.time()))
        try:
            wanted = Wanted(
                method=seen.method,
                path=seen.path,
                query=request.query_params,
                body=_parse(body) if seen.method == "POST" else {},
                stamp=stamp,
                model_id=self._model_id,
            )
            found = route(seen.api, wanted)
        except MalformedError as error:
            return _refusal(seen.api, 400, message=str(error))
        if found is None:
            return _refusal(seen.api, 404)
        if isinstance(found, dict):
            return _json(found)
        return await self._play(request, seen, found)

    async def _play(self, request: Request, seen: Served, exchange: Exchange) -> Response:
        said = answer(self._session, exchange.ask)
        fault = self._faults.next(said.step)
        seen.model, seen.step = exchange.ask.model, said.step
        seen.fault = "" if fault is None else fault.kind
        if fault is None:
            return _response(exchange, said)
        if fault.kind == "hang":
            passed = await wait(fault.seconds, request.receive, closing=self._closing)
            return _response(exchange, said) if passed else _refusal(seen.api, 503)
        if fault.status is not None:
            return _refusal(
                seen.api, fault.status, message=fault.message, retry_after_s=fault.retry_after_s
            )
        if fault.kind == "error_event" and not exchange.ask.stream:
            return _refusal(seen.api, 500, message=fault.message)
        return self._breaking(exchange, said, fault)

    def _breaking(self, exchange: Exchange, said: Answer, fault: Fault) -> Response:
        is_stream = exchange.ask.stream
        whole = compact(exchange.whole(said)).encode("utf-8", "replace")
        frames = halves(exchange.stream(said) if is_stream else [whole])
        return BreakingResponse(
            frames,
            fault,
            error=exchange.broken(fault.message, num_sent=len(frames.first)),
            media_type=exchange.stream_type if is_stream else JSON,
            closing=self._closing,
        )


def _key_of(request: Request, api: Api) -> str:
    """The key in the provider's own header, or the query, or as a bearer's."""
    own = {Api.ANTHROPIC: "x-api-key", Api.GOOGLE: "x-goog-api-key"}.get(api, "")
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    query = request.query_params.get("key", "") if api is Api.GOOGLE else ""
    return request.headers.get(own, "") or query or bearer


async def _body_of(request: Request) -> bytes:
    """The body, read to a little beyond the limit at most."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            break
    return b"".join(parts)


def _parse(body: bytes) -> Json:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise MalformedError(f"The body is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise MalformedError("The body is no JSON object")
    return parsed


def _response(exchange: Exchange, said: Answer) -> Response:
    if not exchange.ask.stream:
        return _json(exchange.whole(said))
    return FramesResponse(exchange.stream(said), media_type=exchange.stream_type)


def _json(body: Json, *, status: int = 200) -> Response:
    content = compact(body).encode("utf-8", "replace")
    return Response(content, status_code=status, media_type=JSON)


def _refusal(
    api: Api, status: int, *, message: str = "", retry_after_s: float | None = None
) -> Response:
    request_id = f"req_{secrets.token_hex(12)}"
    error = provider_error(
        api, status, message=message, retry_after_s=retry_after_s, request_id=request_id
    )
    response = _json(error.body, status=error.status)
    response.headers.update(error.headers)
    return response


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a session until it is interrupted; 2: there is no such session, or no such port."""
    parser = argparse.ArgumentParser(
        prog="python -m rl_bench.drivers.scripted",
        description="A stand-in for a language model: plays a session to any CLI.",
        epilog="Tells the address for each API and the key that a CLI is to be given, then serves "
        "until it is interrupted, and shows each request. Exit codes: 0 interrupted; 2 bad input.",
        allow_abbrev=False,
    )
    names = ", ".join(session_names())
    parser.add_argument("--session", default="improve", help=f"{names}, or a YAML file")
    parser.add_argument("--port", type=_port, default=0, help="a free one by default")
    given = read_flags(parser, arguments)
    try:
        session = load_session(given.session)
        driver = ScriptedDriver(session, port=given.port, on_served=_show)
        if given.port not in (0, driver.port):
            driver.close()
            raise WorkspaceError(
                f"port {given.port} is in use, or was a moment ago",
                cure="Give another --port, or none for any that is free",
            )
        with driver:
            for api in Api:
                sys.stdout.write(f"{api.value:<10}{driver.url_for(api)}\n")
            sys.stdout.write(f"{'key':<10}{driver.key}\n")
            sys.stdout.flush()
            threading.Event().wait()
    except RlBenchError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


def _port(text: str) -> int:
    with suppress(ValueError):
        if 0 <= int(text) < 65536:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535, or 0 for a free one")


def _show(seen: Served) -> None:
    step = "aside" if seen.step is None else f"step {seen.step}"
    words = [str(seen.status), seen.method, seen.path, seen.model, step, seen.fault]
    say(" ".join(one_line(word) for word in words if word))


if __name__ == "__main__":
    sys.exit(main())
