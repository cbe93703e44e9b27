"""The facts that a run's ledger holds, one class each: the vocabulary of all results.

Everything that a table, W&B or a summary shows is derived from these events. Times are UTC
(ISO 8601 with offset) for people and ``elapsed_s`` (monotonic, from the start of the attempt's
process) for arithmetic; ``budget_used_s`` counts on the run's clock (see `rl_bench.clock`).
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, TypeAdapter, field_validator

from rl_bench.config import Api, Frozen, RunSpec


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
    `rl_bench.noise`, points. ``num_graders``: graders that answered.
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
    num_graders: int = 1
    reused: bool = False


class RunStarted(Frozen):
    """First event of each attempt (0, 1, …) at the run.

    Attributes:
        plugins: The distributions that it is made with beside this project, name to version.
    """

    type: Literal["run_started"] = "run_started"
    run_id: str
    sweep: str
    attempt: int
    spec: RunSpec
    plugins: Mapping[str, str] = {}


class StateChanged(Frozen):
    """The run entered ``state``."""

    type: Literal["state_changed"] = "state_changed"
    state: RunState


class BaselineGraded(Frozen):
    """The base model's score, one evaluation a task."""

    type: Literal["baseline_graded"] = "baseline_graded"
    content_hash: str
    evaluations: tuple[Evaluation, ...]


class SandboxReady(Frozen):
    """What confines the agent: ``bwrap`` or ``none``, and what that does not protect."""

    type: Literal["sandbox_ready"] = "sandbox_ready"
    kind: str
    version: str = ""
    warnings: tuple[str, ...] = ()


class AgentStarted(Frozen):
    """The agent's process started: with the first, session 0, the budget's clock starts.

    Later sessions go on after its background work has ended; see `AgentConfig.on_live_children`.
    """

    type: Literal["agent_started"] = "agent_started"
    pid: int
    argv: tuple[str, ...]
    session: int = 0


class AgentExited(Frozen):
    """The agent's process tree is gone.

    Attributes:
        exit_code: Of the agent itself; None when it was not seen to end.
        killed: We ended it, at the deadline or for ``reason``.
        reason: Why it was ended before its deadline; empty otherwise.
        num_survivors_killed: Processes beside it that we ended.
        num_live_children: Processes that it had left running when it exited.
        children_wait_s: How long they were waited for.
        final_event: Its output told the end of its work.
    """

    type: Literal["agent_exited"] = "agent_exited"
    exit_code: int | None
    killed: bool
    budget_used_s: float
    reason: str = ""
    num_survivors_killed: int = 0
    num_live_children: int = 0
    children_wait_s: float = 0.0
    final_event: bool = False
    stderr_tail: str = ""


class AgentEvent(Frozen):
    """One thing that the agent's own output told, in order; the raw output is kept beside it.

    Attributes:
        kind: ``message`` (words), ``tool_call``, ``tool_result``, ``usage`` (tokens of a turn),
            ``error``, or ``result`` (the end of its work).
        name: Of the tool, or the class of an error.
        text: Words, command or output, cut at a limit.
        call_id: Joins a call and its result.
        totals: The counts are totals of the session so far, not one turn's.
        input_tokens: Includes what was read from a cache.
        cost_usd: As the CLI itself reckons it.
    """

    type: Literal["agent_event"] = "agent_event"
    kind: Literal["message", "tool_call", "tool_result", "usage", "error", "result"]
    budget_used_s: float
    name: str = ""
    text: str = ""
    call_id: str = ""
    is_error: bool = False
    totals: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    num_turns: int | None = None


class DriverFailure(StrEnum):
    """Why a call of the driver gave no whole answer."""

    AUTH = "auth"
    BILLING = "billing"
    RATE_LIMITED = "rate_limited"
    BAD_REQUEST = "bad_request"
    SERVER_ERROR = "server_error"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CUT = "cut"
    HUNG_UP = "hung_up"
    """The CLI closed the connection."""
    CAPPED = "capped"
    """The run's cap of calls or cost was reached: not let through."""
    REFUSED = "refused"
    """A route or model that the gateway does not forward."""


