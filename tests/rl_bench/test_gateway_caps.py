"""What is not let through: other routes, other models, calls beyond the caps."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from rl_bench.config import Api
from rl_bench.events import DriverFailure
from rl_bench.gateway.account import MAX_RECORDED_FREE, Account
from tests.rl_bench import gateway_answers as answers
from tests.rl_bench.gateway_scene import (
    DUMMY,
    LIMIT_S,
    Got,
    Out,
    Received,
    fetch,
    make_driver,
    scene,
)
from tests.rl_bench.test_gateway_bytes import JSON, stream, whole

OK = whole(200, json.dumps(answers.MESSAGES_WHOLE).encode(), JSON)


def error_of(api: Api, got: Got) -> dict[str, object]:
    """The error, of the provider's own shape."""
    item = json.loads(got.body)
    assert got.header("content-type") == "application/json"
    if api is Api.ANTHROPIC:
        assert item["type"] == "error"
        assert set(item["error"]) == {"type", "message"}
    elif api is Api.OPENAI:
        assert set(item["error"]) == {"message", "type", "param", "code"}
    else:
        assert set(item["error"]) == {"code", "message", "status"}
        assert item["error"]["code"] == got.status
    error = item["error"]
    assert isinstance(error, dict)
    return error


OTHERS = {
    Api.ANTHROPIC: [
        "",
        "/",
        "/v1/files",
        "/v1/messages/batches",
        "/v1/messages/",
        "/v1/messages/../files",
        "/v1/models/../files",
        "/v1/models/..%2ffiles",
        "/v1/%6dessages",
        "//v1/messages",
        "/v1/responses",
    ],
    Api.OPENAI: [
        "/v1/files",
        "/v1/fine_tuning/jobs",
        "/v1/batches",
        "/v1/responses/resp_1/cancel",
        "/responses",
        "/v1/models",  # to make one
    ],
    Api.GOOGLE: [
        "/v1beta/models/m1:batchGenerateContent",
        "/v1beta/models/m1:embedContent",
        "/v1beta/models/a/b:generateContent",
        "/v1beta/tunedModels/m1:generateContent",
        "/upload/v1beta/files",
        "/v1beta/cachedContents",
    ],
}


@pytest.mark.parametrize("api", list(Api))
def test_other_routes_are_refused(api: Api) -> None:
    with scene(OK, api=api) as it:
        for path in OTHERS[api]:
            got = it.fetch(path, body=b"x" * 300_000)
            assert got.status == 404
            assert error_of(api, got)["message"]
        assert it.provider.requests == []
    assert [call.route for call in it.calls] == [path or "/" for path in OTHERS[api]]
    assert {call.failure for call in it.calls} == {DriverFailure.REFUSED}
    assert {call.status for call in it.calls} == {404}
    assert not it.gateway.summary().is_capped


def test_other_methods_are_refused() -> None:
    methods = ("DELETE", "PUT", "GET", "PATCH", "OPTIONS", "HEAD")
    with scene(OK) as it:
        for method in methods:
            assert httpx.request(method, f"{it.url}/v1/messages").status_code == 404
        assert it.provider.requests == []
    assert [call.failure for call in it.calls] == [DriverFailure.REFUSED] * len(methods)


@pytest.mark.parametrize("api", list(Api))
def test_a_path_leads_out_of_the_models_nowhere(api: Api) -> None:
    with scene(OK, api=api) as it:
        for path in ("/v1/models/../files", "/v1/models/a/../../files", "/v1/models/.."):
            assert fetch(it.url, path, method="GET").status == 404
        assert it.provider.requests == []


def test_a_greeting_is_no_attempt_at_anything() -> None:
    with scene(OK) as it:
        assert httpx.head(it.url).status_code == 404
        assert httpx.head(f"{it.url}/").status_code == 404
        assert it.provider.requests == []
    assert it.calls == []


def test_another_token_finds_nothing() -> None:
    with scene(OK) as it:
        root = it.url.rpartition("/")[0]
        statuses = [
            fetch(root, path).status
            for path in (
                "/v1/messages",
                "/x/v1/messages",
                f"{httpx.URL(it.url).path[:-1]}/v1/messages",
            )
        ]
        assert it.provider.requests == []
    assert statuses == [404, 404, 404]
    assert it.calls == []


@pytest.mark.parametrize("api", list(Api))
def test_another_model_is_refused_where_the_driver_says_so(api: Api) -> None:
    path = answers.path_of(api)
    other = path.replace("m1", "m2")
    with scene(OK, api=api, other_models="refuse") as it:
        assert it.fetch(path, body=b'{"model": "m1"}').status == 200
        got = it.fetch(other, body=b'{"model": "m2"}')
        assert len(it.provider.requests) == 1
    assert got.status == 403
    assert "m1" in str(error_of(api, got)["message"])
    assert it.calls[1].failure is DriverFailure.REFUSED
    assert it.calls[1].model == "m2"


def test_a_model_that_cannot_be_read_is_another() -> None:
    with scene(OK, other_models="refuse") as it:
        assert it.fetch("/v1/messages", body=b"\x1f\x8b").status == 403
        assert it.fetch("/v1/messages/count_tokens", body=b'{"model": 5}').status == 403
        assert it.provider.requests == []


