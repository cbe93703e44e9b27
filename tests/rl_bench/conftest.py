"""A `Story` writes a real ledger of one run, event by event, for the tests of what reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from rl_bench.config import (
    AgentConfig,
    RunSpec,
)
from rl_bench.events import (
    AgentExited,
    AgentStarted,
    BaselineGraded,
    Entry,
    Evaluation,
    Event,
    Item,
    Note,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    StateChanged,
    SubmissionAccepted,
    SubmissionGraded,
    SubmissionRejected,
)
from rl_bench.ledger import Ledger
from rl_bench.noise import repeatability_limit
from rl_bench.paths import SweepPaths
from tests.run_specs import run_spec


def make_spec(*, tasks: tuple[str, ...] = ("alfworld",), seed: int = 0) -> RunSpec:
    return run_spec(
        *tasks,
        mode="multi" if len(tasks) > 1 else "sft_only",
        agent=AgentConfig(name="reference", argv=("true",)),
        seed=seed,
    )


def make_evaluation(
    score: float | None, *, task: str = "alfworld", num_items: int = 3, failure: str = ""
) -> Evaluation:
    items = tuple(
        Item(
            item_id=f"game{i}",
            status="ok" if i else "env_error",
            score=1.0 if i else None,
            num_steps=4,
            num_tokens=20,
            duration_s=0.5,
            detail={"won": bool(i), "actions": 'take "x"\n'},
        )
        for i in range(num_items)
    )
    return Evaluation(
        task=task,
        score=score,
        failure=failure,
        num_items=num_items,
        num_errors=1,
        evaluator_version="1",
        metrics={"mean_steps": 4.0},
        items=items,
        queue_s=1.0,
        load_s=0.25,
        load_kind="warm",
        duration_s=2.0,
    )


class Story:
    """Writes the ledger of one run of a sweep under ``paths``."""

    def __init__(self, paths: SweepPaths, run_id: str, *, spec: RunSpec | None = None) -> None:
        self.run_id = run_id
        self.spec = spec or make_spec()
        self.path = paths.run(run_id).ledger
        self.ledger = Ledger(self.path)
        self.entries: list[Entry] = []

    def add(self, *events: Event) -> "Story":
        self.entries += [self.ledger.append(event) for event in events]
        return self

    def start(self, attempt: int = 0) -> "Story":
        return self.add(
            RunStarted(run_id=self.run_id, sweep="s", attempt=attempt, spec=self.spec),
            StateChanged(state=RunState.BASELINE),
        )

    def baseline(self, *scores: float | None, repeat_scores: tuple[float, ...] = ()) -> "Story":
        evaluations = tuple(
            make_evaluation(score, task=task.name).model_copy(
                update={
                    "repeat_scores": repeat_scores,
                    "noise_floor": repeatability_limit(repeat_scores),
                }
            )
            for score, task in zip(scores, self.spec.tasks, strict=True)
        )
        return self.add(
            BaselineGraded(content_hash="base", evaluations=evaluations),
            StateChanged(state=RunState.RUNNING),
            AgentStarted(pid=1, argv=("true",)),
        )

    def accept(
        self, submission_id: int, *, used_s: float = 10.0, unchanged: bool = False
    ) -> "Story":
        return self.add(
            SubmissionAccepted(
                submission_id=submission_id,
                model_path="output/m",
                content_hash=f"hash{submission_id}",
                tasks=tuple(task.name for task in self.spec.tasks),
                budget_used_s=used_s,
                unchanged=unchanged,
            )
        )

    def grade(self, submission_id: int, *scores: float | None, failure: str = "") -> "Story":
        evaluations = tuple(
            make_evaluation(score, task=task.name, failure=failure if score is None else "")
            for score, task in zip(scores, self.spec.tasks, strict=True)
        )
        return self.add(SubmissionGraded(submission_id=submission_id, evaluations=evaluations))

    def submit(
        self, submission_id: int, *scores: float | None, used_s: float = 10.0, failure: str = ""
    ) -> "Story":
        return self.accept(submission_id, used_s=used_s).grade(
            submission_id, *scores, failure=failure
        )

    def reject(self) -> "Story":
        return self.add(
            SubmissionRejected(
                model_path="x", reason="adapter_only", message="m", status=422, budget_used_s=20
            )
        )

    def warn(self, message: str) -> "Story":
        return self.add(Note(level="warning", topic="t", message=message))

    def finish(
        self, end: RunEnd = RunEnd.COMPLETED, *, final: bool = True, detail: str = ""
    ) -> "Story":
        return self.add(
            AgentExited(exit_code=0, killed=False, budget_used_s=55.0),
            StateChanged(state=RunState.CLOSING),
            RunFinished(end=end, final=final, detail=detail),
        )


MakeStory: TypeAlias = Callable[..., Story]
"""The fixture ``story``: ``story("run0", tasks=("a", "b"), seed=1)``."""


@pytest.fixture
def sweep_paths(tmp_path: Path) -> SweepPaths:
    """An empty sweep's folder, named ``s``."""
    return SweepPaths(tmp_path / "s")


@pytest.fixture
def story(sweep_paths: SweepPaths) -> MakeStory:
    """Makes stories of runs."""

    def make(run_id: str, *, tasks: tuple[str, ...] = ("alfworld",), seed: int = 0) -> Story:
        return Story(sweep_paths, run_id, spec=make_spec(tasks=tasks, seed=seed))

    return make
