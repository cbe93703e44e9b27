"""What a demonstration is: the prompts of an evaluation, each with what should be said to it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from envs.protocol import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of a model.

    Attributes:
        prompts: Makes the evaluation's prompt and, after it, those that take its place, in this
            order, where it exceeds the context.
        answer: What should be said.
        stop: The string that ends the answer in the evaluation; when empty, the model ends it.
    """

    prompts: Callable[[], Iterable[Prompt]]
    answer: str
    stop: str = ""


Demo: TypeAlias = Sequence[Step]
"""The answers of one episode; a single one to a question."""
