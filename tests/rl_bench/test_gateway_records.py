"""Every call leaves one record, whatever became of it."""

import asyncio
import json
import logging
import socket
import threading
from contextlib import suppress

import httpx
import pytest
from starlette.types import Message

from rl_bench.config import Api
from rl_bench.errors import LedgerError
from rl_bench.events import DriverCall, DriverFailure
from rl_bench.gateway.account import Account
from rl_bench.gateway.relay import Relay
from rl_bench.gateway.routes import Dialect
from rl_bench.gateway.upstream import Timeouts, Upstream
from tests.rl_bench import gateway_answers as answers
from tests.rl_bench.gateway_scene import Out, Pairs, Play, Received, make_driver, scene, wait_for
from tests.rl_bench.test_gateway_bytes import JSON, broken, stream, whole

STREAM: Pairs = [("Content-Type", "text/event-stream")]


def one_call(api: Api, path: str, play: Play, *, body: bytes = b'{"model":"m1"}') -> DriverCall:
    with scene(play, api=api) as it:
        it.fetch(path, body=body)
    (call,) = it.calls
    return call


def as_json(item: object) -> Play:
    return whole(200, json.dumps(item).encode(), JSON)


@pytest.mark.parametrize(
    ("api", "path", "play", "cache_write", "cost"),
    [
        (Api.ANTHROPIC, "/v1/messages", stream(answers.MESSAGES_STREAM), 200, 0.111),
        (Api.ANTHROPIC, "/v1/messages", as_json(answers.MESSAGES_WHOLE), 200, 0.111),
        (Api.OPENAI, "/v1/responses", stream(answers.RESPONSES_STREAM), 0, 0.091),
        (Api.OPENAI, "/v1/responses", as_json(answers.RESPONSES_WHOLE), 0, 0.091),
        (Api.OPENAI, "/v1/chat/completions", stream(answers.CHAT_STREAM), 0, 0.091),
        (Api.OPENAI, "/v1/chat/completions", as_json(answers.CHAT_WHOLE), 0, 0.091),
        (
            Api.GOOGLE,
            "/v1beta/models/m1:streamGenerateContent?alt=sse",
            stream(answers.GEMINI_STREAM),
            0,
            0.091,
        ),
        (
            Api.GOOGLE,
            "/v1/models/m1:streamGenerateContent",
            as_json(answers.GEMINI_ITEMS),
            0,
            0.091,
        ),
        (
            Api.GOOGLE,
            "/v1beta/models/m1:generateContent",
            as_json(answers.GEMINI_ITEMS[1]),
            0,
            0.091,
        ),
    ],
)
def test_tokens_and_cost(api: Api, path: str, play: Play, cache_write: int, cost: float) -> None:
    call = one_call(api, path, play)
    assert (call.input_tokens, call.output_tokens, call.cached_tokens) == (3210, 40, 3000)
    assert call.cache_write_tokens == cache_write
    assert call.cost_usd == pytest.approx(cost)
    assert (call.status, call.failure, call.detail) == (200, None, "")
    assert (call.call, call.model, call.budget_used_s) == (1, "m1", 12.5)
    assert call.route == path.partition("?")[0]
    assert call.num_bytes > 0
    assert call.first_byte_s is not None
    assert 0 < call.first_byte_s <= call.latency_s


def test_a_chat_that_asked_for_no_usage_has_no_tokens_and_says_so() -> None:
    play = stream(answers.CHAT_STREAM_NO_USAGE)
    with scene(play, api=Api.OPENAI) as it:
        it.fetch("/v1/chat/completions", body=b'{"model":"m1","stream":true}')
        assert it.provider.requests[0].body == b'{"model":"m1","stream":true}'
    (call,) = it.calls
    assert (call.failure, call.input_tokens, call.cost_usd) == (None, None, None)
    assert call.detail == "its tokens are not known"
    assert it.gateway.summary().num_without_tokens == 1
    assert it.gateway.summary().num_whole == 1


def error(kind: str = "", message: str = "", **more: object) -> dict[str, object]:
    return {"error": {"type": kind, "message": message, **more}}


