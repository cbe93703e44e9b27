"""A judge over HTTP for tests: an OpenAI-compatible endpoint that fails in the ways real ones do.

It answers by a rule of the test, so the same request always gets the same verdict, and it spoils
answers by another, so a test says who is wrong when::

    with StandInJudge(lambda asked: Answer(text="yes" if "4" in asked.text else "no")) as judge:
        pool = JudgePool.from_config(judge.config(num_retries=2), cache=..., log_folder=...)
        judge.spoil = lambda asked: Fault.HANG if asked.number % 3 == 0 else None
        judge.go_down()   # connections are refused
        judge.come_up()   # on the same port
        judge.num_requests, judge.max_in_flight, judge.asked[-1].body

The rule gets an `Asked` and returns an `Answer`; both rules are called under a lock, one request at
a time. An `Answer` with ``arguments`` calls the function that was forced. ``unsupported`` names
parameters that are refused with a 400, as newer models refuse ``max_tokens``. The server runs in
threads of its own and works for code in any loop or process of this machine.
"""

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from rl_bench.config import JudgeConfig

HOST = "127.0.0.1"


class Fault(StrEnum):
    """A way in which an endpoint fails."""

    RATE_LIMIT = "429 with Retry-After"
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    UNAUTHORIZED = "401"
    NO_CREDIT = "402"
    FORBIDDEN = "403"
    NO_MODEL = "404, the model was withdrawn"
    NO_QUOTA = "429, the quota is used up"
    BAD_REQUEST = "400 for what the request says"
    ERROR_IN_200 = "status 200 whose body is an error"
    HANG = "no answer ever"
    TRICKLE = "one byte now and then"
    RESET = "the connection is reset half-way"
    MALFORMED_JSON = "a body that breaks off"
    HTML = "a page of HTML with status 200"
    NO_CHOICES = "no choices"
    MALFORMED_VERDICT = "a good body, and words that say nothing"
    EMPTY = "empty content"
    NULL = "null content"
    REFUSAL = "a refusal"
    CONTENT_FILTER = "stopped by a content filter"
    LENGTH = "cut by the limit of tokens, before anything was said"
    NO_LOGPROBS = "no log-probabilities"
    OTHER_LOGPROBS = "log-probabilities of other tokens"
    NO_CALL = "words instead of the function's call"
    WRONG_FUNCTION = "another function's call"
    BROKEN_ARGUMENTS = "arguments that are not JSON"
    WRONG_USAGE = "usage in words"
    NO_USAGE = "no usage"


