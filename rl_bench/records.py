"""The typed Parquet tables, and how a run's ledger becomes their rows.

Four tables, one file a run in each: `RUNS` (one row a run and task), `SUBMISSIONS` (one row a
submission and task), `ITEMS` (one row an evaluated item, the baseline's as ``submission_id`` 0) and
`EVENTS` (one row a ledger entry). Every schema carries ``schema_version`` in its metadata.

Submissions, items and events of *all* attempts are kept, with their ``attempt``. Only the last
attempt counts for a run's row: join on ``runs.attempt`` to leave earlier ones out. A missing score
is null with a ``failure``, never zero. An ``item_id`` names the same item in every evaluation of
its task, so that paired tests join checkpoints on it. Times are UTC; ``_s`` is seconds; scores are
0 to 100.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import TypeAlias, get_args, get_type_hints

import pyarrow as pa

from rl_bench.config import RunSpec, TaskConfig
from rl_bench.events import BaselineGraded, Entry, Item, SubmissionGraded
from rl_bench.run_view import RunView

SCHEMA_VERSION = 2
BASELINE_ID = 0
"""The ``submission_id`` of the base model's own evaluation; submissions count from 1."""

_ARROW: dict[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
    tuple[str, ...]: pa.list_(pa.string()),
    tuple[float, ...]: pa.list_(pa.float64()),
    tuple[tuple[str, float], ...]: pa.map_(pa.string(), pa.float64()),
}


