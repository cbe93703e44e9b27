"""The typed Parquet tables, and how a run's ledger becomes their rows.

One file a run in each table: `RUNS` (one row a run and task), `SUBMISSIONS` (one row a submission
and task), `ITEMS` (one row an evaluated item, the baseline's as ``submission_id`` 0), `EVENTS` (one
row a ledger entry) and those of `rl_bench.agent_records`. Every schema carries ``schema_version``
in its metadata. docs/results.md explains them for readers.

Rows of *all* attempts are kept, with their ``attempt``. Only the last attempt counts for a run's
row: join on ``runs.attempt`` to leave earlier ones out. A missing score is null with a ``failure``,
never zero. An ``item_id`` names the same item in every evaluation of its task, so that paired tests
join checkpoints on it. Times are UTC; ``_s`` is seconds; scores are 0 to 100.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pydantic_core import to_json

from rl_bench.agent_records import AGENT_SCHEMAS
from rl_bench.agent_view import DriverUse
from rl_bench.config import RunSpec
from rl_bench.events import (
    AgentEvent,
    BaselineGraded,
    DriverCall,
    Entry,
    Item,
    ProcessSeen,
    SubmissionGraded,
)
from rl_bench.record_schema import LazyBatch, Place, schema_of, to_batch
from rl_bench.run_row import RUNS, RunRow, run_rows
from rl_bench.run_view import RunView

BASELINE_ID = 0
"""The ``submission_id`` of the base model's own evaluation; submissions count from 1."""
NOT_IN_EVENTS = (AgentEvent, DriverCall, ProcessSeen)
"""What comes by the thousand has a table of its own and no row in `EVENTS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRow:
    """Table ``submissions``: one row an accepted submission and task.

    Attributes:
        status: ``graded`` (has a score), ``failed`` (null score with ``failure``) or ``pending``.
        best_so_far: The attempt's highest valid score on the task up to and with this verdict.
        is_invalid: A finding says that it broke a rule; ``invalid_reason``: which, in words.
        improvement: ``score`` less the attempt's baseline, points.
        within_noise: It lies within the noise floor of the attempt's baseline; null: unknown.
        content_hash: Of the snapshot; equal hashes are equal checkpoints.
        duplicate_of: The earlier submission with the same content; ``reused``: its verdict was
            taken.
        unchanged: The content is the base model's.
        budget_used_s: On the run's clock at acceptance.
        load_kind: ``cold``, ``warm`` or ``resident``; empty while pending.
        duration_s: Of the evaluation alone.
        num_graders: Graders that answered.
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
    is_invalid: bool
    invalid_reason: str
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
    num_graders: int | None
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
    """Table ``events``: one row a ledger entry, but for `NOT_IN_EVENTS`.

    ``payload`` is the event as JSON, less items.
    """

    run_id: str
    sweep: str
    attempt: int
    seq: int
    time: datetime
    elapsed_s: float
    type: str
    payload: str


SUBMISSIONS = schema_of("submissions", SubmissionRow)
ITEMS = schema_of("items", ItemRow)
EVENTS = schema_of("events", EventRow)
SCHEMAS: dict[str, pa.Schema] = {
    "runs": RUNS,
    "submissions": SUBMISSIONS,
    "items": ITEMS,
    "events": EVENTS,
    **AGENT_SCHEMAS,
}


def detail_json(item: Item) -> str:
    """An item's detail as strict JSON; what JSON knows no number for is a string, as in ledgers."""
    return to_json(item.detail, inf_nan_mode="strings").decode()


def event_json(entry: Entry) -> str:
    """An entry's event as JSON; items are left to their own table."""
    event = entry.event
    if isinstance(event, BaselineGraded | SubmissionGraded):
        return event.model_dump_json(exclude={"evaluations": {"__all__": {"items"}}})
    return event.model_dump_json()


def event_row(place: Place, entry: Entry) -> EventRow:
    """The row of an entry in table ``events``."""
    return EventRow(
        run_id=place.run_id,
        sweep=place.sweep,
        attempt=place.attempt,
        seq=entry.seq,
        time=datetime.fromisoformat(entry.time_utc),
        elapsed_s=entry.elapsed_s,
        type=entry.event.type,
        payload=event_json(entry),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPoint:
    """What the driver had been used for at one moment of an attempt, for a chart.

    Attributes:
        budget_used_s: On the run's clock.
        use: All figures up to then, a private copy.
    """

    attempt: int
    budget_used_s: float
    use: DriverUse


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """A run's records at one moment: what a sink is given.

    Attributes:
        view: A private copy.
        batches: Of every table but ``runs`` and ``submissions``, by its name.
        curve: Points of a chart in the ledger's order, which later snapshots only add to: each
            verdict with a score, and the driver's use now and then.
    """

    run_id: str
    view: RunView
    spec: RunSpec | None
    submissions: tuple[SubmissionRow, ...]
    batches: Mapping[str, tuple[LazyBatch, ...]]
    curve: tuple[SubmissionRow | DriverPoint, ...] = ()

    @property
    def mark(self) -> str:
        """What the ledger's end looked like: equal marks of one run are equal records."""
        return f"{self.view.next_seq}@{self.view.last_time_utc}"

    def run_rows(self) -> list[RunRow]:
        """Rows of table ``runs``; none while the ledger has no `RunStarted`."""
        return [] if self.spec is None else run_rows(self.view, self.spec)

    def table(self, name: str) -> pa.Table:
        """The run's part of one table."""
        if name == "runs":
            parts = [to_batch(self.run_rows(), RUNS)]
        elif name == "submissions":
            parts = [to_batch(self.submissions, SUBMISSIONS)]
        else:
            parts = [batch.get() for batch in self.batches.get(name, ())]
        return pa.Table.from_batches(parts, schema=SCHEMAS[name])

    def tables(self) -> dict[str, pa.Table]:
        """The run's part of every table, by name."""
        return {name: self.table(name) for name in SCHEMAS}
