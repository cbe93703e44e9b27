"""The real key goes up, the agent's dummy does not, and nothing of the real one comes down."""

import copy
import itertools
import json
import logging
import pickle
from dataclasses import asdict

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_bench.config import Api
from rl_bench.errors import DriverError
from rl_bench.events import DriverFailure
from rl_bench.gateway.secret import KeyFilter, Secret
from tests.rl_bench import gateway_answers as answers
from tests.rl_bench.gateway_scene import DUMMY, KEY, Out, Pairs, Received, scene
from tests.rl_bench.test_gateway_bytes import JSON, stream, whole

PIECES = [KEY[:9], KEY[9:], KEY[-4:], "NEVER-SHOWN"]


@pytest.mark.parametrize(
    ("api", "path", "sent", "expected"),
    [
        (Api.ANTHROPIC, "/v1/messages", ("X-Api-Key", DUMMY), ("x-api-key", KEY)),
        (
            Api.ANTHROPIC,
            "/v1/messages",
            ("Authorization", f"Bearer {DUMMY}"),
            ("authorization", f"Bearer {KEY}"),
        ),
        (
            Api.OPENAI,
            "/v1/responses",
            ("authorization", f"Bearer {DUMMY}"),
            ("authorization", f"Bearer {KEY}"),
        ),
        (
            Api.OPENAI,
            "/v1/chat/completions",
            ("api-key", DUMMY),
            ("authorization", f"Bearer {KEY}"),
        ),
        (
            Api.GOOGLE,
            "/v1beta/models/m1:generateContent",
            ("x-goog-api-key", DUMMY),
            ("x-goog-api-key", KEY),
        ),
        (
            Api.GOOGLE,
            f"/v1beta/models/m1:generateContent?alt=sse&key={DUMMY}&%6bey={DUMMY}&x=1",
            ("Accept", "*/*"),
            ("x-goog-api-key", KEY),
        ),
    ],
)
def test_the_key_takes_the_place_of_the_dummy(
    api: Api, path: str, sent: tuple[str, str], expected: tuple[str, str]
) -> None:
    with scene(whole(200, b"{}", JSON), api=api) as it:
        it.fetch(path, headers=[sent])
        it.fetch(path)
    name, value = expected
    for request in it.provider.requests[:1] if "Bearer" in sent[1] else it.provider.requests:
        assert request.header(name) == value
        assert sum(KEY.encode() in v for _, v in request.headers) == 1
    for request in it.provider.requests:
        assert DUMMY not in request.target
        assert not any(DUMMY.encode() in v for _, v in request.headers)
    if "alt=sse" in path:
        assert it.provider.requests[0].target.endswith("?alt=sse&x=1")


@pytest.mark.parametrize("api", list(Api))
def test_without_a_key_none_goes_up(api: Api) -> None:
    sent: Pairs = [("x-api-key", DUMMY), ("Authorization", f"Bearer {DUMMY}")]
    with scene(whole(200, b"{}", JSON), api=api, key="") as it:
        it.fetch(answers.path_of(api), headers=sent)
        names = {name.lower() for name, _ in it.provider.requests[0].headers}
    assert not names & {b"x-api-key", b"authorization", b"x-goog-api-key"}


async def repeat(request: Received, out: Out) -> None:
    """Answers with all it got, the key in pieces."""
    text = json.dumps([[n.decode(), v.decode()] for n, v in request.headers]).encode()
    where = text.index(KEY.encode()) + 11
    headers: Pairs = [
        ("Content-Type", "text/event-stream"),
        ("X-Echo", f"you sent {KEY}"),
        ("Location", f"/?key={KEY}"),
        (f"X-{KEY}", "1"),
    ]
    await out.head(200, headers)
    for piece in (b"data: ", text[: where - 5], text[where - 5 : where], text[where:]):
        await out.body(piece)
    await out.body(b"\n\ndata: " + KEY[:20].encode())
    await out.body(KEY[20:].encode() + b"\n\n")
    for piece in answers.typed({"type": "error", "error": {"type": KEY, "message": f"no {KEY}"}}):
        await out.body(piece)
    await out.end()


