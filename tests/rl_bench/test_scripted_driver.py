"""The scripted driver in Anthropic's and Google's APIs, by raw HTTP; and what all APIs share."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rl_bench.config import Api
from rl_bench.drivers.scripted import ScriptedDriver, Served, _show
from rl_bench.drivers.session import Session, Step

SESSION = Session(
    name="test",
    steps=(
        Step(say="I look around, “carefully”.", run="ls -l"),
        Step(say="A script.", write={"code/train.py": "print('ü')\n"}, run="python code/train.py"),
    ),
    last="All done.",
)
SHELL = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}
COMMANDS = [step.command for step in SESSION.steps]


@pytest.fixture(scope="module")
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver(SESSION) as running:
        yield running


def post(driver: ScriptedDriver, api: Api, path: str, body: object, **query: str) -> httpx.Response:
    """Sends ``body`` with the key where the provider's clients put it."""
    headers = {
        Api.ANTHROPIC: {"x-api-key": driver.key, "anthropic-version": "2023-06-01"},
        Api.OPENAI: {"authorization": f"Bearer {driver.key}"},
        Api.GOOGLE: {"x-goog-api-key": driver.key},
    }[api]
    url = f"{driver.url_for(api)}/{path}"
    return httpx.post(url, json=body, headers=headers, params=query, timeout=20)