PASSING = (
    Fault.RATE_LIMIT,
    Fault.SERVER_ERROR,
    Fault.UNAVAILABLE,
    Fault.ERROR_IN_200,
    Fault.HANG,
    Fault.TRICKLE,
    Fault.RESET,
    Fault.MALFORMED_JSON,
    Fault.HTML,
    Fault.NO_CHOICES,
)
"""Of whatever is asked: what may be better at the next attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it came: ``number`` counts from 0 in the order of arrival.

    Names of ``headers`` are in lower case.
    """

    number: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def text(self) -> str:
        """The last message's content, or the prompt."""
        if "prompt" in self.body:
            return str(self.body["prompt"])
        return str(self.body["messages"][-1]["content"])

    @property
    def function(self) -> str:
        """The forced function's name; empty if none is."""
        choice = self.body.get("tool_choice")
        return str(choice["function"]["name"]) if isinstance(choice, dict) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the judge says: ``text``, or a call with ``arguments`` (JSON text).

    ``top_logprobs`` has a mapping for each token; ``delay_s`` is waited first.
    ``refusal``: the request is refused with these words and a 400.
    """

    text: str | None = None
    arguments: str | None = None
    top_logprobs: Sequence[Mapping[str, float]] = ()
    finish_reason: str = "stop"
    num_prompt_tokens: int = 100
    num_tokens: int = 10
    delay_s: float = 0.0
    refusal: str = ""


STATUSES: Mapping[Fault, tuple[int, str, str]] = {
    Fault.RATE_LIMIT: (429, "rate_limit_exceeded", "too many requests"),
    Fault.SERVER_ERROR: (500, "server_error", "an internal error"),
    Fault.UNAVAILABLE: (503, "overloaded", "overloaded"),
    Fault.UNAUTHORIZED: (401, "invalid_api_key", "Incorrect API key provided: {key}"),
    Fault.NO_CREDIT: (402, "payment_required", "no credit is left"),
    Fault.FORBIDDEN: (403, "forbidden", "your country is not served"),
    Fault.NO_MODEL: (404, "model_not_found", "the model has been withdrawn"),
    Fault.NO_QUOTA: (429, "insufficient_quota", "you exceeded your quota"),
    Fault.BAD_REQUEST: (400, "context_length_exceeded", "the prompt is too long"),
    Fault.ERROR_IN_200: (200, "upstream_error", "the provider gave up"),
}


class StandInJudge:
    """The endpoint; a context manager.

    Args:
        rule: The right answer to a request.
        spoil: How an answer is spoilt; ``None``: it is not.
        retry_after_s: What `Fault.RATE_LIMIT` asks for.

    Attributes:
        asked: Every request in the order of arrival.
        max_in_flight: The most requests that were ever in work at once.
        unsupported: Parameters that are refused with a 400.
        models: What a list of models has, as JSON.
    """

    def __init__(
        self,
        rule: Callable[[Asked], Answer],
        *,
        spoil: Callable[[Asked], Fault | None] = lambda asked: None,
        retry_after_s: float = 1.0,
    ) -> None:
        self.rule = rule
        self.spoil = spoil
        self.retry_after_s = retry_after_s
        self.unsupported: frozenset[str] = frozenset()
        self.models: list[dict[str, Any]] = [{"id": "judge-1", "object": "model"}]
        self.asked: list[Asked] = []
        self.max_in_flight = 0
        self.over = threading.Event()
        self.lock = threading.Lock()
        self._in_flight = 0
        self._port = 0
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self.come_up()
        return self

    def __exit__(self, *error: object) -> None:
        self.go_down()

    @property
    def base_url(self) -> str:
        """The address for `JudgeConfig.base_url`."""
        return f"http://{HOST}:{self._port}/v1"

    @property
    def num_requests(self) -> int:
        """Requests that arrived."""
        return len(self.asked)

    def config(self, **fields: Any) -> JudgeConfig:
        """A config that asks here; ``fields`` override.

        Tests of `Fault.HANG` and `Fault.TRICKLE` set a short ``timeout_s``.
        """
        defaults = {
            "name": "stand_in",
            "annotator": "test",
            "model_id": "judge-1",
            "base_url": self.base_url,
            "timeout_s": 5.0,
        }
        return JudgeConfig.model_validate(defaults | fields)

    def go_down(self) -> None:
        """From now on connections are refused; those that are open are cut."""
        if self._server is not None:
            self.over.set()
            self._server.end()
            self._server = None

    def come_up(self) -> None:
        """Listens, again on the same port."""
        self.over.clear()
        self._server = _Server(self, self._port)
        self._port = self._server.server_address[1]

    def receive(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> "_Response":
        """Counts a request and makes its response."""
        with self.lock:
            asked = Asked(number=len(self.asked), body=body, headers=headers)
            self.asked.append(asked)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
            refused = sorted(self.unsupported & set(body))
            if refused:
                return _Response(_refusal(refused[0]), status=400)
            try:
                fault, answer = self.spoil(asked), self.rule(asked)
            except Exception as error:  # noqa: BLE001  the test's own rule: said in the reply
                return _Response(json.dumps({"error": {"message": repr(error)}}), status=500)
        return self._respond(asked, answer, fault)

    def leave(self) -> None:
        """A request is done with."""
        with self.lock:
            self._in_flight -= 1

    def _respond(self, asked: Asked, answer: Answer, fault: Fault | None) -> "_Response":
        if fault is not None and fault in STATUSES:
            status, code, message = STATUSES[fault]
            key = asked.headers.get("authorization", "").removeprefix("Bearer ")
            error = {"message": message.format(key=key), "code": code, "param": None}
            headers = {}
            if fault is Fault.RATE_LIMIT:
                headers["Retry-After"] = f"{self.retry_after_s:g}"
            return _Response(json.dumps({"error": error}), status=status, headers=headers)
        if answer.refusal:
            error = {"message": answer.refusal, "type": "BadRequestError", "code": "400"}
            return _Response(json.dumps({"error": error}), status=400)
        return _Response(
            json.dumps(_completion(asked, answer, fault)),
            delay_s=answer.delay_s,
            fault=fault,
        )


@dataclass(frozen=True, slots=True)
class _Response:
    body: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    fault: Fault | None = None


class _Server(ThreadingHTTPServer):
    """Listens until `end`, which also cuts the connections that are open."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, judge: StandInJudge, port: int) -> None:
        self.judge = judge
        self.connections: set[socket.socket] = set()
        super().__init__((HOST, port), _Connection)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.shutdown()
        with self.judge.lock:
            connections = list(self.connections)
        for connection in connections:
            _cut(connection)
        self.server_close()
        self._thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients that give up are part of the tests."""


class _Connection(BaseHTTPRequestHandler):
    """One connection: its requests, one after the other."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        with self.server.judge.lock:
            self.server.connections.add(self.connection)

    def finish(self) -> None:
        with self.server.judge.lock:
            self.server.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        data = json.dumps({"object": "list", "data": self.server.judge.models})
        found = self.path == "/v1/models"
        self._send(_Response(data if found else "{}", status=200 if found else 404))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        judge = self.server.judge
        response = judge.receive(
            body, {name.lower(): value for name, value in self.headers.items()}
        )
        try:
            judge.over.wait(response.delay_s)
            self._send(response)
        finally:
            judge.leave()

    def _send(self, response: _Response) -> None:
        fault, over = response.fault, self.server.judge.over
        data = response.body.encode()
        kind = "application/json"
        if fault is Fault.HANG:
            while not over.wait(0.02) and not _has_left(self.connection):
                pass
            raise ConnectionError
        if fault is Fault.HTML:
            data, kind = b"<html><body>Please sign in to this network</body></html>", "text/html"
        if fault is Fault.MALFORMED_JSON:
            data = data[: len(data) // 2]
        self.send_response(response.status)
        for name, value in {"Content-Type": kind, **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault is Fault.RESET:
            self.wfile.write(data[: len(data) // 2])
            _cut(self.connection)
            raise ConnectionError
        if fault is Fault.TRICKLE:
            for place in range(len(data)):
                self.wfile.write(data[place : place + 1])
                over.wait(0.1)
        else:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def _has_left(connection: socket.socket) -> bool:
    """Whether the client has hung up."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _cut(connection: socket.socket) -> None:
    """Ends a connection with a reset."""
    try:
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.shutdown(socket.SHUT_RD)
        connection.close()
    except OSError:
        pass  # it has ended by itself


def _refusal(parameter: str) -> str:
    error = {
        "message": f"Unsupported parameter: '{parameter}' is not supported with this model.",
        "type": "invalid_request_error",
        "param": parameter,
        "code": "unsupported_parameter",
    }
    return json.dumps({"error": error})


def _completion(asked: Asked, answer: Answer, fault: Fault | None) -> dict[str, Any]:
    usage: Any = {
        "prompt_tokens": answer.num_prompt_tokens,
        "completion_tokens": answer.num_tokens,
        "total_tokens": answer.num_prompt_tokens + answer.num_tokens,
    }
    if fault is Fault.WRONG_USAGE:
        usage = {"prompt_tokens": "many", "completion_tokens": -3}
    body = {
        "id": f"chatcmpl-{asked.number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.body.get("model"),
        "choices": [] if fault is Fault.NO_CHOICES else [_choice(asked, answer, fault)],
        "usage": usage,
    }
    if fault is Fault.NO_USAGE:
        del body["usage"]
    return body


def _choice(asked: Asked, answer: Answer, fault: Fault | None) -> dict[str, Any]:
    if "prompt" in asked.body:
        return {"index": 0, "text": answer.text, "finish_reason": answer.finish_reason}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    finish = answer.finish_reason
    if answer.arguments is not None:
        message["tool_calls"] = [_call(asked, answer.arguments, fault)]
    match fault:
        case Fault.EMPTY | Fault.LENGTH | Fault.CONTENT_FILTER:
            message = {"role": "assistant", "content": ""}
            reasons = {Fault.LENGTH: "length", Fault.CONTENT_FILTER: "content_filter"}
            finish = reasons.get(fault, "stop")
        case Fault.NULL:
            message = {"role": "assistant", "content": None}
        case Fault.REFUSAL:
            message = {"role": "assistant", "content": None, "refusal": "I cannot help with that"}
        case Fault.MALFORMED_VERDICT | Fault.NO_CALL:
            message = {"role": "assistant", "content": "That is a matter of taste."}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    if asked.body.get("logprobs") and fault is not Fault.NO_LOGPROBS:
        wanted = answer.top_logprobs
        if fault is Fault.OTHER_LOGPROBS:
            wanted = [{"the": -0.1, "a": -2.4} for _ in wanted]
        choice["logprobs"] = {"content": [_token(token) for token in wanted]}
    return choice


def _call(asked: Asked, arguments: str, fault: Fault | None) -> dict[str, Any]:
    name = "another" if fault is Fault.WRONG_FUNCTION else asked.function
    if fault is Fault.BROKEN_ARGUMENTS:
        arguments = arguments[: len(arguments) // 2]
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def _token(alternatives: Mapping[str, float]) -> dict[str, Any]:
    top = [
        {"token": token, "logprob": logprob, "bytes": list(token.encode())}
        for token, logprob in sorted(alternatives.items(), key=lambda item: -item[1])
    ]
    return {**top[0], "top_logprobs": top}
