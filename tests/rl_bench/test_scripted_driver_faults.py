"""Faults between the scripted driver's steps, as clients of each API see them."""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Literal

import httpx
import openai
import pytest

from rl_bench.config import Api
from rl_bench.drivers.faults import FaultBook
from rl_bench.drivers.provider_errors import provider_error
from rl_bench.drivers.scripted import ScriptedDriver
from rl_bench.drivers.session import Fault, Session, Step

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}}
PATHS = {
    Api.ANTHROPIC: "v1/messages",
    Api.OPENAI: "chat/completions",
    Api.GOOGLE: "v1beta/models/m:streamGenerateContent?alt=sse",
}
BODIES: Mapping[Api, dict[str, Any]] = {
    Api.ANTHROPIC: {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"name": "Bash", "input_schema": SHELL}],
        "stream": True,
    },
    Api.OPENAI: {
        "model": "m",
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}],
        "stream": True,
    },
    Api.GOOGLE: {
        "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
        "tools": [{"functionDeclarations": [{"name": "sh", "parametersJsonSchema": SHELL}]}],
    },
}
ENDS = {Api.ANTHROPIC: "message_stop", Api.OPENAI: "[DONE]", Api.GOOGLE: "STOP"}


def serving(*faults: Fault) -> ScriptedDriver:
    step = Step(say="I look around with some more words than a few.", run="ls")
    return ScriptedDriver(Session(steps=(step,), last="Done.", faults=faults))


def ask(driver: ScriptedDriver, api: Api, **changes: object) -> httpx.Response:
    return httpx.post(
        f"{driver.url_for(api)}/{PATHS[api]}",
        json={**BODIES[api], **changes},
        headers={"authorization": f"Bearer {driver.key}"},
        timeout=20,
    )


def streamed(driver: ScriptedDriver, api: Api) -> AbstractContextManager[httpx.Response]:
    return httpx.stream(
        "POST",
        f"{driver.url_for(api)}/{PATHS[api]}",
        json=BODIES[api],
        headers={"authorization": f"Bearer {driver.key}"},
    )


TYPES = {
    401: ("authentication_error", "invalid_api_key", "UNAUTHENTICATED"),
    402: ("billing_error", "billing_not_active", "FAILED_PRECONDITION"),
    429: ("rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"),
    500: ("api_error", None, "INTERNAL"),
    529: ("overloaded_error", None, "UNAVAILABLE"),
}


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("status", TYPES)
def test_a_status_comes_as_often_as_it_says_in_the_providers_shape(api: Api, status: int) -> None:
    fault = Fault(before_step=1, kind="status", status=status, times=2, message="No.")
    with serving(fault) as driver:
        refused = [ask(driver, api) for _ in range(2)]
        answered = ask(driver, api)

    place = {Api.ANTHROPIC: "type", Api.OPENAI: "code", Api.GOOGLE: "status"}[api]
    expected = TYPES[status][list(Api).index(api)]
    for response in refused:
        assert response.status_code == status
        assert response.json()["error"][place] == expected
        assert response.json()["error"]["message"] == "No."
        assert "retry-after" not in response.headers
    assert answered.status_code == 200
    assert ENDS[api] in answered.text


@pytest.mark.parametrize("api", Api)
def test_retry_after_is_a_header_and_where_google_puts_it(api: Api) -> None:
    fault = Fault(before_step=1, kind="status", status=429, retry_after_s=1.5)
    with serving(fault) as driver:
        response = ask(driver, api)

    assert response.headers["retry-after"] == "2"
    if api is Api.GOOGLE:
        assert response.json()["error"]["details"][0]["retryDelay"] == "1.5s"


