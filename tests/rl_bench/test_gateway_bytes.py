"""What an agent gets through the gateway is what the provider sent, when it sent it."""

import gzip
import hashlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import h11
import httpx
import pytest

from rl_bench.config import Api
from rl_bench.events import DriverFailure
from tests.rl_bench import gateway_answers as answers
from tests.rl_bench.gateway_scene import (
    LIMIT_S,
    Got,
    Out,
    Pairs,
    Play,
    Received,
    fetch,
    scene,
    wait_for,
)

JSON: Pairs = [("Content-Type", "application/json")]
ODD: Pairs = [
    ("content-TYPE", "text/event-stream; charset=utf-8"),
    ("Set-Cookie", "a=1"),
    ("Set-Cookie", "b=2"),
    ("request-id", "req_1"),
    ("X-Empty", ""),
    ("Connection", "X-Hop"),
    ("X-Hop", "of this connection only"),
]


def whole(status: int, body: bytes, headers: Pairs) -> Play:
    async def play(request: Received, out: Out) -> None:
        await out.whole(status, headers, body)

    return play


def stream(pieces: list[bytes], headers: Pairs | None = None) -> Play:
    async def play(request: Received, out: Out) -> None:
        await out.stream(pieces, headers=headers)

    return play


def broken(pieces: list[bytes], *, length: int | None = None) -> Play:
    async def play(request: Received, out: Out) -> None:
        await out.head(200, [("Content-Type", "text/event-stream")], length=length)
        for piece in pieces:
            await out.body(piece)
        out.cut()

    return play


def both(api: Api, play: Play, *, path: str = "") -> tuple[Got, Got]:
    """The answer without the gateway, and with it."""
    path = path or answers.path_of(api)
    with scene(play, api=api) as it:
        return fetch(it.provider.url, path), it.fetch(path)


@pytest.mark.parametrize(
    ("api", "path", "pieces"),
    [
        (Api.ANTHROPIC, "/v1/messages?beta=true", answers.MESSAGES_STREAM),
        (Api.OPENAI, "/v1/responses", answers.RESPONSES_STREAM),
        (Api.OPENAI, "/v1/chat/completions", answers.CHAT_STREAM),
        (Api.GOOGLE, "/v1beta/models/m1:streamGenerateContent?alt=sse", answers.GEMINI_STREAM),
    ],
)
def test_streams_come_through_byte_for_byte(api: Api, path: str, pieces: list[bytes]) -> None:
    direct, through = both(api, stream(pieces, ODD), path=path)
    assert through == direct
    assert through.is_whole
    assert through.body == b"".join(pieces)


def test_answers_of_every_status_come_through() -> None:
    headers = [*JSON, ("Retry-After", "17"), ("x-should-retry", "true")]
    body = b'{"type": "error",\n "error": {"type": "x", "message": "\xc3\xa9\x00\xff"}}'

    async def play(request: Received, out: Out) -> None:
        await out.whole(int(request.body), headers, body)

    with scene(play) as it:
        for status in (200, 400, 401, 402, 403, 404, 413, 429, 500, 503, 529):
            asked = str(status).encode()
            through = it.fetch("/v1/messages", body=asked)
            assert through == fetch(it.provider.url, "/v1/messages", body=asked)
            assert (through.status, through.body) == (status, body)
            assert through.header("retry-after") == "17"


def test_redirects_are_not_followed() -> None:
    play = whole(307, b"", [("Location", "http://127.0.0.1:1/elsewhere")])
    with scene(play) as it:
        direct = fetch(it.provider.url, "/v1/messages")
        assert it.fetch("/v1/messages") == direct
        assert len(it.provider.requests) == 2
    assert it.calls[0].failure is DriverFailure.UNREACHABLE
    assert it.calls[0].detail == "to http://127.0.0.1:1/elsewhere"


def test_an_answer_that_is_compressed_all_the_same_comes_through_and_is_read() -> None:
    body = gzip.compress(json.dumps(answers.MESSAGES_WHOLE).encode())
    with scene(whole(200, body, [*JSON, ("Content-Encoding", "gzip")])) as it:
        direct = fetch(it.provider.url, "/v1/messages")
        through = it.fetch("/v1/messages", headers=[("Accept-Encoding", "gzip, br")])
        assert it.provider.requests[1].header("accept-encoding") == "identity"
    assert through == direct
    assert through.body == body
    assert it.calls[0].input_tokens == 3210