KINDS: list[tuple[int, object, DriverFailure]] = [
    (401, error("authentication_error", "invalid x-api-key"), DriverFailure.AUTH),
    (403, error("permission_error"), DriverFailure.AUTH),
    (400, error(message="API key not valid.", status="INVALID_ARGUMENT"), DriverFailure.AUTH),
    (402, {}, DriverFailure.BILLING),
    (400, error(message="Your credit balance is too low"), DriverFailure.BILLING),
    (429, error(code="insufficient_quota"), DriverFailure.BILLING),
    (429, error("rate_limit_error"), DriverFailure.RATE_LIMITED),
    (429, error(message="You exceeded your current quota"), DriverFailure.RATE_LIMITED),
    (400, error("invalid_request_error"), DriverFailure.BAD_REQUEST),
    (404, error(code="model_not_found"), DriverFailure.BAD_REQUEST),
    (413, {}, DriverFailure.BAD_REQUEST),
    (408, {}, DriverFailure.TIMEOUT),
    (500, [], DriverFailure.SERVER_ERROR),
    (503, error(message="enable billing for more"), DriverFailure.SERVER_ERROR),
    (529, error("overloaded_error", "Overloaded"), DriverFailure.SERVER_ERROR),
]


def test_kinds_of_failure() -> None:
    async def play(request: Received, out: Out) -> None:
        status, body, _ = KINDS[len(it.provider.requests) - 1]
        await out.whole(status, JSON, json.dumps(body).encode())

    with scene(play) as it:
        for _ in KINDS:
            it.fetch("/v1/messages")
    got = [(call.status, call.failure) for call in it.calls]
    assert got == [(status, failure) for status, _, failure in KINDS]
    assert {call.cost_usd for call in it.calls} == {None}


def failed(code: str) -> dict[str, object]:
    problem = {"code": code, "message": "no"}
    return {"type": "response.failed", "response": {"status": "failed", "error": problem}}


def anthropic_error(kind: str) -> dict[str, object]:
    return {"type": "error", **error(kind, "no")}


MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
GEMINI = answers.path_of(Api.GOOGLE)
BUSY = error(message="busy", code=429, status="RESOURCE_EXHAUSTED")
IN_STREAM: list[tuple[Api, str, dict[str, object], DriverFailure]] = [
    (Api.ANTHROPIC, MESSAGES, anthropic_error("overloaded_error"), DriverFailure.SERVER_ERROR),
    (Api.ANTHROPIC, MESSAGES, anthropic_error("rate_limit_error"), DriverFailure.RATE_LIMITED),
    (Api.ANTHROPIC, MESSAGES, anthropic_error("timeout_error"), DriverFailure.TIMEOUT),
    (Api.OPENAI, RESPONSES, failed("server_error"), DriverFailure.SERVER_ERROR),
    (Api.OPENAI, RESPONSES, failed("insufficient_quota"), DriverFailure.BILLING),
    (Api.OPENAI, RESPONSES, failed("rate_limit_exceeded"), DriverFailure.RATE_LIMITED),
    (Api.OPENAI, RESPONSES, failed("invalid_prompt"), DriverFailure.BAD_REQUEST),
    (Api.OPENAI, RESPONSES, {"type": "error", "message": "x"}, DriverFailure.SERVER_ERROR),
    (Api.OPENAI, CHAT, error(message="it is down", code=502), DriverFailure.SERVER_ERROR),
    (Api.GOOGLE, GEMINI, BUSY, DriverFailure.RATE_LIMITED),
]


@pytest.mark.parametrize("api", list(Api))
def test_an_error_within_a_stream_is_a_failure(api: Api) -> None:
    cases = [case for case in IN_STREAM if case[0] is api]

    async def play(request: Received, out: Out) -> None:
        await out.stream([answers.event(cases[len(it.provider.requests) - 1][2])])

    with scene(play, api=api) as it:
        for _, path, _, _ in cases:
            it.fetch(path)
    assert [call.failure for call in it.calls] == [failure for *_, failure in cases]
    assert {call.status for call in it.calls} == {200}
    assert all(call.detail for call in it.calls)


