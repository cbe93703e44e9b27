"""Carries out an evaluation without an agent: base model, Ray and graders, verdicts, table.

`run_evaluation` is what `rl_bench.evaluate` calls. The grading itself is in
`actors.evaluation_loop`, imported once Ray's environment is set. A verdict is on disk before the
next is waited for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from actors.ray_runtime import ray_runtime
from rl_bench.checkpoint import check_submission, content_hash, inspect
from rl_bench.endpoint.served import ServedModel, ask_served, identity
from rl_bench.errors import PreflightError, SubmissionError
from rl_bench.evaluation import EvaluationPlan, EvaluationRecord, save_record
from rl_bench.evaluation_view import EvaluationProgress, show_records
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.grading_status import GradingStatus
from rl_bench.models.base import resolve_model
from rl_bench.summary import EXIT_INCOMPLETE, EXIT_OK
from rl_bench.task_view import score_of
from rl_bench.waiting import told_while


def run_evaluation(plan: EvaluationPlan) -> int:
    """Grades the plan's checkpoint on each of its tasks; prints progress and a table.

    Returns:
        0 only if every task has a score.

    Raises:
        PreflightError: The name is taken, or the model or checkpoint cannot be graded, or the
            model is not served where it should be.
        GraderError: Ray could not start.
        SinkError: A verdict could not be kept.
    """
    names = [task.name for task in plan.tasks]
    with EvaluationProgress(names) as progress:
        if plan.endpoint is None:
            what = f"base model {plan.model.name}: preparing"
            progress.say(what)
            with told_while(what, progress.say):
                base = resolve_model(plan.model, cache=plan.experiment.paths.cache)
            folder = _checked(plan, base=base)
            served, jobs = None, _jobs(plan, folder=folder, digest=content_hash(folder))
        else:
            progress.say(f"asking {plan.endpoint.base_url} for {plan.endpoint.model_id}")
            served = ask_served(plan.endpoint)
            jobs = _jobs(plan, folder=Path(), digest=identity(plan.endpoint))
        _claim(plan)
        book = _Book(plan=plan, progress=progress, served=served)
        progress.say(f"results go to {plan.paths.root}")
        with ray_runtime(plan.experiment.cluster, say=progress.say):
            from actors.evaluation_loop import grade_all

            grade_all(jobs, plan=plan, watcher=book)
    records = sorted(book.records, key=lambda record: names.index(record.task.name))
    show_records(records, paths=plan.paths)
    complete = all(score_of(record.evaluation) is not None for record in records)
    return EXIT_OK if complete else EXIT_INCOMPLETE


@dataclass(slots=True, kw_only=True)
class _Book:
    """Keeps each verdict as it comes, then tells of it."""

    plan: EvaluationPlan
    progress: EvaluationProgress
    served: ServedModel | None
    records: list[EvaluationRecord] = field(default_factory=list)

    def begin(self, job: GradeJob) -> None:
        self.progress.begin(job.tasks[0].name)

    def end(self, job: GradeJob, evaluation: Evaluation) -> None:
        record = EvaluationRecord(
            name=self.plan.name,
            time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            model=job.model if self.served is None or self.plan.names_model else None,
            checkpoint=str(job.snapshot) if self.served is None else "",
            content_hash=job.content_hash if self.served is None else "",
            served=self.served,
            task=job.tasks[0],
            grader=self.plan.experiment.grader,
            evaluation=evaluation,
        )
        save_record(self.plan.paths, record)
        self.records.append(record)
        self.progress.end(evaluation)

    def tick(self, statuses: Sequence[GradingStatus]) -> None:
        self.progress.tick(statuses)


def _claim(plan: EvaluationPlan) -> None:
    """Makes the evaluation's folder, which must be new: nothing is ever written over."""
    root = plan.paths.root
    try:
        root.mkdir(parents=True)
    except FileExistsError as error:
        raise PreflightError(f"{root} exists", cure="Choose another name=") from error
    except OSError as error:
        raise PreflightError(
            f"{root} cannot be made: {error}", cure="Choose another paths.results="
        ) from error


def _checked(plan: EvaluationPlan, *, base: Path) -> Path:
    """The folder to grade; a checkpoint must descend from the base model, as a submission must."""
    if plan.checkpoint is None:
        return base
    try:
        check_submission(plan.checkpoint, inspect(base))
    except SubmissionError as error:
        raise PreflightError(
            f"checkpoint={plan.checkpoint} cannot be graded: {error.message}",
            cure=error.cure or f"model= names its base model, now {plan.model.name}",
        ) from error
    return plan.checkpoint


def _jobs(plan: EvaluationPlan, *, folder: Path, digest: str) -> list[GradeJob]:
    """One a task, each a baseline's: graded as often as the task says."""
    return [
        GradeJob(
            run_id=f"{plan.name}/{spec.tasks[0].name}",
            submission_id=None,
            snapshot=folder,
            content_hash=digest,
            tasks=spec.tasks,
            model=spec.model,
        )
        for spec in plan.specs
    ]