@pytest.mark.parametrize("length", [None, 100_000])
def test_an_answer_that_breaks_off_breaks_off(
    length: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with scene(broken(answers.MESSAGES_STREAM[:2], length=length)) as it:
        direct = fetch(it.provider.url, "/v1/messages")
        through = it.fetch("/v1/messages")
    assert through == direct
    assert not through.is_whole
    assert through.body == b"".join(answers.MESSAGES_STREAM[:2])
    (call,) = it.calls
    assert (call.failure, call.status) == (DriverFailure.CUT, 200)
    assert caplog.records == []


def test_large_requests_arrive_byte_for_byte() -> None:
    body = b'{"model": "m1", "image": "' + b"\x00\xff-aZ" * (6 * 1024 * 1024) + b'"}'

    async def play(request: Received, out: Out) -> None:
        await out.whole(200, JSON, hashlib.sha256(request.body).hexdigest().encode())

    with scene(play) as it:
        sent: Pairs = [
            ("Content-Type", "application/json"),
            ("anthropic-beta", "a,b"),
            ("User-Agent", "claude-cli/2 (x)"),
        ]
        got = it.fetch("/v1/messages?beta=true&x=%2F+", body=body, headers=sent)
        (request,) = it.provider.requests
    assert got.body.decode() == hashlib.sha256(body).hexdigest()
    assert request.target == "/v1/messages?beta=true&x=%2F+"
    assert request.header("content-length") == str(len(body))
    assert [request.header(name.lower()) for name, _ in sent] == [value for _, value in sent]
    names = {name.lower() for name, _ in request.headers}
    assert names == {
        b"host",
        b"content-type",
        b"anthropic-beta",
        b"user-agent",
        b"accept-encoding",
        b"x-api-key",
        b"content-length",
    }


def test_no_byte_waits_for_the_next() -> None:
    """The provider sends each piece only when the agent has the one before."""
    steps = [threading.Event() for _ in answers.MESSAGES_STREAM]

    async def play(request: Received, out: Out) -> None:
        await out.head(200, [("Content-Type", "text/event-stream")])
        for step, piece in zip(steps, answers.MESSAGES_STREAM, strict=True):
            await out.wait(step)
            await out.body(piece)
        await out.end()

    with (
        scene(play) as it,
        httpx.stream(
            "POST", f"{it.url}/v1/messages", json={"model": "m1"}, timeout=LIMIT_S
        ) as answer,
    ):
        assert answer.status_code == 200  # before any byte of the body
        pieces = answer.iter_raw()
        for step, piece in zip(steps, answers.MESSAGES_STREAM, strict=True):
            step.set()
            got = b""
            while len(got) < len(piece):
                got += next(pieces)
            assert got == piece
        assert list(pieces) == []
    assert it.calls[0].failure is None


def test_a_slow_reader_slows_the_provider() -> None:
    piece = b"x" * 65536
    outs: list[Out] = []

    async def play(request: Received, out: Out) -> None:
        outs.append(out)
        await out.stream([piece] * 1600)

    with scene(play) as it:
        url = httpx.URL(it.url)
        request = (
            f"POST {url.path}/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        with socket.create_connection((url.host, url.port or 0), timeout=LIMIT_S) as wire:
            wire.sendall(request.encode())
            wait_for(lambda: bool(outs) and outs[0].num_bytes > 0)
            before = -1
            while outs[0].num_bytes != before:
                before = outs[0].num_bytes
                time.sleep(0.3)
            assert before < 50 * 1024 * 1024
            connection = h11.Connection(h11.CLIENT)
            connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
            connection.send(h11.EndOfMessage())
            total = 0
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(wire.recv(1 << 20))
                elif isinstance(event, h11.Data):
                    total += len(event.data)
    assert total == 1600 * len(piece)


def test_fifty_streams_at_once_keep_apart() -> None:
    """None may end before all have begun: were one held up by another, none would end."""
    number = 50
    go = threading.Event()
    num_begun = 0

    async def play(request: Received, out: Out) -> None:
        nonlocal num_begun
        await out.head(200, [("Content-Type", "text/event-stream")])
        await out.body(answers.MESSAGES_STREAM[0])
        num_begun += 1
        if num_begun == number:
            go.set()
        await out.wait(go)
        await out.body(b": " + request.body + b"\n\n")
        for piece in answers.MESSAGES_STREAM[1:]:
            await out.body(piece)
        await out.end()

    with scene(play) as it, ThreadPoolExecutor(number) as pool:
        bodies = [json.dumps({"model": "m1", "n": n}).encode() for n in range(number)]
        got = list(pool.map(lambda body: it.fetch("/v1/messages", body=body), bodies))
    first, *rest = answers.MESSAGES_STREAM
    expected = [first + b": " + body + b"\n\n" + b"".join(rest) for body in bodies]
    assert [each.body for each in got] == expected
    assert {call.failure for call in it.calls} == {None}
    assert sorted(call.call for call in it.calls) == list(range(1, number + 1))
    assert sum(call.output_tokens or 0 for call in it.calls) == 40 * number
