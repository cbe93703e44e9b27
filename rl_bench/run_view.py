"""`RunView`: where a run stands, folded from its ledger one entry at a time.

The live table, resume, W&B and the Parquet tables all read the same view, so they cannot disagree.
Folding is pure, costs the same for every entry and keeps no items. A failure is never a score:
what could not be graded is counted in ``num_failed`` and leaves ``best`` alone.

Each attempt starts a run afresh: `RunStarted` of attempt n + 1 resets everything here, so that only
the last attempt's baseline and submissions count. The tables keep earlier attempts' rows.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean

from rl_bench.context_fit import context_remark
from rl_bench.events import (
    AgentExited,
    AgentStarted,
    BaselineGraded,
    Entry,
    Evaluation,
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
from rl_bench.noise import floor_of_mean, within_noise


def score_of(evaluation: Evaluation) -> float | None:
    """The evaluation's score, or None when it has none or it is no finite number."""
    score = evaluation.score
    return score if score is not None and math.isfinite(score) else None


def failure_of(evaluation: Evaluation) -> str:
    """Why an evaluation has no score; empty when it has one."""
    if score_of(evaluation) is not None:
        return ""
    return evaluation.failure or "no score"


def missing_items(evaluation: Evaluation) -> str:
    """Its items without a verdict, by kind: ``12 of 805 unjudged``; empty when each has one."""
    if not evaluation.num_errors:
        return ""
    kinds = Counter(item.status for item in evaluation.items if item.score is None)
    counts = kinds.most_common() or [("without a verdict", evaluation.num_errors)]
    return ", ".join(f"{num} of {evaluation.num_items} {kind}" for kind, num in counts)


def difference(score: float | None, baseline: float | None) -> float | None:
    """``score - baseline`` in points, or None when either is missing."""
    return None if score is None or baseline is None else score - baseline


@dataclass(slots=True, kw_only=True)
class TaskView:
    """One task of a run, in its last attempt.

    Attributes:
        baseline: The base model's score, 0 to 100; None until graded, or when that failed.
        baseline_scores: When it was graded more than once, the scores whose mean ``baseline`` is.
        noise_floor: What two gradings of one checkpoint differ by, points, see `rl_bench.noise`;
            None when the base model was graded once.
        baseline_missing: Its items without a verdict in words, see `missing_items`.
        baseline_outgrown: What did not fit the model's context, see `rl_bench.context_fit`.
        first, first_submission_id: The earliest submission with a score: what later ones built on.
        best: The highest score of a submission; None while there is none.
        best_submission_id: The first submission that reached ``best``.
        best_unchanged: That submission was the base model itself.
        num_submissions: Accepted for this task.
        last_missing: The latest graded submission's items without a verdict in words.
        num_incomplete: Submissions with a score although some items have no verdict, and the words
            for the latest of them in ``incomplete_example``.
        queue_s: Seconds that evaluations waited for a grader, the baseline's included.
        load_s: Seconds spent loading weights.
        grading_s: Seconds of evaluation proper.
    """

    task: str
    baseline: float | None = None
    baseline_failure: str = ""
    baseline_scores: tuple[float, ...] = ()
    baseline_num_errors: int | None = None
    baseline_missing: str = ""
    baseline_outgrown: str = ""
    noise_floor: float | None = None
    first: float | None = None
    first_submission_id: int | None = None
    best: float | None = None
    best_submission_id: int | None = None
    best_unchanged: bool = False
    num_submissions: int = 0
    last_submission_id: int | None = None
    last_score: float | None = None
    last_failure: str = ""
    last_missing: str = ""
    num_incomplete: int = 0
    incomplete_example: str = ""
    queue_s: float = 0.0
    load_s: float = 0.0
    grading_s: float = 0.0
    num_items: int | None = None
    evaluator_version: str = ""
    _graded: set[int] = field(default_factory=set)
    _failed: set[int] = field(default_factory=set)

    @property
    def improvement(self) -> float | None:
        """``best`` less ``baseline``, in points."""
        return difference(self.best, self.baseline)

    @property
    def within_noise(self) -> bool | None:
        """Whether ``improvement`` lies within the noise floor; None when either is unknown."""
        return within_noise(self.improvement, self.noise_floor)

    @property
    def num_graded(self) -> int:
        """Submissions with a score."""
        return len(self._graded)

    @property
    def num_failed(self) -> int:
        """Submissions whose evaluation gave no score."""
        return len(self._failed)

    @property
    def num_pending(self) -> int:
        """Accepted and not graded yet."""
        return self.num_submissions - self.num_graded - self.num_failed

    def _take(self, evaluation: Evaluation) -> None:
        self.queue_s += evaluation.queue_s
        self.load_s += evaluation.load_s
        self.grading_s += evaluation.duration_s
        self.num_items = evaluation.num_items
        self.evaluator_version = evaluation.evaluator_version

    def fold_baseline(self, evaluation: Evaluation) -> None:
        """Takes the base model's evaluation."""
        self._take(evaluation)
        self.baseline = score_of(evaluation)
        self.baseline_failure = failure_of(evaluation)
        self.baseline_scores = evaluation.repeat_scores
        self.baseline_num_errors = evaluation.num_errors
        self.baseline_missing = missing_items(evaluation)
        self.baseline_outgrown = context_remark(evaluation)
        self.noise_floor = evaluation.noise_floor

    def fold_submission(self, evaluation: Evaluation, *, submission_id: int, is_base: bool) -> None:
        """Takes a submission's evaluation; a score above ``best`` becomes the best.

        A second verdict counts only when the first was a failure, which it then replaces.
        """
        if submission_id in self._graded:
            return
        self._take(evaluation)
        score = score_of(evaluation)
        self.last_submission_id = submission_id
        self.last_score = score
        self.last_failure = failure_of(evaluation)
        self.last_missing = missing_items(evaluation)
        self._failed.discard(submission_id)
        (self._failed if score is None else self._graded).add(submission_id)
        if score is None:
            return
        if self.last_missing:
            self.num_incomplete += 1
            self.incomplete_example = f"submission {submission_id}: {self.last_missing}"
        if self.first_submission_id is None or submission_id < self.first_submission_id:
            self.first, self.first_submission_id = score, submission_id
        if self.best is None or score > self.best:
            self.best = score
            self.best_submission_id = submission_id
            self.best_unchanged = is_base