def test_a_stream_without_its_own_end_was_cut() -> None:
    call = one_call(Api.ANTHROPIC, "/v1/messages", stream(answers.MESSAGES_STREAM[:2]))
    assert call.failure is DriverFailure.CUT
    assert "before the answer did" in call.detail
    # What was told before is kept: a lower bound.
    assert (call.input_tokens, call.output_tokens) == (3210, None)
    assert call.cost_usd == pytest.approx(0.071)


def test_a_break_after_the_answers_own_end_is_none() -> None:
    call = one_call(Api.ANTHROPIC, "/v1/messages", broken(answers.MESSAGES_STREAM))
    assert (call.failure, call.output_tokens) == (None, 40)


def test_a_json_answer_that_breaks_off_was_cut() -> None:
    async def play(request: Received, out: Out) -> None:
        await out.head(200, JSON, length=1000)
        await out.body(b'{"type": "message", "usage": {"input_tokens": 1')
        out.cut()

    call = one_call(Api.ANTHROPIC, "/v1/messages", play)
    assert (call.failure, call.input_tokens) == (DriverFailure.CUT, None)


def test_a_connection_closed_without_an_answer() -> None:
    async def play(request: Received, out: Out) -> None:
        out.cut()

    with scene(play) as it:
        got = it.fetch("/v1/messages")
    assert (got.status, json.loads(got.body)["error"]["type"]) == (502, "api_error")
    assert (it.calls[0].status, it.calls[0].failure) == (502, DriverFailure.CUT)


def test_a_provider_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with scene(as_json({}), api=Api.GOOGLE, base_url=url) as it:
        got = it.fetch("/v1beta/models/m1:generateContent")
    assert (got.status, json.loads(got.body)["error"]["status"]) == (502, "UNAVAILABLE")
    assert (it.calls[0].status, it.calls[0].failure) == (502, DriverFailure.UNREACHABLE)


def test_a_provider_that_says_nothing() -> None:
    async def play(request: Received, out: Out) -> None:
        await out.wait(threading.Event())

    with scene(play, api=Api.OPENAI, timeouts=Timeouts(idle_s=0.2)) as it:
        got = it.fetch("/v1/responses")
    assert (got.status, json.loads(got.body)["error"]["code"]) == (504, "gateway_timeout")
    assert (it.calls[0].status, it.calls[0].failure) == (504, DriverFailure.TIMEOUT)
    assert it.calls[0].detail == "no byte for 0.2 s"


def test_a_stream_that_falls_silent() -> None:
    async def play(request: Received, out: Out) -> None:
        await out.head(200, STREAM)
        await out.body(answers.MESSAGES_STREAM[0])
        await out.wait(threading.Event())

    with scene(play, timeouts=Timeouts(idle_s=0.2)) as it:
        got = it.fetch("/v1/messages")
    assert (got.status, got.is_whole, got.body) == (200, False, answers.MESSAGES_STREAM[0])
    assert it.calls[0].failure is DriverFailure.TIMEOUT


