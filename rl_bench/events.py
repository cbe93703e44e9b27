"""The facts that a run's ledger holds, one class each: the vocabulary of all results.

Everything that a table, W&B or a summary shows is derived from these events. Times are UTC
(ISO 8601 with offset) for people and ``elapsed_s`` (monotonic, from the start of the attempt's
process) for arithmetic; ``budget_used_s`` counts on the run's clock (see `rl_bench.clock`).
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, field_validator

from rl_bench.config import Frozen, RunSpec


class RunState(StrEnum):
    """Where a run is; pending runs have no ledger yet."""

    PENDING = "pending"
    PREPARING = "preparing"
    BASELINE = "baseline"
    RUNNING = "running"
    CLOSING = "closing"
    FINISHED = "finished"


class RunEnd(StrEnum):
    """How a run ended, apart from its score."""

    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    NEVER_STARTED = "never_started"
    AGENT_ERROR = "agent_error"
    DRIVER_ERROR = "driver_error"
    HUNG_AFTER_RESULT = "hung_after_result"
    SANDBOX_BROKEN = "sandbox_broken"
    INFRA_ERROR = "infra_error"
    INVALID = "invalid"

    @property
    def is_infrastructure(self) -> bool:
        """Whether the runner or its services, not the agent, ended the run: retried, no score."""
        return self in {
            RunEnd.NEVER_STARTED,
            RunEnd.DRIVER_ERROR,
            RunEnd.SANDBOX_BROKEN,
            RunEnd.INFRA_ERROR,
        }


class Item(Frozen):
    """One item's outcome as recorded; see `rl_bench.tasks.base.ItemOutcome`."""

    item_id: str
    status: str
    score: float | None
    num_steps: int
    num_tokens: int
    duration_s: float
    detail: Mapping[str, str | int | float | bool | None] = {}


class Evaluation(Frozen):
    """A task's verdict as recorded; see `rl_bench.tasks.base.EvalResult`.

    ``queue_s``: waited for a grader; ``load_s``: weights; ``duration_s``: the evaluation alone.
    ``reused``: identical content was graded before and that verdict was taken. ``repeat_scores``:
    when it was graded more than once, the scores whose mean ``score`` is; ``noise_floor``: see
    `rl_bench.noise`, points.
    """

    task: str
    score: float | None
    failure: str = ""
    num_items: int
    num_errors: int
    evaluator_version: str
    metrics: Mapping[str, float] = {}
    repeat_scores: tuple[float, ...] = ()
    noise_floor: float | None = None
    items: tuple[Item, ...] = ()
    queue_s: float = 0.0
    load_s: float = 0.0
    load_kind: str = ""
    duration_s: float = 0.0
    reused: bool = False


class RunStarted(Frozen):
    """First event of each attempt (0, 1, …) at the run."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    sweep: str
    attempt: int
    spec: RunSpec


class StateChanged(Frozen):
    """The run entered ``state``."""

    type: Literal["state_changed"] = "state_changed"
    state: RunState


class BaselineGraded(Frozen):
    """The base model's score, one evaluation a task."""

    type: Literal["baseline_graded"] = "baseline_graded"
    content_hash: str
    evaluations: tuple[Evaluation, ...]


class AgentStarted(Frozen):
    """The agent's process started: the budget's clock starts here."""

    type: Literal["agent_started"] = "agent_started"
    pid: int
    argv: tuple[str, ...]


class AgentExited(Frozen):
    """The agent's process tree is gone. ``killed``: by us, at the deadline or on abort."""

    type: Literal["agent_exited"] = "agent_exited"
    exit_code: int | None
    killed: bool
    budget_used_s: float
    num_survivors_killed: int = 0
    stderr_tail: str = ""


class SubmissionAccepted(Frozen):
    """A submission has its snapshot: from here on it is never lost.

    ``tasks``: graded on these. ``duplicate_of``: an earlier submission with the same content.
    ``unchanged``: the content is the base model's.
    """

    type: Literal["submission_accepted"] = "submission_accepted"
    submission_id: int
    model_path: str
    content_hash: str
    tasks: tuple[str, ...]
    budget_used_s: float
    code_revision: str = ""
    duplicate_of: int | None = None
    unchanged: bool = False


class SubmissionRejected(Frozen):
    """A request that got a 4xx: no id, no score."""

    type: Literal["submission_rejected"] = "submission_rejected"
    model_path: str
    reason: str
    message: str
    status: int
    budget_used_s: float


class SubmissionGraded(Frozen):
    """A submission's verdict, one evaluation a task; a ``None`` score carries its failure."""

    type: Literal["submission_graded"] = "submission_graded"
    submission_id: int
    evaluations: tuple[Evaluation, ...]


class Note(Frozen):
    """Anything else worth keeping: warnings, tampering, retries."""

    type: Literal["note"] = "note"
    level: Literal["info", "warning", "error"]
    topic: str
    message: str


class RunFinished(Frozen):
    """Last event of an attempt. ``final`` is False when the run will be tried again."""

    type: Literal["run_finished"] = "run_finished"
    end: RunEnd
    detail: str = ""
    final: bool = True


Event = Annotated[
    RunStarted
    | StateChanged
    | BaselineGraded
    | AgentStarted
    | AgentExited
    | SubmissionAccepted
    | SubmissionRejected
    | SubmissionGraded
    | Note
    | RunFinished,
    Field(discriminator="type"),
]


class Entry(Frozen):
    """One ledger line: an event with its place and times."""

    seq: int
    time_utc: str
    elapsed_s: float
    event: Event

    @field_validator("time_utc")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        # Checked here, so that no reader of a damaged ledger trips over it later.
        if datetime.fromisoformat(value).tzinfo is None:
            raise ValueError("the time has no offset")
        return value


ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