@pytest.mark.parametrize("api", list(Api))
def test_a_key_that_is_repeated_comes_down_nowhere(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        with scene(repeat, api=api) as it:
            got = it.fetch(answers.path_of(api))
            shown = repr(vars(it.gateway))
        down = b"\n".join([got.body, *(n + v for n, v in got.headers)]).decode()
        records = "".join(call.model_dump_json() for call in it.calls)
    assert got.is_whole
    assert it.calls[0].failure is not None
    everything = down + records + caplog.text + shown + str(asdict(it.gateway.summary()))
    for piece in PIECES:
        assert piece not in everything
    assert "*" * len(KEY) in down


def test_a_masked_answer_keeps_its_length() -> None:
    body = json.dumps({"error": {"message": f"bad {KEY}!"}}).encode()
    with scene(whole(200, body, JSON)) as it:
        got = it.fetch("/v1/messages")
    assert got.is_whole
    assert got.body == body.replace(KEY.encode(), b"*" * len(KEY))


@pytest.mark.parametrize("shown", ["sk-real-************wxyz", "sk-...wxyz", "sk-rea…wxyz"])
def test_a_shortened_key_in_an_error_is_masked(shown: str) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {shown}."}}).encode()
    with scene(whole(401, body, JSON), api=Api.OPENAI) as it:
        got = it.fetch("/v1/responses")
    assert len(got.body) == len(body)
    assert b"wxyz" not in got.body
    assert b"Incorrect API key provided: ***" in got.body
    assert it.calls[0].failure is DriverFailure.AUTH
    assert "wxyz" not in it.calls[0].detail


def test_errors_without_the_key_are_not_touched() -> None:
    body = "sk-learn... and sk- **** … sk-other-model".encode()
    with scene(whole(500, body, JSON), key="another-key-0123456789") as it:
        assert it.fetch("/v1/messages").body == body


def test_long_errors_go_on_as_they_come() -> None:
    body = b"e" * 200_000 + KEY.encode() + b"f" * 200_000
    with scene(whole(500, body, JSON)) as it:
        assert it.fetch("/v1/messages").body == body.replace(KEY.encode(), b"*" * len(KEY))


def test_placeholders_are_no_secrets() -> None:
    with scene(whole(200, b'"EMPTY words"', JSON), key="EMPTY") as it:
        assert it.fetch("/v1/messages").body == b'"EMPTY words"'


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret(KEY)
    assert KEY not in f"{secret!r} {secret}"
    for spread in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            spread(secret)


@pytest.mark.parametrize("key", ["sk-a b", "sk-a\n", "\u201csk-a\u201d", "sk-\x00"])
def test_a_key_that_no_header_carries_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(DriverError) as caught, scene(stream([]), key=key):
        pass
    assert "sk-" not in str(caught.value)


@given(st.lists(st.sampled_from([KEY, KEY[:7], KEY[3:], "s", "sk", "x\n"])), st.data())
def test_masking_does_not_depend_on_how_a_body_is_cut(
    parts: list[str], data: st.DataObject
) -> None:
    body = "".join(parts).encode()
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=6).map(sorted))
    edges = [0, *cuts, len(body)]
    filtered = KeyFilter(Secret(KEY), is_error=False)
    out = b"".join(filtered.feed(body[a:b]) for a, b in itertools.pairwise(edges))
    assert out + filtered.end() == body.replace(KEY.encode(), b"*" * len(KEY))


def test_the_token_of_the_run_does_not_go_up() -> None:
    with scene(whole(200, b"{}", JSON)) as it:
        it.fetch("/v1/messages")
        (request,) = it.provider.requests
        token = httpx.URL(it.url).path.strip("/")
    assert token not in request.target + str(request.headers)
