"""The providers' own clients, pointed at the gateway."""

from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from rl_bench.config import Api
from rl_bench.events import DriverFailure
from tests.rl_bench import gateway_answers as answers
from tests.rl_bench.gateway_scene import DUMMY, Out, Received, scene
from tests.rl_bench.test_gateway_bytes import JSON, broken, stream, whole


def test_openai_responses_and_chats() -> None:
    async def play(request: Received, out: Out) -> None:
        is_chat = request.target.endswith("/chat/completions")
        await out.stream(answers.CHAT_STREAM if is_chat else answers.RESPONSES_STREAM)

    with (
        scene(play, api=Api.OPENAI) as it,
        openai.OpenAI(base_url=f"{it.url}/v1", api_key=DUMMY) as client,
    ):
        events = list(client.responses.create(model="m1", input="x", stream=True))
        chunks = list(
            client.chat.completions.create(
                model="m1",
                messages=[{"role": "user", "content": "x"}],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    assert events[-1].type == "response.completed"
    assert chunks[0].choices[0].delta.content == "hi"
    assert chunks[-1].usage is not None
    assert [call.output_tokens for call in it.calls] == [40, 40]
    assert {request.header("authorization") for request in it.provider.requests} != {
        f"Bearer {DUMMY}"
    }


def test_anthropic_messages() -> None:
    with (
        scene(stream(answers.MESSAGES_STREAM)) as it,
        anthropic.Anthropic(base_url=it.url, api_key=DUMMY) as client,
    ):
        events = list(
            client.messages.create(
                model="m1",
                max_tokens=9,
                messages=[{"role": "user", "content": "x"}],
                stream=True,
            )
        )
    assert [event.type for event in events][-1] == "message_stop"
    assert it.calls[0].output_tokens == 40


def test_clients_see_the_providers_errors_and_breaks() -> None:
    turns = iter([whole(429, b'{"error":{"message":"slow"}}', [*JSON, ("Retry-After", "9")])])

    async def play(request: Received, out: Out) -> None:
        await next(turns, broken(answers.CHAT_STREAM[:1]))(request, out)

    with scene(play, api=Api.OPENAI) as it:
        client = openai.OpenAI(base_url=f"{it.url}/v1", api_key=DUMMY, max_retries=0)
        with pytest.raises(openai.RateLimitError) as caught:
            client.responses.create(model="m1", input="x")
        assert caught.value.response.headers["retry-after"] == "9"
        broken_off = client.chat.completions.create(model="m1", messages=[], stream=True)
        with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
            list(broken_off)
        client.close()
    assert [call.failure for call in it.calls] == [DriverFailure.RATE_LIMITED, DriverFailure.CUT]


def test_the_unix_socket_answers_as_well(tmp_path: Path) -> None:
    with scene(stream(answers.GEMINI_STREAM), api=Api.GOOGLE, socket_path=tmp_path / "s") as it:
        transport = httpx.HTTPTransport(uds=str(tmp_path / "s"))
        with httpx.Client(transport=transport) as client:
            answer = client.post(f"{it.url}{answers.path_of(Api.GOOGLE)}", json={})
    assert answer.content == b"".join(answers.GEMINI_STREAM)
    assert not (tmp_path / "s").exists()
