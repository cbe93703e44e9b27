"""What a task is: train data for the agent, and an evaluation that turns a checkpoint into a score.

A task never sees an engine's process, a Ray handle or a path of another run. It gets an
`EvalContext` and asks it for completions (static tasks) or for played episodes (interactive ones).
An item that could not be evaluated is an outcome with a status, never a zero.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

from rl_bench.config import JudgeConfig
from rl_bench.counts import plural
from rl_bench.engine.base import Completion, GenerationRequest
from rl_bench.grading_status import Tally
from rl_bench.judges.base import Judge

Scalar: TypeAlias = str | int | float | bool | None


class ItemStatus(StrEnum):
    """How an item's evaluation ended. Only ``OK`` items carry a score."""

    OK = "ok"
    ENV_ERROR = "env_error"
    ENV_TIMEOUT = "env_timeout"
    LOST = "lost"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutcome:
    """One evaluated question or episode.

    Attributes:
        item_id: Stable id within the task's evaluation set.
        status: Whether ``score`` is real.
        score: In [0, 1]; ``None`` unless ``status`` is ``ok``.
        num_steps: Environment steps; 1 for a static item.
        num_tokens: Tokens that the model generated for the item.
        duration_s: Wall time from first prompt to outcome.
        detail: Flat facts worth a look: prediction, answer, task type, actions, error.
    """

    item_id: str
    status: ItemStatus
    score: float | None
    num_steps: int = 1
    num_tokens: int = 0
    duration_s: float = 0.0
    detail: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """A task's verdict on one checkpoint.

    Attributes:
        score: 0 to 100 over ``num_items``, or ``None`` when the evaluation is void.
        failure: Why it is void; empty otherwise.
        num_items: The stated denominator: every item of the evaluation set.
        num_errors: Items with a status other than ``ok``. They count as not solved in ``score``
            while they stay under the task's limit, and void the evaluation above it.
        evaluator_version: Changes whenever the same outputs could score differently.
        metrics: Named secondary figures, e.g. per-type success in percent.
    """

    task: str
    score: float | None
    num_items: int
    num_errors: int
    evaluator_version: str
    items: tuple[ItemOutcome, ...] = ()
    failure: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode to play: an environment id of Gymnasium, its arguments and its reset options.

    ``env_kwargs`` and ``options`` are JSON values, so that an episode crosses processes as data. An
    environment that ``waits`` for others, e.g. a search service, is stepped in a thread, so that
    other episodes go on meanwhile; it must be safe for that.
    """

    episode_id: str
    env_id: str
    env_kwargs: Mapping[str, object]
    options: Mapping[str, object]
    seed: int = 0
    waits: bool = False


class EvalContext(Protocol):
    """What an evaluation may ask for while its checkpoint is loaded.

    Attributes:
        repeat: 0 for a checkpoint's first grading, 1, 2, … when it is graded again for the noise:
            it seeds whatever is random, and keeps a judge's earlier votes from being reused.
        tally: Where a task counts long work of its own, for those who wait; what it asks for here
            is counted already.
    """

    @property
    def repeat(self) -> int: ...

    @property
    def tally(self) -> Tally: ...

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Completions of the checkpoint under evaluation, in order."""
        ...

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        """Plays ``episodes`` with the named prompt protocol, in order; lost ones have a status."""
        ...

    def judge(self, config: JudgeConfig) -> Judge:
        """The judge that ``config`` describes; it is kept, and not the task's to close."""
        ...


class Task(Protocol):
    """One benchmark task. Constructed from its config; cheap until a method is called."""

    name: str

    @property
    def evaluator_version(self) -> str:
        """Differs whenever the same outputs could score differently."""
        ...

    def description(self) -> str:
        """Markdown for the agent's ``description.md``: the goal, the data, the metric."""
        ...

    def write_train_data(self, folder: Path) -> None:
        """Lays the train split out under ``folder`` (the workspace's ``data/``).

        Raises:
            PreflightError: Data are missing; names what and where it comes from.
        """
        ...

    def check_data(self) -> None:
        """Verifies within seconds that train and evaluation data are there.

        Raises:
            PreflightError: Data are missing; names what and where it comes from.
        """
        ...

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """The evaluation set's questions and answers: pairs of an item's id and one of its texts.

        For audits, which look for them in an agent's files; no agent is ever given them.

        Raises:
            PreflightError: Data are missing.
        """
        ...

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Scores the checkpoint that ``context`` speaks for."""
        ...


def aggregate(
    task: str,
    items: Sequence[ItemOutcome],
    *,
    evaluator_version: str,
    max_error_fraction: float = 0.05,
    metrics: Mapping[str, float] | None = None,
    duration_s: float = 0.0,
    score: float | None = None,
) -> EvalResult:
    """Turns item outcomes into a result with an explicit denominator.

    The denominator is every item. Items in error count as not solved, and are shown beside the
    score; when their fraction exceeds ``max_error_fraction`` the score is ``None``. A task whose
    ``score`` is no mean of its items' scores hands it in, and states what items in error do to it.

    Raises:
        ValueError: ``items`` is empty, or two share an id.
    """
    if not items:
        raise ValueError(f"task {task}: nothing was evaluated")
    if len({item.item_id for item in items}) < len(items):
        raise ValueError(f"task {task}: two items have one id, so that no pairs could be made")
    broken = [item for item in items if item.status is not ItemStatus.OK]
    num_errors = len(broken)
    void = num_errors > max_error_fraction * len(items)
    if score is None:
        solved = sum(item.score or 0.0 for item in items if item.status is ItemStatus.OK)
        score = 100.0 * solved / len(items)
    failure = _why_void(broken, num_items=len(items)) if void else ""
    if not math.isfinite(score):
        failure = failure or f"the score came out as {score}"
    return EvalResult(
        task=task,
        score=None if failure else score,
        failure=failure,
        num_items=len(items),
        num_errors=num_errors,
        evaluator_version=evaluator_version,
        items=tuple(items),
        metrics=dict(metrics or {}),
        duration_s=duration_s,
    )


def _why_void(broken: Sequence[ItemOutcome], *, num_items: int) -> str:
    """Counts by status, and the most frequent error."""
    kinds = Counter(item.status.value for item in broken)
    errors = Counter(str(item.detail["error"]) for item in broken if item.detail.get("error"))
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    example = f"; most often: {errors.most_common(1)[0][0][:300]}" if errors else ""
    return (
        f"{len(broken)} of {plural(num_items, 'item')} could not be evaluated ({counted}){example}"
    )