@pytest.mark.parametrize("begins", [False, True])
def test_an_agent_that_hangs_up_ends_the_call_upstream(begins: bool) -> None:
    outs: list[Out] = []

    async def play(request: Received, out: Out) -> None:
        outs.append(out)
        if begins:
            await out.head(200, STREAM)
            await out.body(answers.MESSAGES_STREAM[0])
        await out.wait(threading.Event())

    with scene(play) as it:
        url = httpx.URL(it.url)
        request = (
            f"POST {url.path}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        with socket.create_connection((url.host, url.port or 0)) as wire:
            wire.sendall(request.encode())
            wait_for(lambda: bool(outs))
            got = b""
            while begins and answers.MESSAGES_STREAM[0] not in got:
                piece = wire.recv(65536)
                assert piece, got
                got += piece
        assert outs[0].was_left.wait(10)
        (call,) = it.wait_for_calls(1)
    assert call.failure is DriverFailure.HUNG_UP
    assert call.status == (200 if begins else 0)
    assert call.input_tokens == (3210 if begins else None)
    assert it.gateway.summary().last_failure is None


def test_an_agent_that_leaves_at_the_answers_own_end_had_a_whole_one() -> None:
    async def play(request: Received, out: Out) -> None:
        await out.head(200, STREAM)
        for piece in answers.MESSAGES_STREAM:
            await out.body(piece)
        await out.wait(threading.Event())

    with scene(play) as it, httpx.Client() as client:
        with client.stream("POST", f"{it.url}/v1/messages", json={"model": "m1"}) as answer:
            got = b""
            for piece in answer.iter_raw():
                got += piece
                if b"message_stop" in got:
                    break
        (call,) = it.wait_for_calls(1)
    assert (call.failure, call.detail, call.output_tokens) == (None, "", 40)


def test_an_agent_that_leaves_with_the_last_byte_of_a_known_length_had_a_whole_answer() -> None:
    """It may be gone before the server hears that there is no more."""
    body = b'{"data": []}'
    account = Account(
        make_driver(Api.ANTHROPIC),
        max_calls=None,
        max_usd=None,
        on_call=lambda call: None,
        on_capped=lambda reason: None,
    )
    call = account.arrive(Api.ANTHROPIC, route="/v1/models", budget_used_s=0)

    async def send(message: Message) -> None:
        if message.get("body"):
            call.hang_up()
            raise asyncio.CancelledError

    async def leave() -> None:
        headers = [("content-length", str(len(body))), ("content-type", "application/json")]
        answer = httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))
        upstream = Upstream(Api.ANTHROPIC, "http://x", key="", timeouts=Timeouts())
        relay = Relay(call, answer, Dialect.MESSAGES, upstream=upstream, account=account)
        with pytest.raises(asyncio.CancelledError):
            await relay.run(send)

    asyncio.run(leave())
    account.close()
    assert call.failure is None
    assert call.num_bytes == len(body)


def test_an_agent_that_leaves_while_it_asks() -> None:
    with scene(as_json({})) as it:
        url = httpx.URL(it.url)
        head = f"POST {url.path}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{{"
        with socket.create_connection((url.host, url.port or 0)) as wire:
            wire.sendall(head.encode())
            wait_for(lambda: it.gateway.summary().num_calls == 1)
        it.wait_for_calls(1)
        assert it.provider.requests == []
    assert it.calls[0].failure is DriverFailure.HUNG_UP


