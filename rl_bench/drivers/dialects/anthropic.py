"""Anthropic's Messages API.

Source: https://docs.anthropic.com/en/api/messages and .../messages-streaming.
"""

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


class Messages:
    """A request to ``/v1/messages``.

    Args:
        body: The request.
        stamp: Marks the answer.

    Raises:
        MalformedError: It lacks ``model`` or ``messages``.
    """

    stream_type = SSE

    def __init__(self, body: Mapping[str, object], stamp: Stamp) -> None:
        messages = _messages(body)
        last = max((n for n, m in enumerate(messages) if m.get("role") == "assistant"), default=0)
        head = [body.get("system"), body.get("tools")]
        num_before = count_tokens([*head, *messages[:last]]) if last else 0
        self._stamp = stamp
        self._writes_cache = '"cache_control"' in compact(body)
        self.ask = Ask(
            model=string(body.get("model")),
            stream=body.get("stream") is True,
            turns=tuple(_turns(messages)),
            tools=tuple(
                Tool(name=string(row.get("name")), schema=mapping(row.get("input_schema")))
                for row in rows(body.get("tools"))
            ),
            schema=_schema(body),
            num_tokens=FRAME_TOKENS + count_tokens([*head, *messages]),
            num_cached=num_before,
        )

    def whole(self, answer: Answer) -> Json:
        """See `Exchange.whole`."""
        content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
        if answer.call is not None:
            content.append({**self._tool_use(answer.call), "input": dict(answer.call.arguments)})
        return {
            **self._message(),
            "content": content,
            "stop_reason": _stop_reason(answer),
            "usage": self._usage(answer.num_tokens),
        }

    def stream(self, answer: Answer) -> list[bytes]:
        """See `Exchange.stream`."""
        return [event(data, name=str(data["type"])) for data in self._events(answer)]

    def broken(self, message: str, *, num_sent: int) -> bytes:
        """See `Exchange.broken`."""
        error = {"type": "overloaded_error", "message": message or "Overloaded"}
        return event({"type": "error", "error": error}, name="error")

    def _events(self, answer: Answer) -> Iterator[Json]:
        yield {"type": "message_start", "message": {**self._message(), "usage": self._usage(1)}}
        index = 0
        if answer.text:
            deltas: list[Json] = [{"type": "text_delta", "text": t} for t in pieces(answer.text)]
            yield from _block(index, {"type": "text", "text": ""}, deltas)
            index += 1
        if answer.call is not None:
            # Its first piece is always empty.
            json = ["", *pieces(compact(dict(answer.call.arguments)))]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in json]
            yield from _block(index, {**self._tool_use(answer.call), "input": {}}, deltas)
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": _stop_reason(answer), "stop_sequence": None},
            "usage": self._usage(answer.num_tokens),
        }
        yield {"type": "message_stop"}

    def _message(self) -> Json:
        return {
            "id": self._stamp.id("msg_01"),
            "type": "message",
            "role": "assistant",
            "model": self.ask.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _tool_use(self, call: Called) -> Json:
        return {"type": "tool_use", "id": self._stamp.id("toolu_01"), "name": call.name}

    def _usage(self, num_output: int) -> Json:
        new = self.ask.num_tokens - self.ask.num_cached
        written = new - FRAME_TOKENS if self._writes_cache else 0
        return {
            "input_tokens": new - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": self.ask.num_cached,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": num_output,
            "service_tier": "standard",
        }


def count_body(body: Mapping[str, object]) -> Json:
    """The answer of ``/v1/messages/count_tokens``.

    Raises:
        MalformedError: As `Messages`.
    """
    parts = [body.get("system"), body.get("tools"), *_messages(body)]
    return {"input_tokens": FRAME_TOKENS + count_tokens(parts)}


def _messages(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    if not string(body.get("model")):
        raise MalformedError("model: Field required")
    messages = rows(body.get("messages"))
    if not messages:
        raise MalformedError("messages: at least one message is required")
    return messages


def _turns(messages: list[Mapping[str, object]]) -> Iterator[Turn]:
    calls = Calls()
    for message in messages:
        is_driver = message.get("role") == "assistant"
        content = message.get("content")
        if isinstance(content, str):
            yield Words(content) if is_driver else Told()
        for block in rows(content):
            kind = block.get("type")
            if kind == "text":
                yield Words(string(block.get("text"))) if is_driver else Told()
            elif kind == "tool_use":
                name, arguments = string(block.get("name")), mapping(block.get("input"))
                yield calls.add(Called(name, arguments, string(block.get("id"))))
            elif kind == "tool_result":
                text = text_in(block.get("content"))
                yield calls.returned(string(block.get("tool_use_id")), text)


def _schema(body: Mapping[str, object]) -> Mapping[str, object] | None:
    form = mapping(body.get("output_format")) or mapping(
        mapping(body.get("output_config")).get("format")
    )
    return mapping(form.get("schema")) if form.get("type") == "json_schema" else None


def _stop_reason(answer: Answer) -> str:
    return "end_turn" if answer.call is None else "tool_use"


def _block(index: int, block: Json, deltas: list[Json]) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": index, "content_block": block}
    if index == 0:
        yield {"type": "ping"}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