def test_another_model_is_recorded_otherwise() -> None:
    with scene(OK) as it:
        assert it.fetch("/v1/messages", body=b'{"model": "m2"}').status == 200
    assert (it.calls[0].model, it.calls[0].failure) == ("m2", None)
    assert it.calls[0].detail == "another model than m1, reckoned at its prices"


def test_fifty_calls_at_once_do_not_overshoot_the_cap() -> None:
    """The first ten wait until all fifty have been answered or are under way."""
    cap, number = 10, 50
    go = threading.Event()

    async def play(request: Received, out: Out) -> None:
        await out.wait(go)
        await out.stream(answers.MESSAGES_STREAM)

    with scene(play, max_calls=cap) as it, ThreadPoolExecutor(number) as pool:
        asked = [pool.submit(it.fetch, "/v1/messages") for _ in range(number)]
        it.wait_for_calls(number - cap)
        go.set()
        statuses = sorted(each.result().status for each in asked)
        assert len(it.provider.requests) == cap
    assert statuses == [200] * cap + [400] * (number - cap)
    failures = [call.failure for call in it.calls]
    assert failures.count(DriverFailure.CAPPED) == number - cap
    assert failures.count(None) == cap
    assert it.capped == [
        f"the cap of {cap} calls of the language model is reached (max_driver_calls)"
    ]
    assert it.gateway.summary().is_capped


@pytest.mark.parametrize("api", list(Api))
def test_a_reached_cap_is_an_error_that_is_final(api: Api) -> None:
    with scene(OK, api=api, max_calls=1) as it:
        it.fetch(answers.path_of(api))
        assert it.capped == []
        got = it.fetch(answers.path_of(api))
    assert got.status == 400
    assert got.header("x-should-retry") == "false"
    assert "max_driver_calls" in str(error_of(api, got)["message"])
    assert it.calls[1].failure is DriverFailure.CAPPED
    assert it.calls[1].cost_usd is None


def test_the_cap_of_cost() -> None:
    with scene(OK, max_usd=0.2) as it:  # 0.111 a call
        statuses = [it.fetch("/v1/messages").status for _ in range(4)]
        assert len(it.provider.requests) == 2
    assert statuses == [200, 200, 400, 400]
    assert it.capped == ["0.2 US dollars were spent on the language model (max_driver_usd)"]


def test_what_a_stream_cost_counts_from_its_own_end_on() -> None:
    """The provider keeps the connection open after the last event: the cap holds all the same."""
    done = threading.Event()

    async def play(request: Received, out: Out) -> None:
        await out.head(200, [("Content-Type", "text/event-stream")])
        for event in answers.MESSAGES_STREAM:
            await out.body(event)
        await out.wait(done)
        await out.end()

    with scene(play, max_usd=0.1) as it:
        ask = {"model": "m1"}
        with httpx.stream("POST", f"{it.url}/v1/messages", json=ask, timeout=LIMIT_S) as first:
            got = b""
            pieces = first.iter_raw()
            while b"message_stop" not in got:
                got += next(pieces)
            assert it.fetch("/v1/messages").status == 400
            done.set()
            assert list(pieces) == []
    assert [call.failure for call in it.calls] == [None, DriverFailure.CAPPED]
    assert it.gateway.summary().cost_usd == pytest.approx(0.111)


def test_a_client_does_not_ask_again_beyond_a_cap() -> None:
    with scene(stream(answers.RESPONSES_STREAM), api=Api.OPENAI, max_calls=1) as it:
        client = openai.OpenAI(base_url=f"{it.url}/v1", api_key=DUMMY, max_retries=3)
        list(client.responses.create(model="m1", input="x", stream=True))
        with pytest.raises(openai.BadRequestError, match="max_driver_calls"):
            client.responses.create(model="m1", input="x")
        client.close()
    assert [call.failure for call in it.calls] == [None, DriverFailure.CAPPED]


@pytest.mark.parametrize("kind", [DriverFailure.REFUSED, DriverFailure.HUNG_UP, None])
def test_calls_that_cost_nothing_do_not_fill_the_ledger(kind: DriverFailure | None) -> None:
    calls: list[object] = []
    account = Account(
        make_driver(Api.OPENAI),
        max_calls=None,
        max_usd=None,
        on_call=calls.append,
        on_capped=calls.append,
    )
    for _ in range(MAX_RECORDED_FREE + 50):
        call = account.arrive(Api.OPENAI, route="/v1/models", budget_used_s=0)
        if kind is not None:
            call.fail(kind)
        account.end(call)
    last = account.arrive(Api.OPENAI, route="/v1/responses", budget_used_s=0)
    last.fail(DriverFailure.CAPPED)  # another kind is not hidden by them
    account.end(last)
    account.close()
    assert len(calls) == MAX_RECORDED_FREE + 1
    assert account.summary().num_calls == MAX_RECORDED_FREE + 51


def test_a_request_that_is_too_large_is_not_read() -> None:
    with scene(OK) as it:
        url = httpx.URL(it.url)
        head = (
            f"POST {url.path}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 30}\r\n\r\n"
        )
        with socket.create_connection((url.host, url.port or 0), timeout=LIMIT_S) as wire:
            wire.sendall(head.encode())
            got = wire.recv(65536)
        (call,) = it.wait_for_calls(1)
        assert it.provider.requests == []
    assert got.startswith(b"HTTP/1.1 413 ")
    assert (call.failure, call.status) == (DriverFailure.BAD_REQUEST, 413)