class DriverCall(Frozen):
    """One call of the driver, seen at the gateway.

    Attributes:
        call: Its number in the attempt, from 1, in order of arrival.
        route: The provider's path, without a key or query.
        model: The model that was asked for.
        status: The HTTP status that the CLI got; 0: none.
        failure: None for a whole answer.
        latency_s: To the last byte; ``first_byte_s``: to the first of the answer's body.
        input_tokens: Includes ``cached_tokens`` (read from the provider's cache) and
            ``cache_write_tokens``; None when the answer has no usage.
        cost_usd: By the driver's prices; None when the tokens are not known.
        num_bytes: Of the answer's body.
        budget_used_s: On the run's clock when it arrived.
    """

    type: Literal["driver_call"] = "driver_call"
    call: int
    api: Api
    route: str
    model: str = ""
    status: int = 0
    failure: DriverFailure | None = None
    detail: str = ""
    latency_s: float
    first_byte_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    num_bytes: int = 0
    budget_used_s: float


class CodeChanged(Frozen):
    """The agent's `code/` has a new revision in its shadow history.

    Attributes:
        revision: The commit's id.
        cause: What it was taken for.
        changed: Paths that differ from the revision before, cut at a limit.
    """

    type: Literal["code_changed"] = "code_changed"
    revision: str
    cause: Literal["change", "submission", "end"]
    changed: tuple[str, ...]
    num_changed: int
    num_files: int
    budget_used_s: float


class ProcessSeen(Frozen):
    """A process of the agent's that lived long enough to be seen, told when it is gone.

    Attributes:
        argv: Its command, cut at a limit.
        began_s: On the run's clock when it was first seen.
        duration_s: Until it was last seen; ``cpu_s``: CPU time that it had used by then.
        max_rss_bytes: The most resident memory that was seen.
    """

    type: Literal["process_seen"] = "process_seen"
    pid: int
    parent_pid: int
    argv: tuple[str, ...]
    began_s: float
    duration_s: float
    cpu_s: float
    max_rss_bytes: int = 0


class Evidence(Frozen):
    """Where something was seen. ``line`` counts from 1; empty or None: does not apply."""

    source: Literal["code", "process", "log", "trace", "request", "weights", "data", "judge"]
    path: str = ""
    revision: str = ""
    line: int | None = None
    quote: str = ""


class ModeVerdict(StrEnum):
    """What the audit says of a run's mode."""

    CLEAN = "clean"
    BREACH = "breach"
    SUSPECT = "suspect"
    """Signs of a breach that do not prove one: for a person to look at."""
    UNKNOWN = "unknown"
    """Too little was seen to tell."""


class ModeAudited(Frozen):
    """Whether the run kept to its mode, judged after the fact; a breach makes it invalid.

    Attributes:
        methods: Post-training methods that were seen to run, e.g. ``sft``, ``grpo``.
    """

    type: Literal["mode_audited"] = "mode_audited"
    verdict: ModeVerdict
    rules_version: str
    summary: str
    methods: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class FindingMade(Frozen):
    """Something about the run that a reader of its score must know.

    Attributes:
        rule: Its name in the rule set.
        severity: ``breach`` makes the run invalid, or the submission if it names one.
    """

    type: Literal["finding_made"] = "finding_made"
    rule: str
    severity: Literal["info", "warning", "breach"]
    rules_version: str
    summary: str
    submission_id: int | None = None
    evidence: tuple[Evidence, ...] = ()


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
    | SandboxReady
    | AgentStarted
    | AgentExited
    | AgentEvent
    | DriverCall
    | CodeChanged
    | ProcessSeen
    | ModeAudited
    | FindingMade
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
    elapsed_s: FiniteFloat
    event: Event

    @field_validator("time_utc")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        # Checked here, so that no reader of a damaged ledger trips over it later.
        if datetime.fromisoformat(value).tzinfo is None:
            raise ValueError("the time has no offset")
        return value


ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