def events(response: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    """A stream's events, name and data; nothing else may be in it, and all must be JSON."""
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    found = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        *names, data = block.split("\n")
        assert data.startswith("data: ")
        assert all(name.startswith("event: ") for name in names)
        if data != "data: [DONE]":
            found.append(("".join(names).removeprefix("event: "), json.loads(data[6:])))
    return found


# Anthropic


def anthropic_body(*, stream: bool = False, cached: bool = False) -> dict[str, Any]:
    user: dict[str, Any] = {"type": "text", "text": "Improve the model."}
    if cached:
        user["cache_control"] = {"type": "ephemeral"}
    return {
        "model": "scripted-1",
        "max_tokens": 1000,
        "system": "You are an agent.",
        "messages": [{"role": "user", "content": [user]}],
        "tools": [{"name": "Bash", "description": "Runs.", "input_schema": SHELL}],
        "stream": stream,
    }


def anthropic_next(body: dict[str, Any], message: dict[str, Any], output: str) -> None:
    """What an agent does with an answer: runs the call and sends its result."""
    call = next(block for block in message["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": output}
    body["messages"] += [
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": [result]},
    ]


def anthropic_stream(response: httpx.Response) -> dict[str, Any]:
    """Puts a message together from its stream, and checks the order of everything."""
    names_and_data = events(response)
    assert all(name == data["type"] for name, data in names_and_data)
    rows = [data for name, data in names_and_data if name != "ping"]
    assert [row["type"] for row in rows[:1]] == ["message_start"]
    assert [row["type"] for row in rows[-2:]] == ["message_delta", "message_stop"]
    message: dict[str, Any] = rows[0]["message"]
    assert message["content"] == []
    assert message["stop_reason"] is None
    is_open = False
    for row in rows[1:-2]:
        match row["type"]:
            case "content_block_start":
                assert not is_open
                assert row["index"] == len(message["content"])
                message["content"].append({**row["content_block"], "json": ""})
                is_open = True
            case "content_block_delta":
                assert is_open
                block, delta = message["content"][row["index"]], row["delta"]
                if delta["type"] == "text_delta":
                    block["text"] += delta["text"]
                else:
                    assert delta["type"] == "input_json_delta"
                    block["json"] += delta["partial_json"]
            case kind:
                assert kind == "content_block_stop"
                is_open = False
    for block in message["content"]:
        text = block.pop("json")
        if block["type"] == "tool_use":
            assert block["input"] == {}
            block["input"] = json.loads(text)
    message.update(rows[-2]["delta"])
    message["usage"].update(rows[-2]["usage"])
    return message


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_session_from_first_request_to_last(driver: ScriptedDriver, stream: bool) -> None:
    body = anthropic_body(stream=stream)
    for step in SESSION.steps:
        response = post(driver, Api.ANTHROPIC, "v1/messages", body)
        message = anthropic_stream(response) if stream else response.json()
        words, call = message["content"]
        assert message["stop_reason"] == "tool_use"
        assert words == {"type": "text", "text": step.say}
        assert call["name"] == "Bash"
        assert call["id"].startswith("toolu_")
        assert call["input"] == {"command": step.command}
        anthropic_next(body, message, "fine")
    response = post(driver, Api.ANTHROPIC, "v1/messages", body)
    message = anthropic_stream(response) if stream else response.json()

    assert message["content"] == [{"type": "text", "text": "All done."}]
    assert message["stop_reason"] == "end_turn"
    assert message["id"].startswith("msg_")
    assert message["model"] == "scripted-1"


def test_anthropic_stream_says_what_the_whole_answer_says(driver: ScriptedDriver) -> None:
    streamed = anthropic_stream(
        post(driver, Api.ANTHROPIC, "v1/messages", anthropic_body(stream=True))
    )
    whole = post(driver, Api.ANTHROPIC, "v1/messages", anthropic_body()).json()

    assert streamed["content"][0] == whole["content"][0]
    assert streamed["content"][1]["input"] == whole["content"][1]["input"]
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_anthropic_counts_what_was_in_the_request_before_as_cached(driver: ScriptedDriver) -> None:
    body = anthropic_body(cached=True)
    first = post(driver, Api.ANTHROPIC, "v1/messages", body).json()
    before = post(driver, Api.ANTHROPIC, "v1/messages/count_tokens", body).json()["input_tokens"]
    anthropic_next(body, first, "x" * 400)
    second = post(driver, Api.ANTHROPIC, "v1/messages", body).json()
    after = post(driver, Api.ANTHROPIC, "v1/messages/count_tokens", body).json()["input_tokens"]

    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    used = [sum(message["usage"][part] for part in parts) for message in (first, second)]
    assert first["usage"]["cache_read_input_tokens"] == 0
    assert first["usage"]["cache_creation_input_tokens"] > 0
    # Up to rounding, what was read is what was there.
    assert abs(second["usage"]["cache_read_input_tokens"] - used[0]) <= 4
    assert abs(used[0] - before) <= 1
    assert abs(used[1] - after) <= 1
    assert used[1] - used[0] > 100


def test_anthropic_without_cache_marks_writes_no_cache(driver: ScriptedDriver) -> None:
    usage = post(driver, Api.ANTHROPIC, "v1/messages", anthropic_body()).json()["usage"]

    assert usage["cache_creation_input_tokens"] == 0
    assert usage["input_tokens"] > 20


# Gemini


def gemini_body() -> dict[str, Any]:
    shell = {"name": "run_shell_command", "parametersJsonSchema": SHELL}
    return {
        "systemInstruction": {"parts": [{"text": "You are an agent."}], "role": "user"},
        "contents": [{"role": "user", "parts": [{"text": "Improve the model."}]}],
        "tools": [{"functionDeclarations": [shell]}],
    }


def test_gemini_session_from_first_request_to_last(driver: ScriptedDriver) -> None:
    body = gemini_body()
    for step in SESSION.steps:
        rows = post(driver, Api.GOOGLE, "v1beta/models/m:streamGenerateContent", body, alt="sse")
        chunks = [data for _, data in events(rows)]
        assert len({chunk["responseId"] for chunk in chunks}) == 1
        reasons = [chunk["candidates"][0].get("finishReason") for chunk in chunks]
        assert reasons == [None] * (len(chunks) - 1) + ["STOP"]
        parts = [part for c in chunks for part in c["candidates"][0]["content"]["parts"]]
        assert "".join(part.get("text", "") for part in parts) == step.say
        call = parts[-1]["functionCall"]
        assert call == {"name": "run_shell_command", "args": {"command": step.command}}
        result = {"name": call["name"], "response": {"output": "fine"}}
        body["contents"] += [
            {"role": "model", "parts": parts},
            {"role": "user", "parts": [{"functionResponse": result}]},
        ]
    last = post(driver, Api.GOOGLE, "v1beta/models/m:generateContent", body).json()
    counted = post(
        driver,
        Api.GOOGLE,
        "v1beta/models/m:countTokens",
        {"generateContentRequest": {"model": "models/m", **body}},
    ).json()

    usage = last["usageMetadata"]
    assert last["candidates"][0]["content"] == {"parts": [{"text": "All done."}], "role": "model"}
    assert usage["promptTokenCount"] == counted["totalTokens"]
    assert 0 < usage["cachedContentTokenCount"] < usage["promptTokenCount"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]


def test_gemini_stream_without_events_is_one_array(driver: ScriptedDriver) -> None:
    response = post(driver, Api.GOOGLE, "v1beta/models/m:streamGenerateContent", gemini_body())

    chunks = response.json()
    assert response.headers["content-type"] == "application/json"
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
    assert len(chunks) > 1


def test_gemini_takes_the_key_from_the_query(driver: ScriptedDriver) -> None:
    url = f"{driver.url_for(Api.GOOGLE)}/v1beta/models/m:countTokens"
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}

    assert httpx.post(url, params={"key": driver.key}, json=body).status_code == 200
    assert httpx.post(url, params={"key": "other"}, json=body).status_code == 401


# What all of them share


def test_models_are_listed_in_each_api(driver: ScriptedDriver) -> None:
    headers = {"x-api-key": driver.key, "x-goog-api-key": driver.key}
    anthropic = httpx.get(f"{driver.url_for(Api.ANTHROPIC)}/v1/models", headers=headers).json()
    google = httpx.get(f"{driver.url_for(Api.GOOGLE)}/v1beta/models", headers=headers).json()

    assert [model["id"] for model in anthropic["data"]] == ["scripted-1"]
    assert [model["name"] for model in google["models"]] == ["models/scripted-1"]


ERRORS = {
    Api.ANTHROPIC: ("v1/messages", ("error", "type"), "authentication_error"),
    Api.OPENAI: ("chat/completions", ("error", "code"), "invalid_api_key"),
    Api.GOOGLE: ("v1beta/models/m:generateContent", ("error", "status"), "UNAUTHENTICATED"),
}


@pytest.mark.parametrize("api", Api)
def test_another_key_is_a_401_in_the_providers_shape(driver: ScriptedDriver, api: Api) -> None:
    path, place, word = ERRORS[api]
    for headers in ({}, {"authorization": "Bearer sk-dummy"}, {"x-api-key": "sk-dummy"}):
        response = httpx.post(f"{driver.url_for(api)}/{path}", json={}, headers=headers)
        found: Any = response.json()
        for key in place:
            found = found[key]
        assert response.status_code == 401
        assert found == word
        assert driver.key not in response.text


def test_another_token_is_nothing(driver: ScriptedDriver) -> None:
    url = driver.url_for(Api.OPENAI).replace(driver.token, "x" * len(driver.token))

    response = httpx.get(f"{url}/models", headers={"authorization": f"Bearer {driver.key}"})

    assert response.status_code == 404


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("body", [{}, [], {"model": "m"}, {"model": "m", "messages": []}])
def test_a_malformed_request_is_a_400(driver: ScriptedDriver, api: Api, body: object) -> None:
    response = post(driver, api, ERRORS[api][0], body)

    assert response.status_code == 400
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("api", Api)
def test_an_unknown_path_is_a_404(driver: ScriptedDriver, api: Api) -> None:
    assert post(driver, api, "v1/unknown", {}).status_code == 404


def test_requests_are_noted_with_their_steps() -> None:
    with ScriptedDriver(SESSION) as driver:
        post(driver, Api.ANTHROPIC, "v1/messages", anthropic_body())
        aside = {**anthropic_body(), "tools": []}
        post(driver, Api.ANTHROPIC, "v1/messages", aside)
        seen = [(call.path, call.model, call.status, call.step) for call in driver.served]

    assert seen == [
        ("v1/messages", "scripted-1", 200, 1),
        ("v1/messages", "scripted-1", 200, None),
    ]


def test_a_request_that_is_shown_gives_no_orders_to_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _show(Served(api=Api.OPENAI, method="POST", path="x\x1b[2J", model="m\nfake 200 GET"))
    assert capsys.readouterr().out == "0 POST x�[2J m�fake 200 GET aside\n"
