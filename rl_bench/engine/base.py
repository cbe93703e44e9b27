"""What the grader asks of an inference engine.

An engine holds one loaded checkpoint and answers requests for it. Prompts are tokenised with the
*loaded checkpoint's* tokenizer and chat template, by the engine's own side, since a submission may
bring another one than the base model's. Engines know nothing of tasks, scores or Ray.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # the package loads Gymnasium
    from envs.protocol import ChatMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to decode. ``temperature=0`` is greedy; ``stop`` strings are cut from the text."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt, either chat ``messages`` (chat template applied) or raw ``text``."""

    sampling: Sampling
    messages: "tuple[ChatMessage, ...] | None" = None
    text: str | None = None

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.text is None):
            raise ValueError("a request has either messages or text")


def num_chars(request: GenerationRequest) -> int:
    """Characters of a prompt, without what a chat template adds."""
    messages = request.messages or ()
    return len(request.text or "") + sum(len(message["content"]) for message in messages)


class FinishReason(StrEnum):
    """Why a completion ended. ``PROMPT_TOO_LONG``: nothing was generated, shorten the prompt."""

    STOP = "stop"
    LENGTH = "length"
    PROMPT_TOO_LONG = "prompt_too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """An engine's answer: decoded text, token counts and why it ended.

    ``max_prompt_tokens`` comes with ``PROMPT_TOO_LONG``: the most that would have fitted.
    """

    text: str
    num_prompt_tokens: int
    num_tokens: int
    finish_reason: FinishReason
    max_prompt_tokens: int = 0


class LoadKind(StrEnum):
    """How a checkpoint came into the engine."""

    COLD = "cold"
    """A fresh engine was started."""
    WARM = "warm"
    """Weights were swapped in place."""
    RESIDENT = "resident"
    """The same content was loaded already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How a load went.

    Attributes:
        kind: What it took.
        seconds: Wall time of it all: reading and proving the checkpoint, engine, canary.
        engine_s: Of them, the swap or the start of an engine alone.
        staging_s: Of them, reading and packing the weights for a swap, beside the examination of
            the checkpoint.
    """

    kind: LoadKind
    seconds: float
    engine_s: float = 0.0
    staging_s: float = 0.0


OnCompletion: TypeAlias = Callable[[int, Completion], None]
"""Told the index of a request, and its completion."""


def ignore_completion(_index: int, _completion: Completion) -> None:
    """For who waits for all."""


class Engine(Protocol):
    """An inference engine that holds one checkpoint at a time."""

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        """Makes ``snapshot`` (a checkpoint folder) the one that answers.

        Raises:
            SubmissionError: The checkpoint itself is at fault (non-finite weights, ...).
            GraderError: The engine is at fault; the caller may retry.
        """
        ...

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        """Answers ``requests`` concurrently; ``result[i]`` belongs to ``requests[i]``.

        ``on_completion`` gets the index and the completion of each as it is answered.

        Raises:
            GraderError: The engine died or refused.
        """
        ...

    async def close(self) -> None:
        """Frees the engine's processes and memory; safe to call twice."""
        ...
