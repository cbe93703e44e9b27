"""What the four APIs' answers say of tokens, of their own end, and of what went wrong.

Each reads the JSON of a stream's events, or of a whole answer, one object at a time:

Anthropic Messages: tokens in ``message_start`` and ``message_delta``, input without the cache; its
end is ``message_stop``. OpenAI Responses: both in the last event. Chat Completions: tokens in
``usage``, in a stream only if the client asked for it (``stream_options.include_usage``); its end
is ``[DONE]`` or a ``finish_reason``. Gemini: tokens in each event's ``usageMetadata``, thoughts
apart; its end is a ``finishReason`` or a block.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from rl_bench.gateway.json_read import Object, count, obj, text
from rl_bench.gateway.routes import Dialect
from rl_bench.gateway.usage import NO_TOKENS, Tokens


class Problem(NamedTuple):
    """An error as the provider worded it: type and code, words, a status if it has one."""

    kind: str
    message: str
    status: int | None = None


def problem_in(item: Object) -> Problem | None:
    """The error in an answer, whichever API wrote it."""
    found = item.get("error")
    if isinstance(found, str):
        return Problem("", found)
    if not isinstance(found, dict):
        return None
    kinds = [text(found, key) for key in ("type", "code", "status")]
    status = count(found, "code")
    return Problem(" ".join(kind for kind in kinds if kind), text(found, "message"), status)


class AnswerState(ABC):
    """What is known of an answer so far.

    Attributes:
        is_ended: It said that it is over.
        problem: The error in it.
    """

    def __init__(self) -> None:
        self.is_ended = False
        self.problem: Problem | None = None

    @property
    @abstractmethod
    def tokens(self) -> Tokens:
        """What was told so far."""

    @abstractmethod
    def take(self, item: Object) -> None:
        """Reads one event, or the whole answer."""

    def done(self) -> None:
        """Reads ``[DONE]``."""
        self.is_ended = True


class MessagesState(AnswerState):
    """Anthropic Messages."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, object] = {}
        self._knows_output = False

    def take(self, item: Object) -> None:
        kind = text(item, "type")
        if kind == "message_start":
            self._add(obj(item, "message", "usage"))
        elif kind == "message_delta":
            self._add(obj(item, "usage"))
            self._knows_output = True
        elif kind == "message_stop":
            self.is_ended = True
        elif kind == "message":
            self._add(obj(item, "usage"))
            self._knows_output = self.is_ended = True
        elif kind == "error":
            self.problem = problem_in(item)

    def _add(self, usage: Object) -> None:
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    @property
    def tokens(self) -> Tokens:
        fresh = count(self._usage, "input_tokens")
        cached = count(self._usage, "cache_read_input_tokens") or 0
        written = count(self._usage, "cache_creation_input_tokens") or 0
        if fresh is None:
            return NO_TOKENS
        return Tokens(
            input=fresh + cached + written,
            # What message_start says of the output is not what it came to.
            output=count(self._usage, "output_tokens") if self._knows_output else None,
            cached=cached,
            cache_write=written,
        )


class _OpenAiState(AnswerState):
    """What both APIs of OpenAI share: usage whose input includes the cache."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens = NO_TOKENS

    @property
    def tokens(self) -> Tokens:
        return self._tokens

    def _read(self, usage: Object, *, given: str, made: str) -> None:
        told = count(usage, f"{given}_tokens")
        if told is None:
            return
        details = obj(usage, f"{given}_tokens_details")
        cached = count(details, "cached_tokens")
        if cached is None:
            cached = count(usage, "prompt_cache_hit_tokens")
        self._tokens = Tokens(
            input=told,
            output=count(usage, f"{made}_tokens"),
            cached=cached or 0,
            cache_write=count(details, "cache_write_tokens", "cache_creation_tokens") or 0,
        )


class ResponsesState(_OpenAiState):
    """OpenAI Responses."""

    def take(self, item: Object) -> None:
        kind = text(item, "type")
        if kind == "error":
            self.problem = problem_in(item) or Problem(text(item, "code"), text(item, "message"))
            return
        if text(item, "object") == "response":
            response, state = item, text(item, "status")
        else:
            response, state = obj(item, "response"), kind.removeprefix("response.")
        if state not in {"completed", "incomplete", "failed", "cancelled"}:
            return
        self._read(obj(response, "usage"), given="input", made="output")
        if state in {"completed", "incomplete"}:
            self.is_ended = True
        else:
            self.problem = problem_in(response) or Problem(state, "")


class ChatState(_OpenAiState):
    """OpenAI Chat Completions, and the many that speak it."""

    def take(self, item: Object) -> None:
        self._read(obj(item, "usage"), given="prompt", made="completion")
        self.problem = problem_in(item) or self.problem
        choices = item.get("choices")
        if isinstance(choices, list) and any(text(obj(c), "finish_reason") for c in choices):
            self.is_ended = True


class GeminiState(AnswerState):
    """Gemini."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: Object = {}

    def take(self, item: Object) -> None:
        self._usage = obj(item, "usageMetadata") or self._usage
        self.problem = problem_in(item) or self.problem
        candidates = item.get("candidates")
        if isinstance(candidates, list) and any(text(obj(c), "finishReason") for c in candidates):
            self.is_ended = True
        if text(obj(item, "promptFeedback"), "blockReason"):
            self.is_ended = True

    @property
    def tokens(self) -> Tokens:
        prompt = count(self._usage, "promptTokenCount")
        if prompt is None:
            return NO_TOKENS
        answer = count(self._usage, "candidatesTokenCount") or 0
        thoughts = count(self._usage, "thoughtsTokenCount") or 0
        return Tokens(
            input=prompt + (count(self._usage, "toolUsePromptTokenCount") or 0),
            output=answer + thoughts,
            cached=count(self._usage, "cachedContentTokenCount") or 0,
            cache_write=0,
        )


STATES: dict[Dialect, type[AnswerState]] = {
    Dialect.MESSAGES: MessagesState,
    Dialect.RESPONSES: ResponsesState,
    Dialect.CHAT: ChatState,
    Dialect.GEMINI: GeminiState,
}
