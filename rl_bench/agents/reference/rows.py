"""Demonstrations as token rows for supervised fine-tuning, with the loss on answers alone.

An episode whose prompts extend one another, as a chat's do, is one row with many answers; a prompt
that is made anew begins a row of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from rl_bench.agents.reference.demos import Demo, Step
from rl_bench.agents.reference.tokens import encode_answer, encode_prompt

IGNORED = -100
"""The label of a token that is read and not learnt, as torch's cross entropy has it."""


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids, and as many labels: the token where an answer is, else `IGNORED`."""

    input_ids: list[int]
    labels: list[int]


@dataclass(slots=True)
class Rows:
    """Rows of equal weight, and how many answers were ``too_long`` to be in one."""

    rows: list[Row] = field(default_factory=list)
    num_too_long: int = 0


def make_rows(
    tokenizer: PreTrainedTokenizerBase, demos: Iterable[Demo], *, max_length: int
) -> Rows:
    """The rows of ``demos``, in order.

    Args:
        tokenizer: The checkpoint's.
        demos: Demonstrations.
        max_length: Tokens of the context. A step takes the first of its prompts that fits with its
            answer, and is left out if none does.
    """
    made = Rows()
    for demo in demos:
        ids: list[int] = []
        labels: list[int] = []
        for step in demo:
            found = _fitting(tokenizer, step, max_length=max_length)
            if found is None:
                made.num_too_long += 1
                continue
            prompt, answer = found
            if prompt[: len(ids)] != ids:
                made.rows.append(Row(ids, labels))
                ids, labels = [], []
            labels = [*labels, *[IGNORED] * (len(prompt) - len(ids)), *answer]
            ids = [*prompt, *answer]
        if ids:
            made.rows.append(Row(ids, labels))
    return made


def _fitting(
    tokenizer: PreTrainedTokenizerBase, step: Step, *, max_length: int
) -> tuple[list[int], list[int]] | None:
    for prompt in step.prompts():
        ids = encode_prompt(tokenizer, prompt)
        answer = encode_answer(tokenizer, prompt, step.answer, stop=step.stop)
        if len(ids) + len(answer) <= max_length:
            return ids, answer
    return None