@dataclass(slots=True, kw_only=True)
class RunView:
    """Where a run stands after the entries folded so far; see the module for attempts.

    Attributes:
        next_seq: ``seq`` of the entry to fold next; 0 for an empty view.
        tasks: One view a task, in the spec's order.
        is_final: The run has ended and will not be tried again.
        last_rejection: Reason and words of the last request answered 4xx; empty for none.
        budget_s: Seconds the agent may use; ``budget_used_s`` is the last known use of them.
        last_time_utc: Of the last entry, as the ledger has it.
        budget_known_utc: When ``budget_used_s`` was read; None while the clock stands still.
        duration_s: Seconds from the attempt's start to its last entry, monotonic.
    """

    run_id: str
    next_seq: int = 0
    sweep: str = ""
    agent: str = ""
    driver: str = ""
    mode: str = ""
    model: str = ""
    seed: int = 0
    attempt: int = 0
    state: RunState = RunState.PENDING
    end: RunEnd | None = None
    end_detail: str = ""
    is_final: bool = False
    tasks: dict[str, TaskView] = field(default_factory=dict)
    num_submissions: int = 0
    num_rejected: int = 0
    last_rejection: str = ""
    num_warnings: int = 0
    last_warning: str = ""
    budget_s: float = 0.0
    budget_used_s: float = 0.0
    budget_known_utc: datetime | None = None
    exit_code: int | None = None
    killed: bool = False
    started_utc: datetime | None = None
    ended_utc: datetime | None = None
    duration_s: float = 0.0
    last_time_utc: str = ""
    _attempt_start_s: float = 0.0
    _base_submissions: set[int] = field(default_factory=set)

    @property
    def num_attempts(self) -> int:
        """Attempts so far; 0 for a pending run."""
        return 0 if self.started_utc is None else self.attempt + 1

    @property
    def is_infrastructure(self) -> bool:
        """Whether the last attempt was ended by the runner or its services, not by the agent."""
        return self.end is not None and self.end.is_infrastructure

    @property
    def is_finished(self) -> bool:
        """Whether resume need not run it again: finished for good, not through infrastructure."""
        return self.is_final and not self.is_infrastructure

    @property
    def baseline(self) -> float | None:
        """The task's baseline; for several tasks their mean, None unless each has one."""
        return _mean(task.baseline for task in self.tasks.values())

    @property
    def best(self) -> float | None:
        """The task's best score; for several tasks the mean of the bests, None unless complete."""
        return _mean(task.best for task in self.tasks.values())

    @property
    def improvement(self) -> float | None:
        """Best less baseline, in points; for several tasks the mean, None unless complete."""
        return _mean(task.improvement for task in self.tasks.values())

    @property
    def within_noise(self) -> bool | None:
        """Whether ``improvement`` lies within the noise; None unless each task's is known."""
        floors = [task.noise_floor for task in self.tasks.values() if task.noise_floor is not None]
        complete = len(floors) == len(self.tasks)
        return within_noise(self.improvement, floor_of_mean(floors) if complete else None)

    @property
    def num_graded(self) -> int:
        """Task verdicts with a score."""
        return sum(task.num_graded for task in self.tasks.values())

    @property
    def num_failed(self) -> int:
        """Task verdicts without a score."""
        return sum(task.num_failed for task in self.tasks.values())

    def budget_left_s(self, now: datetime) -> float:
        """Seconds left at ``now`` (UTC), never negative.

        An estimate between events: queue waits that are credited back show at the next event.
        """
        used = self.budget_used_s
        if self.budget_known_utc is not None:
            used += max((now - self.budget_known_utc).total_seconds(), 0.0)
        return max(self.budget_s - used, 0.0)

    def elapsed_s(self, now: datetime) -> float:
        """Seconds since the attempt started; the whole duration once it has ended."""
        if self.started_utc is None:
            return 0.0
        if self.ended_utc is not None:
            return self.duration_s
        return max((now - self.started_utc).total_seconds(), 0.0)

    def fold(self, entry: Entry) -> None:
        """Takes the next entry of the run's ledger.

        Raises:
            ValueError: The entry's ``seq`` is not ``next_seq``.
        """
        if entry.seq != self.next_seq:
            raise ValueError(
                f"run {self.run_id}: entry {entry.seq} folded where {self.next_seq} belongs"
            )
        self.next_seq += 1
        self.last_time_utc = entry.time_utc
        now = datetime.fromisoformat(entry.time_utc)
        event = entry.event
        if isinstance(event, RunStarted):
            self._start(event, entry, now)
        if not isinstance(event, Note):
            self.duration_s = max(entry.elapsed_s - self._attempt_start_s, 0.0)
        match event:
            case StateChanged():
                self.state = event.state
            case BaselineGraded():
                for evaluation in event.evaluations:
                    self._task(evaluation.task).fold_baseline(evaluation)
            case AgentStarted():
                self._set_budget(0.0, now)
            case SubmissionAccepted():
                self._accept(event, now)
            case SubmissionRejected():
                self.num_rejected += 1
                self.last_rejection = f"{event.reason}: {event.message}"
                self._read_budget(event.budget_used_s, now)
            case SubmissionGraded():
                self._grade(event)
            case AgentExited():
                self.exit_code = event.exit_code
                self.killed = event.killed
                self._set_budget(event.budget_used_s, None)
            case RunFinished():
                self._finish(event, now)
            case Note() if event.level != "info":
                self.num_warnings += 1
                self.last_warning = event.message

    def _start(self, event: RunStarted, entry: Entry, now: datetime) -> None:
        spec = event.spec
        fresh = RunView(
            run_id=self.run_id,
            next_seq=self.next_seq,
            last_time_utc=entry.time_utc,
            sweep=event.sweep,
            agent=spec.agent.name,
            driver=spec.driver.name,
            mode=spec.mode.name,
            model=spec.model.name,
            seed=spec.seed,
            attempt=event.attempt,
            state=RunState.PREPARING,
            tasks={task.name: TaskView(task=task.name) for task in spec.tasks},
            budget_s=spec.budget.wall_clock_s,
            started_utc=now,
            _attempt_start_s=entry.elapsed_s,
        )
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))

    def _task(self, name: str) -> TaskView:
        return self.tasks.setdefault(name, TaskView(task=name))

    def _set_budget(self, used_s: float, known: datetime | None) -> None:
        self.budget_used_s = used_s
        self.budget_known_utc = known

    def _read_budget(self, used_s: float, now: datetime) -> None:
        # A late request must not start the clock again after the agent's exit stopped it.
        running = self.budget_known_utc is not None
        self._set_budget(used_s, now if running else None)

    def _accept(self, event: SubmissionAccepted, now: datetime) -> None:
        self.num_submissions += 1
        if event.unchanged:
            self._base_submissions.add(event.submission_id)
        for name in event.tasks:
            self._task(name).num_submissions += 1
        self._read_budget(event.budget_used_s, now)

    def _grade(self, event: SubmissionGraded) -> None:
        for evaluation in event.evaluations:
            self._task(evaluation.task).fold_submission(
                evaluation,
                submission_id=event.submission_id,
                is_base=event.submission_id in self._base_submissions,
            )

    def _finish(self, event: RunFinished, now: datetime) -> None:
        self.state = RunState.FINISHED
        self.end = event.end
        self.end_detail = event.detail
        self.is_final = event.final
        self.ended_utc = now
        self.budget_known_utc = None


def fold_all(run_id: str, entries: Iterable[Entry]) -> RunView:
    """The view after all ``entries`` of one ledger."""
    view = RunView(run_id=run_id)
    for entry in entries:
        view.fold(entry)
    return view


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    numbers = [value for value in known if value is not None]
    return fmean(numbers) if numbers and len(numbers) == len(known) else None
