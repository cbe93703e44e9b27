"""Requests and completions of a served model as JSON, on the OpenAI-compatible wire.

Everything that decides an answer is said, since servers have defaults of their own: vLLM and SGLang
take them from the checkpoint's ``generation_config.json``, the penalty of repetitions included.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from rl_bench.endpoint.body import Response, count_or_estimate, encodable, read_body
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest

LOG = logging.getLogger(__name__)

CHAT, TEXT = "/chat/completions", "/completions"
SUBSTITUTES: Mapping[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "seed": None,
    "stop": None,
}
"""Parameters that a grading can do without, and what says the same: a text is cut at its stop
strings here as well. How greedily a model answers is the protocol's, and never left to a server."""
_NEUTRAL: Mapping[str, float] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Defaults that a checkpoint's own settings would replace, by servers that take the parameters."""
_TAKE_NEUTRAL = frozenset({"vllm", "sglang"})
_STOPPED = frozenset({"stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls"})
_CUT = frozenset({"length", "max_tokens"})
_FILTERED = frozenset({"content_filter", "safety"})


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Response(Response[_Choice]):
    """Of either route."""


def request_body(
    request: GenerationRequest, *, model_id: str, max_tokens: int, owned_by: str
) -> dict[str, Any]:
    """The JSON body that asks ``request`` for at most ``max_tokens``.

    Args:
        request: Its route is `path_of`.
        model_id: The served model.
        max_tokens: No more than ``request.sampling`` allows.
        owned_by: Whose server it is, as its list of models says.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model_id,
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if request.messages is None:
        body["prompt"] = encodable(request.text or "")
    else:
        body["messages"] = [
            {"role": message["role"], "content": encodable(message["content"])}
            for message in request.messages
        ]
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if owned_by in _TAKE_NEUTRAL:
        body |= _NEUTRAL
    return body


def path_of(request: GenerationRequest) -> str:
    """The route that answers it: chats get the server's chat template, texts none."""
    return TEXT if request.messages is None else CHAT


def read_completion(
    content: bytes, request: GenerationRequest, *, max_tokens: int, max_model_len: int | None
) -> Completion:
    """The completion in a response with status 200.

    Tokens that the server does not count are estimated.

    Raises:
        AskError: There is none in it, or one that is not the model's own.
    """
    response = read_body(_Response, content, what="completion")
    if not response.choices:
        raise AskError("no choice in the answer", kind=FailureKind.UNREADABLE)
    choice = response.choices[0]
    text = _text(choice, is_chat=request.messages is not None)
    usage = response.usage if isinstance(response.usage, dict) else {}
    num_tokens = count_or_estimate(usage.get("completion_tokens"), [text])
    num_prompt_tokens = count_or_estimate(usage.get("prompt_tokens"), _prompt(request))
    finish = _finish_reason(choice.finish_reason, num_tokens, max_tokens=max_tokens)
    if max_model_len is not None and num_prompt_tokens >= max_model_len and not text:
        # A prompt that fills the context to its last token is taken, and leaves no room.
        return too_long(num_prompt_tokens, limit=max_model_len)
    cut = _cut(text, request.sampling.stop)
    return Completion(
        text=cut,
        num_prompt_tokens=num_prompt_tokens,
        num_tokens=num_tokens,
        finish_reason=finish if cut == text else FinishReason.STOP,
    )


def too_long(num_prompt_tokens: int, *, limit: int) -> Completion:
    """The completion of a prompt that does not fit ``limit`` tokens; 0: it is not known."""
    return Completion(
        text="",
        num_prompt_tokens=num_prompt_tokens,
        num_tokens=0,
        finish_reason=FinishReason.PROMPT_TOO_LONG,
        max_prompt_tokens=max(0, limit - 1),
    )


def _text(choice: _Choice, *, is_chat: bool) -> str:
    if not is_chat:
        if choice.text is None:
            raise AskError("no text in the answer", kind=FailureKind.UNREADABLE)
        return choice.text
    if choice.message is None:
        raise AskError("no message in the answer", kind=FailureKind.UNREADABLE)
    # Empty where a model has only thought, or ended at once.
    return choice.message.content or choice.message.refusal or ""


def _finish_reason(reason: str | None, num_tokens: int, *, max_tokens: int) -> FinishReason:
    """Servers that do not say why an answer ended are taken at their counts."""
    reason = (reason or "").lower()
    if reason in _FILTERED:
        raise AskError(
            f"the endpoint withholds an answer ({reason}), so it is not the model's own",
            cure="Grade it where no filter stands before it",
            kind=FailureKind.REFUSED,
        )
    if reason in _CUT or (not reason and num_tokens >= max_tokens):
        return FinishReason.LENGTH
    if not reason or reason in _STOPPED:
        return FinishReason.STOP
    raise AskError(f"the answer broke off ({reason})")


def _cut(text: str, stop: tuple[str, ...]) -> str:
    places = [place for each in stop if (place := text.find(each)) >= 0]
    return text[: min(places)] if places else text


def _prompt(request: GenerationRequest) -> list[str]:
    if request.messages is None:
        return [request.text or ""]
    return [message["content"] for message in request.messages]
