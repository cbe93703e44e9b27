"""OpenAI's Responses API, without stored responses: each request holds the whole conversation.

Source: https://platform.openai.com/docs/api-reference/responses and .../responses-streaming.
"""

from collections.abc import Iterator, Mapping

from rl_bench.drivers.dialects.base import SSE, Json, MalformedError, Stamp, event
from rl_bench.drivers.dialects.chat import arguments_of
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

_ECHOED: Mapping[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""What a response repeats of its request, and what stands there when the request is silent."""


class ResponsesCall:
    """A request to ``/v1/responses``.

    Args:
        body: The request.
        stamp: Marks the answer.

    Raises:
        MalformedError: It lacks ``model`` or ``input``, or builds on a stored response.
    """

    stream_type = SSE

    def __init__(self, body: Mapping[str, object], stamp: Stamp) -> None:
        if not string(body.get("model")):
            raise MalformedError("Missing required parameter: 'model'.")
        if body.get("previous_response_id"):
            raise MalformedError("Previous response not found: responses are not stored here.")
        items = _items(body.get("input"))
        last = max((n for n, item in enumerate(items) if _is_ours(item)), default=0)
        # An answer may be several items; the request before ended where the first of them stands.
        while last and _is_ours(items[last - 1]):
            last -= 1
        head = [body.get("instructions"), body.get("tools")]
        self._body = body
        self._stamp = stamp
        self.ask = Ask(
            model=string(body.get("model")),
            stream=body.get("stream") is True,
            turns=tuple(_turns(items)),
            tools=tuple(
                Tool(name=string(row.get("name")), schema=mapping(row.get("parameters")))
                for row in rows(body.get("tools"))
                if row.get("type") == "function"
            ),
            schema=_schema(body),
            num_tokens=FRAME_TOKENS + count_tokens([*head, *items]),
            num_cached=count_tokens([*head, *items[:last]]) if last else 0,
        )

    def whole(self, answer: Answer) -> Json:
        """See `Exchange.whole`."""
        return self._response("completed", output=self._output(answer), usage=self._usage(answer))

    def stream(self, answer: Answer) -> list[bytes]:
        """See `Exchange.stream`."""
        return [
            event({**data, "sequence_number": number}, name=str(data["type"]))
            for number, data in enumerate(self._events(answer))
        ]

    def broken(self, message: str, *, num_sent: int) -> bytes:
        """See `Exchange.broken`."""
        words = message or "The server had an error while processing your request."
        failed = self._response("failed", output=[], usage=None)
        failed["error"] = {"code": "server_error", "message": words}
        name = "response.failed"
        return event({"type": name, "response": failed, "sequence_number": num_sent}, name=name)

    def _events(self, answer: Answer) -> Iterator[Json]:
        started = self._response("in_progress", output=[], usage=None)
        yield {"type": "response.created", "response": started}
        yield {"type": "response.in_progress", "response": started}
        for index, item in enumerate(self._output(answer)):
            parts = _message_events if item["type"] == "message" else _call_events
            for data in parts(item):
                yield {"output_index": index, **data}
        yield {"type": "response.completed", "response": self.whole(answer)}

    def _output(self, answer: Answer) -> list[Json]:
        output: list[Json] = []
        if answer.text:
            item: Json = {"id": self._stamp.id("msg_"), "type": "message", "status": "completed"}
            output.append({**item, "role": "assistant", "content": [_text_part(answer.text)]})
        if answer.call is not None:
            call: Json = {
                "id": self._stamp.id("fc_"),
                "type": "function_call",
                "status": "completed",
                "call_id": self._stamp.id("call_"),
                "name": answer.call.name,
                "arguments": compact(dict(answer.call.arguments)),
            }
            output.append(call)
        return output

    def _response(self, status: str, *, output: list[Json], usage: Json | None) -> Json:
        echoed = {
            key: default if self._body.get(key) is None else self._body[key]
            for key, default in _ECHOED.items()
        }
        return {
            "id": self._stamp.id("resp_", length=48),
            "object": "response",
            "created_at": self._stamp.created_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self.ask.model,
            "output": output,
            "previous_response_id": None,
            "usage": usage,
            "user": None,
            **echoed,
        }

    def _usage(self, answer: Answer) -> Json:
        return {
            "input_tokens": self.ask.num_tokens,
            "input_tokens_details": {"cached_tokens": self.ask.num_cached},
            "output_tokens": answer.num_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.ask.num_tokens + answer.num_tokens,
        }


def _message_events(item: Json) -> Iterator[Json]:
    text = text_in(item["content"])
    place = {"item_id": item["id"], "content_index": 0}
    started = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "item": started}
    yield {"type": "response.content_part.added", **place, "part": _text_part("")}
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": _text_part(text)}
    yield {"type": "response.output_item.done", "item": item}


def _call_events(item: Json) -> Iterator[Json]:
    place = {"item_id": item["id"]}
    arguments = str(item["arguments"])
    done = {"name": item["name"], "arguments": arguments}
    started = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "item": started}
    for piece in pieces(arguments):
        yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    yield {"type": "response.function_call_arguments.done", **place, **done}
    yield {"type": "response.output_item.done", "item": item}


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _items(given: object) -> list[Mapping[str, object]]:
    if isinstance(given, str) and given:
        return [{"type": "message", "role": "user", "content": given}]
    items = rows(given)
    if not items:
        raise MalformedError("Missing required parameter: 'input'.")
    return items


def _is_ours(item: Mapping[str, object]) -> bool:
    kind = item.get("type", "message")
    return kind in ("function_call", "reasoning") or item.get("role") == "assistant"


def _turns(items: list[Mapping[str, object]]) -> Iterator[Turn]:
    calls = Calls()
    for item in items:
        call_id = string(item.get("call_id"))
        match item.get("type", "message"):
            case "message":
                is_driver = item.get("role") == "assistant"
                yield Words(text_in(item.get("content"))) if is_driver else Told()
            case "function_call":
                arguments = arguments_of(item.get("arguments"))
                yield calls.add(Called(string(item.get("name")), arguments, call_id))
            case "function_call_output":
                yield calls.returned(call_id, text_in(item.get("output")))
            case _:
                pass


def _schema(body: Mapping[str, object]) -> Mapping[str, object] | None:
    form = mapping(mapping(body.get("text")).get("format"))
    match form.get("type"):
        case "json_schema":
            return mapping(form.get("schema"))
        case "json_object":
            return {"type": "object"}
        case _:
            return None
