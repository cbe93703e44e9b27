"""Grades jobs on a sweep's own graders and pool, and tells a watcher how they go."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import ray

from actors.factory import start_grading
from actors.remote import RemoteGrade
from actors.status_poll import StatusPoll
from rl_bench.errors import RlBenchError
from rl_bench.evaluation import EvaluationPlan
from rl_bench.events import Evaluation
from rl_bench.grading import Grade, GradeJob
from rl_bench.grading_status import GradingStatus
from rl_bench.scoreboard import failures

TICK_S = 0.5
CLOSE_LIMIT_S = 60.0


class Watcher(Protocol):
    """Told how a grading goes."""

    def begin(self, job: GradeJob) -> None:
        """A grader has taken the job."""
        ...

    def end(self, job: GradeJob, evaluation: Evaluation) -> None:
        """Its verdict is there; what could not be graded has one without a score."""
        ...

    def tick(self, statuses: Sequence[GradingStatus]) -> None:
        """Called every `TICK_S` with how far gradings are, as far as that is known."""
        ...


def grade_all(jobs: Sequence[GradeJob], *, plan: EvaluationPlan, watcher: Watcher) -> None:
    """Grades jobs of one task each, in order; ends the engines also when it is interrupted."""
    config = plan.experiment.grader
    grading = start_grading(
        config,
        cache=plan.experiment.paths.cache,
        logs=plan.paths.logs,
        cluster=plan.experiment.cluster,
    )
    grade = RemoteGrade(grading.pool)
    look = StatusPoll(list(grading.graders.values())).look
    try:
        asyncio.run(
            grade_each(grade, jobs, num_at_once=config.num_graders, watcher=watcher, look=look)
        )
    finally:
        closing = [grader.close.remote() for grader in grading.graders.values()]
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)


async def grade_each(
    grade: Grade,
    jobs: Sequence[GradeJob],
    *,
    num_at_once: int,
    watcher: Watcher,
    look: Callable[[], Sequence[GradingStatus]],
) -> None:
    """Grades jobs, ``num_at_once`` at a time; ``look`` tells at once how far they are."""
    # No more than the graders take: the pool's queue would hide what is running.
    free = asyncio.Semaphore(num_at_once)
    running = {asyncio.ensure_future(_graded(grade, job, free, watcher)) for job in jobs}
    while running:
        done, running = await asyncio.wait(
            running, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED
        )
        for each in done:
            each.result()  # raises what the watcher raised
        watcher.tick(look())


async def _graded(grade: Grade, job: GradeJob, free: asyncio.Semaphore, watcher: Watcher) -> None:
    async with free:
        watcher.begin(job)
        try:
            [evaluation] = await grade(job)
        except RlBenchError as error:
            [evaluation] = failures(job.tasks, f"{type(error).__name__}: {error}")
        watcher.end(job, evaluation)
