"""`RunView`: where a run stands, folded from its ledger one entry at a time.

The live table, resume, W&B and the Parquet tables all read the same view, so they cannot disagree.
Folding is pure, costs the same for every entry and keeps no items, calls or traces.

Each attempt starts a run afresh: `RunStarted` of attempt n + 1 resets everything here, so that only
the last attempt's baseline and submissions count. The tables keep earlier attempts' rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean

from rl_bench.agent_view import BREACH, AgentUse, Audit, DriverUse, plus
from rl_bench.events import (
    AgentEvent,
    AgentExited,
    AgentStarted,
    BaselineGraded,
    CodeChanged,
    DriverCall,
    Entry,
    Event,
    FindingMade,
    ModeAudited,
    Note,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    SandboxReady,
    StateChanged,
    SubmissionAccepted,
    SubmissionGraded,
    SubmissionRejected,
)
from rl_bench.noise import floor_of_mean, within_noise
from rl_bench.task_view import TaskView


@dataclass(slots=True, kw_only=True)
class RunView:
    """Where a run stands after the entries folded so far; see the module for attempts.

    Attributes:
        next_seq: ``seq`` of the entry to fold next; 0 for an empty view.
        tasks: One view a task, in the spec's order.
        is_final: The run has ended and will not be tried again.
        last_rejection: Reason and words of the last request answered 4xx; empty for none.
        budget_s: Seconds the agent may use; ``budget_used_s`` is the last known use of them.
        plugins: The plug-ins that it is made with, name and version.
        sandbox: What confines the agent, ``bwrap`` or ``none``; empty while it is not known.
        driver_use: What the gateway saw of the driver's calls.
        agent_use: What the agent's own output told.
        audit: What the rules found.
        num_revisions, last_revision: Of the agent's code.
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
    plugins: str = ""
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
    sandbox: str = ""
    sandbox_version: str = ""
    sandbox_warnings: tuple[str, ...] = ()
    driver_use: DriverUse = field(default_factory=DriverUse)
    agent_use: AgentUse = field(default_factory=AgentUse)
    audit: Audit = field(default_factory=Audit)
    num_revisions: int = 0
    last_revision: str = ""
    _attempt_start_s: float = 0.0
    _earlier_cost_usd: float | None = None
    _base_submissions: set[int] = field(default_factory=set)
    _tasks_of: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """What the ledger's end looked like: equal marks of one run are equal records."""
        return f"{self.next_seq}@{self.last_time_utc}"

    @property
    def num_attempts(self) -> int:
        """Attempts so far; 0 for a pending run."""
        return 0 if self.started_utc is None else self.attempt + 1

    @property
    def is_infrastructure(self) -> bool:
        """Whether the last attempt was ended by the runner or its services, not by the agent."""
        return self.end is not None and self.end.is_infrastructure

    @property
    def is_invalid(self) -> bool:
        """Whether a rule was broken: its scores are kept, marked, and count for nothing."""
        return self.end is RunEnd.INVALID

    @property
    def invalid_reason(self) -> str:
        """Which rule an invalid run broke, in words; empty for any other run."""
        return (self.end_detail or self.audit.run_breach) if self.is_invalid else ""

    @property
    def counts(self) -> bool:
        """Whether its score may enter a mean: ended for good, by the agent, within the rules."""
        return self.is_finished and not self.is_invalid

    @property
    def total_cost_usd(self) -> float | None:
        """What the driver cost in all attempts so far; None while no call's cost is known."""
        return plus(self._earlier_cost_usd, self.driver_use.cost_usd)

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
        self._take(event, now)

    def _take(self, event: Event, now: datetime) -> None:
        match event:
            case AgentEvent():
                self.agent_use.fold(event)
                self._read_agents_clock(event.budget_used_s, now)
            case DriverCall():
                self.driver_use.fold(event)
            case StateChanged():
                self.state = event.state
            case BaselineGraded():
                for evaluation in event.evaluations:
                    self._task(evaluation.task).fold_baseline(evaluation)
            case SandboxReady():
                self.sandbox = event.kind
                self.sandbox_version = event.version
                self.sandbox_warnings = event.warnings
            case AgentStarted():
                self.agent_use.start_session()
                self._set_budget(self.budget_used_s if event.session else 0.0, now)
            case CodeChanged():
                self.num_revisions += 1
                self.last_revision = event.revision
                self._read_agents_clock(event.budget_used_s, now)
            case ModeAudited():
                self.audit.fold_mode(event)
            case FindingMade():
                self._find(event)
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
                self.agent_use.num_live_children += event.num_live_children
                self.agent_use.children_wait_s += event.children_wait_s
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
            plugins=", ".join(f"{name} {version}" for name, version in event.plugins.items()),
            attempt=event.attempt,
            state=RunState.PREPARING,
            tasks={task.name: TaskView(task=task.name) for task in spec.tasks},
            budget_s=spec.budget.wall_clock_s,
            started_utc=now,
            _attempt_start_s=entry.elapsed_s,
            _earlier_cost_usd=self.total_cost_usd,
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

    def _read_agents_clock(self, used_s: float, now: datetime) -> None:
        # Told by what watches the agent, which may be a moment behind its exit.
        if self.budget_known_utc is not None:
            self._set_budget(used_s, now)

    def _find(self, event: FindingMade) -> None:
        self.audit.fold_finding(event)
        if event.severity == BREACH and event.submission_id is not None:
            for name in self._tasks_of.get(event.submission_id, ()):
                self._task(name).fold_invalid(event.submission_id)

    def _accept(self, event: SubmissionAccepted, now: datetime) -> None:
        self.num_submissions += 1
        self._tasks_of[event.submission_id] = event.tasks
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
