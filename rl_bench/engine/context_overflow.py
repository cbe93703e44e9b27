"""What a server says when a prompt, or a prompt and its answer, do not fit the context.

There is no standard for it: every server has words of its own, and most tell the numbers.
"""

import re
from dataclasses import dataclass

from rl_bench.endpoint.failures import AskError

_STATUSES = frozenset({400, 413, 422})
_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_LIMIT = re.compile(
    r"(?:context (?:length|size)|configured limit)(?: is| of)? ?\(?(\d+)"  # most of them
    r"|must be <= (\d+)\. Given|must have less than (\d+) tokens"  # text-generation-inference
    r"|tokens > (\d+) maximum",  # gateways to Anthropic
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"(\d+) in (?:the messages|your prompt)|resulted in (\d+) tokens"  # OpenAI, older vLLM
    r"|prompt contains (?:at least )?(\d+) (?:input )?tokens"  # vLLM
    r"|(\d+) (?:tokens from the input|of text input)|input \((\d+) tokens\)"  # SGLang, OpenRouter
    r"|input length \((\d+)|request \((\d+) tokens\)"  # vLLM, llama.cpp
    r"|given: (\d+)|prompt is too long: (\d+)",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"max_tokens must be at least 1, got 0", re.IGNORECASE)
_ANSWER_LIMIT = re.compile(
    r"supports at most (\d+) completion tokens|cannot be greater than max_model_len=(\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Tokens of the context and of the prompt; 0: not told."""

    limit: int = 0
    num_prompt_tokens: int = 0

    @property
    def room(self) -> int | None:
        """Tokens that are left for an answer; ``None``: not known."""
        known = self.limit and self.num_prompt_tokens
        return max(0, self.limit - self.num_prompt_tokens) if known else None


def read_overflow(error: AskError) -> Overflow | None:
    """What a refusal says about the context; ``None``: it is about something else."""
    if error.status not in _STATUSES:
        return None
    limit = _number(_LIMIT, error.said)
    if not (limit or error.code in _CODES or _NO_ROOM.search(error.said)):
        return None
    return Overflow(limit=limit, num_prompt_tokens=_number(_PROMPT, error.said))


def read_answer_limit(error: AskError) -> int:
    """The most tokens that may be asked of an answer, if a refusal says it; else 0."""
    return _number(_ANSWER_LIMIT, error.said) if error.status in _STATUSES else 0


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(next(filter(None, found.groups()))) if found else 0
