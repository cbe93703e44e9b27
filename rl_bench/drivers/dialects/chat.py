"""OpenAI's Chat Completions API.

Source: https://platform.openai.com/docs/api-reference/chat and .../chat-streaming.
"""

import json
from collections.abc import Iterator, Mapping

from rl_bench.drivers.dialects.base import SSE, Json, MalformedError, Stamp, event
from rl_bench.drivers.dialogue import (
    FRAME_TOKENS,
    Answer,
    Ask,
    Called,
    Calls,
    Told,
    Tool,
    Turn,
    Words,
    compact,
    count_tokens,
    pieces,
)
from rl_bench.drivers.loose import mapping, rows, string, text_in

_DONE = b"data: [DONE]\n\n"


class ChatCompletion:
    """A request to ``/v1/chat/completions``.

    Args:
        body: The request.
        stamp: Marks the answer.

    Raises:
        MalformedError: It lacks ``model`` or ``messages``.
    """

    stream_type = SSE

    def __init__(self, body: Mapping[str, object], stamp: Stamp) -> None:
        if not string(body.get("model")):
            raise MalformedError("you must provide a model parameter")
        messages = rows(body.get("messages"))
        if not messages:
            raise MalformedError("Missing required parameter: 'messages'.")
        last = max((n for n, m in enumerate(messages) if m.get("role") == "assistant"), default=0)
        tools = body.get("tools")
        options = mapping(body.get("stream_options"))
        self._stamp = stamp
        self._wants_usage = options.get("include_usage") is True
        self.ask = Ask(
            model=string(body.get("model")),
            stream=body.get("stream") is True,
            turns=tuple(_turns(messages)),
            tools=tuple(
                Tool(name=string(row.get("name")), schema=mapping(row.get("parameters")))
                for row in (mapping(tool.get("function")) for tool in rows(tools))
                if row
            ),
            schema=_schema(body),
            num_tokens=FRAME_TOKENS + count_tokens([tools, *messages]),
            num_cached=count_tokens([tools, *messages[:last]]) if last else 0,
        )

    def whole(self, answer: Answer) -> Json:
        """See `Exchange.whole`."""
        message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.call is not None:
            arguments = compact(dict(answer.call.arguments))
            message["tool_calls"] = [self._tool_call(answer.call, arguments)]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish_reason(answer),
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._usage(answer),
        }

    def stream(self, answer: Answer) -> list[bytes]:
        """See `Exchange.stream`."""
        deltas: list[Json] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{"content": piece} for piece in pieces(answer.text)]
        if answer.call is not None:
            deltas.append({"tool_calls": [{"index": 0, **self._tool_call(answer.call, "")}]})
            deltas += [
                {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
                for piece in pieces(compact(dict(answer.call.arguments)))
            ]
        chunks = [self._chunk(delta, None) for delta in deltas]
        chunks.append(self._chunk({}, _finish_reason(answer)))
        if self._wants_usage:
            usage = self._usage(answer)
            chunks.append({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        return [*map(event, chunks), _DONE]

    def broken(self, message: str, *, num_sent: int) -> bytes:
        """See `Exchange.broken`."""
        words = message or "The server had an error while processing your request."
        error: Json = {"message": words, "type": "server_error", "param": None, "code": None}
        return event({"error": error})

    def _chunk(self, delta: Json, reason: str | None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage: Json = {"usage": None} if self._wants_usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **usage}

    def _head(self, kind: str) -> Json:
        return {
            "id": self._stamp.id("chatcmpl-"),
            "object": kind,
            "created": self._stamp.created_s,
            "model": self.ask.model,
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
        }

    def _tool_call(self, call: Called, arguments: str) -> Json:
        return {
            "id": self._stamp.id("call_"),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }

    def _usage(self, answer: Answer) -> Json:
        return {
            "prompt_tokens": self.ask.num_tokens,
            "completion_tokens": answer.num_tokens,
            "total_tokens": self.ask.num_tokens + answer.num_tokens,
            "prompt_tokens_details": {"cached_tokens": self.ask.num_cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }


def arguments_of(text: object) -> Mapping[str, object]:
    """The arguments of a call, which OpenAI's APIs carry as text."""
    try:
        return mapping(json.loads(string(text)))
    except ValueError:
        return {}


def _turns(messages: list[Mapping[str, object]]) -> Iterator[Turn]:
    calls = Calls()
    for message in messages:
        role = message.get("role")
        text = text_in(message.get("content"))
        if role in ("assistant", "user") and text:
            yield Words(text) if role == "assistant" else Told()
        for row in rows(message.get("tool_calls")):
            function = mapping(row.get("function"))
            name, arguments = string(function.get("name")), arguments_of(function.get("arguments"))
            yield calls.add(Called(name, arguments, string(row.get("id"))))
        if role == "tool":
            yield calls.returned(string(message.get("tool_call_id")), text)


def _schema(body: Mapping[str, object]) -> Mapping[str, object] | None:
    form = mapping(body.get("response_format"))
    match form.get("type"):
        case "json_schema":
            return mapping(mapping(form.get("json_schema")).get("schema"))
        case "json_object":
            return {"type": "object"}
        case _:
            return None


def _finish_reason(answer: Answer) -> str:
    return "stop" if answer.call is None else "tool_calls"
