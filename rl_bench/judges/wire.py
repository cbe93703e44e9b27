"""A chat request and its response as JSON, on the OpenAI-compatible wire.

Only what verdicts need is read, since gateways leave out or misspell the rest. What a response
means for a vote is decided here as far as the request says what was wanted; the task's own reading
comes after.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from rl_bench.endpoint.body import (
    MAX_SHOWN_CHARS,
    Response,
    count_or_estimate,
    encodable,
    read_body,
)
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.judges.base import JudgeReply, JudgeRequest

_CUT = "cut by its limit of tokens: raise max_tokens of the judge"


class _Function(BaseModel):
    name: str
    arguments: str


class _Call(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Alternative(BaseModel):
    token: str
    logprob: float


class _Token(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class ChatResponse(Response[_Choice]):
    """A chat completion."""


def request_body(
    request: JudgeRequest, *, model: str, max_tokens: int, temperature: float, seed: int | None
) -> dict[str, Any]:
    """The JSON body that asks ``request``."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": message["role"], "content": encodable(message["content"])}
            for message in request.messages
        ],
        "max_tokens": max_tokens,
        "temperature": temperature,
    }
    if seed is not None:
        body["seed"] = seed
    if request.top_logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.json_object:
        body["response_format"] = {"type": "json_object"}
    if request.function is not None:
        function = request.function
        described = {"description": function.description} if function.description else {}
        tool = {"name": function.name, **described, "parameters": dict(function.parameters)}
        body["tools"] = [{"type": "function", "function": tool}]
        body["tool_choice"] = {"type": "function", "function": {"name": function.name}}
    return body


def read_response(content: bytes) -> ChatResponse:
    """The body of a response with status 200.

    Raises:
        AskError: It is not a chat completion.
    """
    return read_body(ChatResponse, content, what="chat completion")


def count_tokens(response: ChatResponse, body: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of prompt and answer as the endpoint counts, or estimated where it does not.

    An account that took a missing count for zero would never reach its limit.
    """
    usage = response.usage if isinstance(response.usage, dict) else {}
    asked = (str(message["content"]) for message in body["messages"])
    said = (choice.message.model_dump_json() for choice in response.choices)
    return count_or_estimate(usage.get("prompt_tokens"), asked), count_or_estimate(
        usage.get("completion_tokens"), said
    )


def read_reply(
    response: ChatResponse, request: JudgeRequest, *, num_prompt_tokens: int, num_tokens: int
) -> JudgeReply:
    """The judge's answer, if it is of the kind that was asked for.

    Raises:
        AskError: It is unreadable: empty, refused, or without the call, the JSON or the
            log-probabilities that were asked for, or with some that are no numbers.
    """
    if not response.choices:
        raise _unreadable("no choice in the answer")
    choice = response.choices[0]
    message = choice.message
    arguments = _arguments(choice, request)
    top_logprobs = _top_logprobs(choice)
    text = message.content or ""
    if arguments is None and not text.strip():
        raise _unreadable(_why_empty(choice))
    if request.top_logprobs and not top_logprobs:
        raise _unreadable("no log-probabilities in the answer")
    if request.json_object:
        _check_json_object(text, choice, what="the answer")
    return JudgeReply(
        text=text,
        arguments=arguments,
        top_logprobs=top_logprobs,
        finish_reason=choice.finish_reason or "",
        num_prompt_tokens=num_prompt_tokens,
        num_tokens=num_tokens,
    )


def _arguments(choice: _Choice, request: JudgeRequest) -> str | None:
    if request.function is None:
        return None
    wanted, message = request.function.name, choice.message
    functions = [call.function for call in message.tool_calls or ()]
    for function in functions:
        if function.name == wanted:
            _check_json_object(function.arguments, choice, what=f"the arguments of {wanted}")
            return function.arguments
    instead = ", ".join(function.name for function in functions)
    said = message.refusal or (message.content or "").strip()
    if instead:
        raise _unreadable(f"{instead} was called, not {wanted}")
    raise _unreadable(f"{wanted} was not called" + (f": {said}" if said else ""))


def _top_logprobs(choice: _Choice) -> tuple[Mapping[str, float], ...]:
    tokens = (choice.logprobs.content if choice.logprobs else None) or ()
    return tuple(_by_token([token, *(token.top_logprobs or ())]) for token in tokens)


def _by_token(alternatives: Sequence[_Alternative]) -> dict[str, float]:
    """Different tokens may read alike when they are parts of characters: the likeliest counts.

    A token of probability 0 is no alternative; JSON has no number for its logarithm.
    """
    found: dict[str, float] = {}
    for alternative in alternatives:
        token, logprob = alternative.token, alternative.logprob
        if math.isnan(logprob) or logprob == math.inf:
            raise _unreadable(f"the log-probability of {token!r} is {logprob}")
        if logprob > -math.inf:
            found[token] = max(logprob, found.get(token, logprob))
    return found


def _why_empty(choice: _Choice) -> str:
    if choice.message.refusal:
        return f"the judge refuses: {choice.message.refusal}"
    if choice.finish_reason == "length":
        return f"empty answer, {_CUT}"
    reason = choice.finish_reason
    return "empty answer" + (f" ({reason})" if reason not in (None, "stop") else "")


def _check_json_object(text: str, choice: _Choice, *, what: str) -> None:
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # the latter: brackets nested by the thousand
        is_object = False
    if not is_object:
        cut = f", {_CUT}" if choice.finish_reason == "length" else ""
        raise _unreadable(f"no JSON object in {what}{cut}: {text[:MAX_SHOWN_CHARS]!r}")


def _unreadable(reason: str) -> AskError:
    return AskError(reason, kind=FailureKind.UNREADABLE)