@pytest.mark.parametrize("api", Api)
def test_a_cut_stream_breaks_off_within_the_answer(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    seen = b""
    with serving(Fault(before_step=1, kind="cut")) as driver:
        with caplog.at_level(logging.WARNING), streamed(driver, api) as response:
            try:
                for part in response.iter_bytes():
                    seen += part
            except httpx.RemoteProtocolError as error:
                problem = str(error)
        again = ask(driver, api)

    assert "incomplete" in problem
    assert b"I look" in seen
    assert ENDS[api].encode() not in seen
    assert ENDS[api] in again.text
    assert not caplog.records


def test_an_answer_that_is_not_streamed_is_cut_too() -> None:
    with (
        serving(Fault(before_step=1, kind="cut")) as driver,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        ask(driver, Api.OPENAI, stream=False)


@pytest.mark.parametrize(
    ("api", "word"),
    [
        (Api.ANTHROPIC, '{"type":"error","error":{"type":"overloaded_error"'),
        (Api.OPENAI, 'data: {"error":{'),
        (Api.GOOGLE, '"status":"UNAVAILABLE"'),
    ],
)
def test_an_error_event_ends_the_stream(api: Api, word: str) -> None:
    with serving(Fault(before_step=1, kind="error_event")) as driver:
        response = ask(driver, api)

    assert response.status_code == 200
    assert word in response.text.rstrip().splitlines()[-1]
    assert ENDS[api] not in response.text


def test_openais_client_raises_what_an_error_event_says() -> None:
    fault = Fault(before_step=1, kind="error_event", times=None, message="Broken.")
    with (
        serving(fault) as driver,
        openai.OpenAI(
            base_url=driver.url_for(Api.OPENAI), api_key=driver.key, max_retries=0
        ) as client,
    ):
        given: Any = BODIES[Api.OPENAI]
        with pytest.raises(openai.APIError, match="Broken"):
            list(client.chat.completions.create(**given))
        tools: Any = [{"type": "function", "name": "sh", "parameters": SHELL}]
        events = list(client.responses.create(model="m", input="Go.", tools=tools, stream=True))
        with pytest.raises(openai.InternalServerError, match="Broken"):
            client.responses.create(model="m", input="Go.", tools=tools)

    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.message == "Broken."
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_hang_is_silence_before_the_answer() -> None:
    with serving(Fault(before_step=1, kind="hang", seconds=0.7)) as driver:
        started = time.monotonic()
        response = ask(driver, Api.ANTHROPIC)

    assert time.monotonic() - started > 0.6
    assert ENDS[Api.ANTHROPIC] in response.text


def test_a_stall_is_silence_within_the_answer() -> None:
    times = []
    with (
        serving(Fault(before_step=1, kind="stall", seconds=0.7)) as driver,
        streamed(driver, Api.OPENAI) as response,
    ):
        text = ""
        for part in response.iter_text():
            times.append(time.monotonic())
            text += part

    assert max(after - before for before, after in pairwise(times)) > 0.6
    assert ENDS[Api.OPENAI] in text


@pytest.mark.parametrize("kind", ["hang", "stall"])
def test_a_hang_without_end_ends_with_the_server(kind: Literal["hang", "stall"]) -> None:
    with serving(Fault(before_step=1, kind=kind)) as driver:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{driver.url_for(Api.OPENAI)}/{PATHS[Api.OPENAI]}",
                json=BODIES[Api.OPENAI],
                headers={"authorization": f"Bearer {driver.key}"},
                timeout=0.5,
            )
        started = time.monotonic()
    assert time.monotonic() - started < 30
    assert [seen.fault for seen in driver.served] == [kind]


def test_other_steps_and_what_is_beside_the_session_are_spared() -> None:
    fault = Fault(before_step=2, kind="status", status=500, times=None)
    with serving(fault) as driver:
        first = ask(driver, Api.ANTHROPIC)
        aside = ask(driver, Api.ANTHROPIC, tools=[])
        result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
        call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
        messages = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        second = [ask(driver, Api.ANTHROPIC, messages=messages) for _ in range(3)]

    assert (first.status_code, aside.status_code) == (200, 200)
    assert [response.status_code for response in second] == [500] * 3
    assert [seen.fault for seen in driver.served] == ["", "", "status", "status", "status"]


def test_several_faults_before_one_step_come_in_order() -> None:
    book = FaultBook(
        [
            Fault(before_step=1, kind="status", status=429, times=2),
            Fault(before_step=2, kind="cut"),
            Fault(before_step=1, kind="hang", seconds=1),
        ]
    )

    kinds = [fault.kind if (fault := book.next(1)) else "" for _ in range(4)]

    assert kinds == ["status", "status", "hang", ""]
    assert book.next(None) is None


@pytest.mark.parametrize("status", range(400, 600, 7))
def test_every_status_has_words_in_every_api(status: int) -> None:
    for api in Api:
        error: Any = provider_error(api, status, request_id="req_1").body["error"]
        assert error["message"]