def _schema(table: str, row: type) -> pa.Schema:
    """The schema that a row class spells: a column a field, nullable where None is allowed."""
    columns = []
    for name, hint in get_type_hints(row).items():
        options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = next(option for option in options if option is not NoneType)
        columns.append(pa.field(name, _ARROW[kind], nullable=NoneType in options))
    return pa.schema(columns, metadata={"table": table, "schema_version": str(SCHEMA_VERSION)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """Table ``runs``: one row a run and task (a run in mode ``multi`` has several).

    Attributes:
        tasks: All tasks of the run; ``task`` is this row's.
        state, end: See `rl_bench.events`; ``end`` is null while the run goes on.
        is_final: Ended and not to be tried again.
        is_infrastructure: Ended by the runner: leave the row out of every mean.
        attempt, num_attempts: The last attempt (from 0), which this row tells of, and their number.
        baseline_score: The base model's; null with ``baseline_failure``.
        baseline_scores: When it was graded more than once, the scores whose mean that is.
        baseline_num_errors: Its items without a verdict; null until it is graded.
        noise_floor: What two gradings of one checkpoint differ by, points, see `rl_bench.noise`;
            null when the base model was graded once.
        first_score: Of the earliest submission that has a score.
        best_score, best_submission_id: The highest score, and the first submission that had it.
        best_unchanged: That submission was the base model itself.
        improvement: ``best_score - baseline_score``, points.
        within_noise: It lies within ``noise_floor``; null when either is.
        num_submissions: Accepted for this task = graded + failed + pending.
        num_rejected: Requests of the whole run that were answered 4xx.
        budget_used_s: On the run's clock, as last recorded.
        started_at, ended_at: UTC, of the last attempt; ``duration_s`` is monotonic.
        queue_s, load_s, grading_s: Summed over this task's evaluations, the baseline's included.
        spec: The whole `RunSpec` as JSON.
    """

    run_id: str
    sweep: str
    task: str
    tasks: tuple[str, ...]
    level: str
    source: str
    protocol: str
    agent: str
    agent_version: str
    driver: str
    driver_model: str
    mode: str
    model: str
    seed: int
    state: str
    end: str | None
    end_detail: str
    is_final: bool
    is_infrastructure: bool
    attempt: int
    num_attempts: int
    baseline_score: float | None
    baseline_failure: str
    baseline_scores: tuple[float, ...]
    baseline_num_errors: int | None
    noise_floor: float | None
    first_score: float | None
    best_score: float | None
    best_submission_id: int | None
    best_unchanged: bool
    improvement: float | None
    within_noise: bool | None
    num_submissions: int
    num_graded: int
    num_failed: int
    num_pending: int
    num_rejected: int
    num_items: int | None
    evaluator_version: str
    budget: str
    budget_s: float
    budget_used_s: float
    exit_code: int | None
    killed: bool
    num_warnings: int
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float
    queue_s: float
    load_s: float
    grading_s: float
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRow:
    """Table ``submissions``: one row an accepted submission and task.

    Attributes:
        status: ``graded`` (has a score), ``failed`` (null score with ``failure``) or ``pending``.
        best_so_far: The attempt's highest score on the task up to and with this verdict.
        improvement: ``score`` less the attempt's baseline, points.
        within_noise: It lies within the noise floor of the attempt's baseline; null: unknown.
        content_hash: Of the snapshot; equal hashes are equal checkpoints.
        duplicate_of: The earlier submission with the same content; ``reused``: its verdict was
            taken.
        unchanged: The content is the base model's.
        budget_used_s: On the run's clock at acceptance.
        load_kind: ``cold``, ``warm`` or ``resident``; empty while pending.
        duration_s: Of the evaluation alone.
        accepted_at, graded_at: UTC; ``latency_s`` is monotonic between the two.
        metrics: The task's secondary figures.
    """

    run_id: str
    sweep: str
    attempt: int
    submission_id: int
    task: str
    status: str
    score: float | None
    failure: str
    best_so_far: float | None
    improvement: float | None
    within_noise: bool | None
    content_hash: str
    model_path: str
    code_revision: str
    duplicate_of: int | None
    unchanged: bool
    reused: bool
    budget_used_s: float
    queue_s: float | None
    load_s: float | None
    load_kind: str
    duration_s: float | None
    latency_s: float | None
    num_items: int | None
    num_errors: int | None
    evaluator_version: str
    accepted_at: datetime
    graded_at: datetime | None
    metrics: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow:
    """Table ``items``: one row an evaluated question or episode.

    Attributes:
        submission_id: 0 is the base model's own evaluation; of several, the first.
        item_id: Stable and unique within the task's evaluation set.
        status: ``ok``, or why there is no verdict; ``score`` in [0, 1], null unless ``ok``.
        detail: What the task found worth keeping, a JSON object.
    """

    run_id: str
    sweep: str
    attempt: int
    submission_id: int
    task: str
    item_id: str
    status: str
    score: float | None
    num_steps: int
    num_tokens: int
    duration_s: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Table ``events``: one row a ledger entry; ``payload`` is the event as JSON, less items."""

    run_id: str
    sweep: str
    attempt: int
    seq: int
    time: datetime
    elapsed_s: float
    type: str
    payload: str


RUNS = _schema("runs", RunRow)
SUBMISSIONS = _schema("submissions", SubmissionRow)
ITEMS = _schema("items", ItemRow)
EVENTS = _schema("events", EventRow)
SCHEMAS: dict[str, pa.Schema] = {
    "runs": RUNS,
    "submissions": SUBMISSIONS,
    "items": ITEMS,
    "events": EVENTS,
}
Row: TypeAlias = RunRow | SubmissionRow | ItemRow | EventRow


def to_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one typed batch; they must be of the class that ``schema`` was made from."""
    columns = [
        pa.array([getattr(row, name) for row in rows], type=schema.field(name).type)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def run_rows(view: RunView, spec: RunSpec) -> list[RunRow]:
    """The rows of table ``runs`` that a view and its spec make: one a task."""
    configs: dict[str, TaskConfig] = {task.name: task for task in spec.tasks}
    spec_json = spec.model_dump_json()
    return [
        RunRow(
            run_id=view.run_id,
            sweep=view.sweep,
            task=name,
            tasks=tuple(configs),
            level=config.level,
            source=config.source.value,
            protocol=config.protocol,
            agent=view.agent,
            agent_version=spec.agent.version,
            driver=view.driver,
            driver_model=spec.driver.model_id,
            mode=view.mode,
            model=view.model,
            seed=view.seed,
            state=view.state.value,
            end=None if view.end is None else view.end.value,
            end_detail=view.end_detail,
            is_final=view.is_final,
            is_infrastructure=view.is_infrastructure,
            attempt=view.attempt,
            num_attempts=view.num_attempts,
            baseline_score=view.tasks[name].baseline,
            baseline_failure=view.tasks[name].baseline_failure,
            baseline_scores=view.tasks[name].baseline_scores,
            baseline_num_errors=view.tasks[name].baseline_num_errors,
            noise_floor=view.tasks[name].noise_floor,
            first_score=view.tasks[name].first,
            best_score=view.tasks[name].best,
            best_submission_id=view.tasks[name].best_submission_id,
            best_unchanged=view.tasks[name].best_unchanged,
            improvement=view.tasks[name].improvement,
            within_noise=view.tasks[name].within_noise,
            num_submissions=view.tasks[name].num_submissions,
            num_graded=view.tasks[name].num_graded,
            num_failed=view.tasks[name].num_failed,
            num_pending=view.tasks[name].num_pending,
            num_rejected=view.num_rejected,
            num_items=view.tasks[name].num_items,
            evaluator_version=view.tasks[name].evaluator_version,
            budget=spec.budget.name,
            budget_s=view.budget_s,
            budget_used_s=view.budget_used_s,
            exit_code=view.exit_code,
            killed=view.killed,
            num_warnings=view.num_warnings,
            started_at=view.started_utc,
            ended_at=view.ended_utc,
            duration_s=view.duration_s,
            queue_s=view.tasks[name].queue_s,
            load_s=view.tasks[name].load_s,
            grading_s=view.tasks[name].grading_s,
            spec=spec_json,
        )
        for name, config in configs.items()
    ]


def detail_json(item: Item) -> str:
    """An item's detail as strict JSON: numbers that JSON does not know become strings."""
    plain = {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in item.detail.items()
    }
    return json.dumps(plain, ensure_ascii=False)


def event_json(entry: Entry) -> str:
    """An entry's event as JSON; items are left to their own table."""
    event = entry.event
    if isinstance(event, BaselineGraded | SubmissionGraded):
        return event.model_dump_json(exclude={"evaluations": {"__all__": {"items"}}})
    return event.model_dump_json()


class LazyBatch:
    """Rows that no longer change, turned into a batch when first asked for.

    Recording an event stays cheap, and tables that are up to date cost no conversion at all.
    """

    __slots__ = ("_batch", "_make")

    def __init__(self, make: Callable[[], pa.RecordBatch]) -> None:
        self._make: Callable[[], pa.RecordBatch] | None = make
        self._batch: pa.RecordBatch | None = None

    def get(self) -> pa.RecordBatch:
        """The batch; made once, after which its source is let go."""
        make = self._make
        if self._batch is None and make is not None:
            self._batch = make()
            self._make = None
        return self._batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """A run's records at one moment: what a sink is given. ``view`` is a private copy."""

    run_id: str
    view: RunView
    spec: RunSpec | None
    submissions: tuple[SubmissionRow, ...]
    item_batches: tuple[LazyBatch, ...]
    event_batches: tuple[LazyBatch, ...]

    @property
    def mark(self) -> str:
        """What the ledger's end looked like: equal marks of one run are equal records."""
        return f"{self.view.next_seq}@{self.view.last_time_utc}"

    def run_rows(self) -> list[RunRow]:
        """Rows of table ``runs``; none while the ledger has no `RunStarted`."""
        return [] if self.spec is None else run_rows(self.view, self.spec)

    def tables(self) -> dict[str, pa.Table]:
        """The run's part of every table, by name."""
        batches: dict[str, Iterable[pa.RecordBatch]] = {
            "runs": [to_batch(self.run_rows(), RUNS)],
            "submissions": [to_batch(self.submissions, SUBMISSIONS)],
            "items": (batch.get() for batch in self.item_batches),
            "events": (batch.get() for batch in self.event_batches),
        }
        return {
            name: pa.Table.from_batches(list(parts), schema=SCHEMAS[name])
            for name, parts in batches.items()
        }
