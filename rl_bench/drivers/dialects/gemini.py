"""Google's Gemini API, ``v1beta``.

Source: https://ai.google.dev/api/generate-content and https://ai.google.dev/api/tokens.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from rl_bench.drivers.dialects.base import JSON, SSE, Json, MalformedError, Stamp, event
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
from rl_bench.drivers.loose import mapping, rows, string


class StreamForm(StrEnum):
    """Events, which ``alt=sse`` asks for, or the elements of one array."""

    SSE = "sse"
    ARRAY = "array"


class GenerateContent:
    """A request to ``models/M:generateContent`` or ``:streamGenerateContent``.

    Args:
        body: The request.
        stamp: Marks the answer.
        model: M.
        streams_as: The form of the second one's answer; None: it is the first one.

    Raises:
        MalformedError: It lacks ``contents``.
    """

    def __init__(
        self,
        body: Mapping[str, object],
        stamp: Stamp,
        *,
        model: str,
        streams_as: StreamForm | None = None,
    ) -> None:
        contents = _contents(body)
        last = max((n for n, row in enumerate(contents) if row.get("role") == "model"), default=0)
        head = [body.get("systemInstruction"), body.get("tools")]
        self._stamp = stamp
        self._is_array = streams_as is StreamForm.ARRAY
        self.stream_type = JSON if self._is_array else SSE
        self.ask = Ask(
            model=model,
            stream=streams_as is not None,
            turns=tuple(_turns(contents)),
            tools=tuple(_tools(body)),
            schema=_schema(body),
            num_tokens=FRAME_TOKENS + count_tokens([*head, *contents]),
            num_cached=count_tokens([*head, *contents[:last]]) if last else 0,
        )

    def whole(self, answer: Answer) -> Json:
        """See `Exchange.whole`."""
        text: list[Json] = [{"text": answer.text}] if answer.text else []
        parts = [*text, *_call_parts(answer)]
        return self._chunk(parts, num_output=answer.num_tokens, reason="STOP")

    def stream(self, answer: Answer) -> list[bytes]:
        """See `Exchange.stream`."""
        chunks = self._chunks(answer)
        if not self._is_array:
            return [event(chunk) for chunk in chunks]
        rows = [("," if number else "[") + compact(row) for number, row in enumerate(chunks)]
        return [f"{row}\n".encode("utf-8", "replace") for row in [*rows, "]"]]

    def _chunks(self, answer: Answer) -> list[Json]:
        parts: list[Json] = [{"text": piece} for piece in pieces(answer.text)]
        *early, last = [*parts, *_call_parts(answer)] or [{"text": ""}]
        num = [max(1, count_tokens([early[: n + 1]])) for n in range(len(early))]
        chunks = [self._chunk([part], num_output=n) for part, n in zip(early, num, strict=True)]
        return [*chunks, self._chunk([last], num_output=answer.num_tokens, reason="STOP")]

    def broken(self, message: str, *, num_sent: int) -> bytes:
        """See `Exchange.broken`."""
        words = message or "The model is overloaded. Please try again later."
        error: Json = {"code": 503, "message": words, "status": "UNAVAILABLE"}
        text = compact({"error": error})
        # Among events it stands bare: Google's clients look for an object, not for an event.
        return (f",{text}\n]" if self._is_array else text).encode("utf-8", "replace")

    def _chunk(self, parts: list[Json], *, num_output: int, reason: str = "") -> Json:
        candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        return {
            "candidates": [candidate],
            "usageMetadata": self._usage(num_output),
            "modelVersion": self.ask.model,
            "responseId": self._stamp.id("", length=22),
        }

    def _usage(self, num_output: int) -> Json:
        ask = self.ask
        cached: Json = (
            {
                "cachedContentTokenCount": ask.num_cached,
                "cacheTokensDetails": _modality(ask.num_cached),
            }
            if ask.num_cached
            else {}
        )
        return {
            "promptTokenCount": ask.num_tokens,
            "candidatesTokenCount": num_output,
            "totalTokenCount": ask.num_tokens + num_output,
            **cached,
            "promptTokensDetails": _modality(ask.num_tokens),
        }


def count_body(body: Mapping[str, object]) -> Json:
    """The answer of ``models/M:countTokens``.

    Raises:
        MalformedError: It lacks ``contents``.
    """
    request = mapping(body.get("generateContentRequest")) or body
    head = [request.get("systemInstruction"), request.get("tools")]
    num = FRAME_TOKENS + count_tokens([*head, *_contents(request)])
    return {"totalTokens": num, "promptTokensDetails": _modality(num)}


def _modality(num_tokens: int) -> list[Json]:
    return [{"modality": "TEXT", "tokenCount": num_tokens}]


def _contents(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    contents = rows(body.get("contents"))
    if not contents:
        raise MalformedError("* GenerateContentRequest.contents: contents is not specified")
    return contents


def _turns(contents: list[Mapping[str, object]]) -> Iterator[Turn]:
    calls = Calls()
    for content in contents:
        for part in rows(content.get("parts")):
            call = mapping(part.get("functionCall"))
            result = mapping(part.get("functionResponse"))
            if call:
                name, arguments = string(call.get("name")), mapping(call.get("args"))
                yield calls.add(Called(name, arguments, string(call.get("id"))))
            elif result:
                # Ids are optional in this API; names are not.
                key = string(result.get("id")) or string(result.get("name"))
                yield calls.returned(key, _output(mapping(result.get("response"))))
            elif content.get("role") != "model":
                yield Told()
            elif part.get("thought") is not True:
                yield Words(string(part.get("text")))


def _output(response: Mapping[str, object]) -> str:
    given = response.get("output", response.get("error"))
    return given if isinstance(given, str) else compact(dict(response))


def _tools(body: Mapping[str, object]) -> Iterator[Tool]:
    for group in rows(body.get("tools")):
        for row in rows(group.get("functionDeclarations")):
            schema = mapping(row.get("parametersJsonSchema")) or mapping(row.get("parameters"))
            yield Tool(name=string(row.get("name")), schema=schema)


def _schema(body: Mapping[str, object]) -> Mapping[str, object] | None:
    config = mapping(body.get("generationConfig"))
    schema = mapping(config.get("responseJsonSchema")) or mapping(config.get("responseSchema"))
    if schema:
        return schema
    is_json = config.get("responseMimeType") == "application/json"
    return {"type": "object"} if is_json else None


def _call_parts(answer: Answer) -> list[Json]:
    if answer.call is None:
        return []
    call: Json = {"name": answer.call.name, "args": dict(answer.call.arguments)}
    return [{"functionCall": call}]
