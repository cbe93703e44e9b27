"""Answers of the four APIs, as small as they can be."""

import json

from rl_bench.config import Api


def event(item: dict[str, object] | str, *, name: str = "") -> bytes:
    """One server-sent event."""
    data = item if isinstance(item, str) else json.dumps(item)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def typed(*items: dict[str, object]) -> list[bytes]:
    """Events named by their type, as Anthropic and OpenAI's Responses send them."""
    return [event(item, name=str(item["type"])) for item in items]


def path_of(api: Api) -> str:
    """A route that streams."""
    return {
        Api.ANTHROPIC: "/v1/messages",
        Api.OPENAI: "/v1/responses",
        Api.GOOGLE: "/v1beta/models/m1:streamGenerateContent?alt=sse",
    }[api]


MESSAGES_USAGE: dict[str, object] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 200,
    "cache_read_input_tokens": 3000,
    "output_tokens": 1,
}
MESSAGES_START: dict[str, object] = {
    "type": "message_start",
    "message": {"id": "msg", "model": "m1", "usage": MESSAGES_USAGE},
}
MESSAGES_DELTA: dict[str, object] = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": "é"},
}
MESSAGES_STREAM = typed(
    MESSAGES_START,
    MESSAGES_DELTA,
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}},
    {"type": "message_stop"},
)
MESSAGES_WHOLE: dict[str, object] = {
    "type": "message",
    "content": [{"type": "text", "text": "hi"}],
    "usage": {**MESSAGES_USAGE, "output_tokens": 40},
}
RESPONSES_USAGE: dict[str, object] = {
    "input_tokens": 3210,
    "input_tokens_details": {"cached_tokens": 3000},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 30},
    "total_tokens": 3250,
}
RESPONSES_STREAM = typed(
    {"type": "response.created", "response": {"status": "in_progress", "usage": None}},
    {"type": "response.output_text.delta", "delta": "hi"},
    {
        "type": "response.completed",
        "response": {"object": "response", "status": "completed", "usage": RESPONSES_USAGE},
    },
)
RESPONSES_WHOLE: dict[str, object] = {
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [],
    "usage": RESPONSES_USAGE,
}
CHAT_USAGE: dict[str, object] = {
    "prompt_tokens": 3210,
    "completion_tokens": 40,
    "prompt_tokens_details": {"cached_tokens": 3000},
}
CHAT_TEXT: list[dict[str, object]] = [
    {"choices": [{"delta": {"content": "hi"}, "finish_reason": None}], "usage": None},
    {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None},
]
CHAT_STREAM = [
    *(event(item) for item in CHAT_TEXT),
    event({"choices": [], "usage": CHAT_USAGE}),
    event("[DONE]"),
]
CHAT_STREAM_NO_USAGE = [*(event(item) for item in CHAT_TEXT), event("[DONE]")]
CHAT_WHOLE: dict[str, object] = {
    "object": "chat.completion",
    "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
    "usage": CHAT_USAGE,
}
GEMINI_USAGE: dict[str, object] = {
    "promptTokenCount": 3200,
    "toolUsePromptTokenCount": 10,
    "cachedContentTokenCount": 3000,
    "candidatesTokenCount": 10,
    "thoughtsTokenCount": 30,
}
GEMINI_ITEMS: list[dict[str, object]] = [
    {
        "candidates": [{"content": {"parts": [{"text": "h"}]}}],
        "usageMetadata": {"promptTokenCount": 3200},
    },
    {"candidates": [{"finishReason": "STOP"}], "usageMetadata": GEMINI_USAGE},
]
GEMINI_STREAM = [f"data: {json.dumps(item)}\r\n\r\n".encode() for item in GEMINI_ITEMS]
