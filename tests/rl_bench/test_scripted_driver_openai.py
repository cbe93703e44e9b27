"""The scripted driver in OpenAI's two APIs, by raw HTTP and by OpenAI's own client."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall

from rl_bench.config import Api
from rl_bench.drivers.scripted import ScriptedDriver
from tests.rl_bench.test_scripted_driver import SESSION, SHELL, events, post


@pytest.fixture(scope="module")
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver(SESSION) as running:
        yield running


@pytest.fixture
def client(driver: ScriptedDriver) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=driver.url_for(Api.OPENAI), api_key=driver.key, max_retries=0
    ) as made:
        yield made


# OpenAI Responses


def tool(name: str, schema: object, **more: object) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": schema, "strict": False, **more}


def test_responses_session_from_first_request_to_last(driver: ScriptedDriver) -> None:
    items: list[dict[str, Any]] = [{"role": "user", "content": "Improve the model."}]
    body: dict[str, Any] = {
        "model": "m",
        "instructions": "You are an agent.",
        "input": items,
        "tools": [tool("exec_command", {"properties": {"cmd": {"type": "string"}}})],
    }
    cached = []
    for step in SESSION.steps:
        answer = post(driver, Api.OPENAI, "responses", body).json()
        words, call = answer["output"]
        assert answer["status"] == "completed"
        assert words["content"][0]["text"] == step.say
        assert json.loads(call["arguments"]) == {"cmd": step.command}
        cached.append(answer["usage"]["input_tokens_details"]["cached_tokens"])
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}
        items += [words, call, output]
    last = post(driver, Api.OPENAI, "responses", body).json()

    assert [item["type"] for item in last["output"]] == ["message"]
    assert last["output"][0]["content"][0]["text"] == "All done."
    assert cached[0] == 0 < cached[1] < last["usage"]["input_tokens_details"]["cached_tokens"]
    usage = last["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_responses_stream_holds_every_event_in_order(driver: ScriptedDriver) -> None:
    body = {
        "model": "m",
        "input": "Improve the model.",
        "tools": [tool("exec_command", {"properties": {"cmd": {"type": "string"}}})],
        "stream": True,
    }
    rows = events(post(driver, Api.OPENAI, "responses", body))

    assert all(name == data["type"] for name, data in rows)
    data = [row for _, row in rows]
    assert [row["sequence_number"] for row in data] == list(range(len(data)))
    kinds = [row["type"].removeprefix("response.") for row in data]
    order = list(dict.fromkeys(kinds))
    assert order == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "completed",
    ]
    final = data[-1]["response"]
    assert final["id"] == data[0]["response"]["id"]
    done = [row["item"] for row in data if row["type"] == "response.output_item.done"]
    assert final["output"] == done
    assert [row["output_index"] for row in data if "item" in row] == [0, 0, 1, 1]
    text = "".join(row["delta"] for row in data if row["type"] == "response.output_text.delta")
    arguments = "".join(
        row["delta"] for row in data if row["type"] == "response.function_call_arguments.delta"
    )
    assert text == SESSION.steps[0].say
    assert json.loads(arguments) == {"cmd": "ls -l"}
    assert final["usage"]["output_tokens"] > 0


def test_openai_client_reads_responses(client: openai.OpenAI) -> None:
    given: Any = [tool("shell", SHELL)]
    whole = client.responses.create(model="m", input="Go.", tools=given)
    with client.responses.stream(model="m", input="Go.", tools=given) as stream:
        seen = [event.type for event in stream]
        streamed = stream.get_final_response()

    assert whole.output_text == SESSION.steps[0].say
    call = whole.output[1]
    assert isinstance(call, ResponseFunctionToolCall)
    assert json.loads(call.arguments) == {"command": "ls -l"}
    assert [item.type for item in streamed.output] == ["message", "function_call"]
    assert streamed.output_text == whole.output_text
    assert streamed.usage == whole.usage
    assert seen[-1] == "response.completed"


def test_responses_that_build_on_a_stored_one_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not stored"):
        client.responses.create(model="m", input="Go.", previous_response_id="resp_1")


# OpenAI Chat Completions


CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}]


def test_chat_session_with_openais_client(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Improve the model."}]
    for step in SESSION.steps:
        answer = client.chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == step.say
        assert choice.message.tool_calls is not None
        call: Any = choice.message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"command": step.command}
        messages += [
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "fine"},
        ]
    last = client.chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)

    assert last.choices[0].finish_reason == "stop"
    assert last.choices[0].message.content == "All done."
    assert last.choices[0].message.tool_calls is None
    assert last.usage is not None
    assert last.usage.prompt_tokens_details is not None
    assert 0 < (last.usage.prompt_tokens_details.cached_tokens or 0) < last.usage.prompt_tokens


def test_chat_stream_with_openais_client(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="m",
        messages=[{"role": "user", "content": "Go."}],
        tools=CHAT_TOOLS,
        stream_options={"include_usage": True},
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()

    choice = final.choices[0]
    assert choice.message.content == SESSION.steps[0].say
    assert choice.message.tool_calls is not None
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"command": "ls -l"}
    assert choice.finish_reason == "tool_calls"
    assert final.usage is not None
    assert final.usage.completion_tokens > 0


@pytest.mark.parametrize("include_usage", [False, True])
def test_chat_stream_ends_as_it_must(driver: ScriptedDriver, include_usage: bool) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Go."}],
        "tools": CHAT_TOOLS,
        "stream": True,
        "stream_options": {"include_usage": include_usage},
    }
    response = post(driver, Api.OPENAI, "chat/completions", body)
    chunks = [data for name, data in events(response) if not name]

    assert response.text.endswith("data: [DONE]\n\n")
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    assert with_usage == ([chunks[-1]] if include_usage else [])
    if include_usage:
        assert chunks[-1]["choices"] == []


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted-1"]
    assert client.models.retrieve("scripted-1").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-0")