def test_calls_under_way_at_the_runs_end_are_recorded() -> None:
    begun = threading.Semaphore(0)

    async def play(request: Received, out: Out) -> None:
        begun.release()
        await out.wait(threading.Event())

    with scene(play) as it:
        threads = [threading.Thread(target=ask, args=(it.url,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=10)
    for thread in threads:
        thread.join(10)
    assert [(c.failure, c.detail) for c in it.calls] == [
        (DriverFailure.HUNG_UP, "the run ended")
    ] * 3


def ask(url: str) -> None:
    with suppress(httpx.HTTPError):
        httpx.post(f"{url}/v1/messages", json={"model": "m1"}, timeout=20)


LONG = b"x" * (9 * 1024 * 1024)


UNREADABLE: list[list[bytes]] = [
    [b"\x00\xff: not at all\n\n", b"data: {\n\n"],
    [b"data: [[[" + b"[" * 200_000 + b"\n\n"],
    [b"data: " + LONG + b"\n\n"],
    [b"data: x\n", b"data: " + LONG[: len(LONG) // 2] + b"\n", b"data: " + LONG + b"\n\n"],
    [answers.event({"type": "message_start", "message": {"usage": {"input_tokens": "9"}}})],
    [answers.event({"type": ["?"], "message": None, "usage": 3, "error": {}})],
]


def test_what_cannot_be_read_comes_through_and_is_not_known() -> None:
    async def play(request: Received, out: Out) -> None:
        await out.stream(UNREADABLE[len(it.provider.requests) - 1])

    with scene(play) as it:
        for pieces in UNREADABLE:
            got = it.fetch("/v1/messages")
            assert got.is_whole
            assert got.body == b"".join(pieces)
    for call in it.calls:
        assert (call.input_tokens, call.cost_usd) == (None, None)
        assert "tokens are not known" in call.detail


NOT_INFLATED = [("br", b"\x0b\x02"), ("gzip", b"no gzip"), ("deflate", LONG)]


def test_what_cannot_be_inflated_comes_through() -> None:
    async def play(request: Received, out: Out) -> None:
        encoding, body = NOT_INFLATED[len(it.provider.requests) - 1]
        await out.whole(200, [*JSON, ("Content-Encoding", encoding)], body)

    with scene(play) as it:
        for _, body in NOT_INFLATED:
            assert it.fetch("/v1/messages").body == body
    assert [(call.failure, call.input_tokens) for call in it.calls] == [(None, None)] * 3


def test_names_that_a_ledger_cannot_hold_are_made_plain() -> None:
    body = json.dumps({"model": "m\ud800\n" + "x" * 500}).encode()
    call = one_call(Api.ANTHROPIC, "/v1/messages", as_json(answers.MESSAGES_WHOLE), body=body)
    assert call.model.startswith("m? xxx")
    assert len(call.model) == 200
    call.model_dump_json()
    assert "another model than m1" in call.detail


def test_counting_tokens_and_listing_models_cost_nothing() -> None:
    with scene(as_json({"input_tokens": 5})) as it:
        it.fetch("/v1/messages/count_tokens", body=b'{"model":"m1"}')
        assert httpx.get(f"{it.url}/v1/models?limit=2").json() == {"input_tokens": 5}
        assert it.provider.requests[1].target == "/v1/models?limit=2"
        assert it.provider.requests[1].header("content-length") is None
    assert [(c.cost_usd, c.input_tokens, c.failure) for c in it.calls] == [(0.0, None, None)] * 2
    assert it.gateway.summary().num_whole == 0


def test_the_summary() -> None:
    turns = iter([stream(answers.MESSAGES_STREAM), whole(529, b"", JSON), whole(401, b"", JSON)])

    async def play(request: Received, out: Out) -> None:
        await next(turns)(request, out)

    with scene(play) as it:
        for _ in range(3):
            it.fetch("/v1/messages")
        it.fetch("/v1/files")
    summary = it.gateway.summary()
    assert (summary.num_calls, summary.num_forwarded, summary.num_whole) == (4, 3, 1)
    assert (summary.last_failure, summary.num_failed_in_a_row) == (DriverFailure.AUTH, 2)
    assert summary.failures == {
        DriverFailure.SERVER_ERROR: 1,
        DriverFailure.AUTH: 1,
        DriverFailure.REFUSED: 1,
    }
    assert (summary.input_tokens, summary.output_tokens) == (3210, 40)
    assert (summary.cached_tokens, summary.cache_write_tokens) == (3000, 200)
    assert summary.cost_usd == pytest.approx(0.111)
    assert not summary.is_capped


def test_what_an_agent_asks_of_another_model_is_no_outage_of_its_driver() -> None:
    """Else a run that went badly could end as one that is made again and never counts."""
    turns = iter([stream(answers.MESSAGES_STREAM), whole(403, b"", JSON), whole(429, b"", JSON)])

    async def play(request: Received, out: Out) -> None:
        await next(turns)(request, out)

    with scene(play) as it:
        it.fetch("/v1/messages")
        for _ in range(2):
            it.fetch("/v1/messages", body=b'{"model": "another", "messages": []}')
    summary = it.gateway.summary()
    assert (summary.last_failure, summary.num_failed_in_a_row) == (None, 0)
    assert summary.failures == {DriverFailure.AUTH: 1, DriverFailure.RATE_LIMITED: 1}


def test_a_ledger_that_takes_nothing_stops_no_call(caplog: pytest.LogCaptureFixture) -> None:
    def full(call: DriverCall) -> None:
        raise LedgerError("the disk is full")

    with caplog.at_level(logging.ERROR), scene(as_json({}), on_call=full) as it:
        assert [it.fetch("/v1/messages").status for _ in range(2)] == [200, 200]
    assert it.gateway.summary().num_unrecorded == 2
    assert "the disk is full" in caplog.text
