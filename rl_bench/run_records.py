"""`RunRecords`: a run's view and table rows, grown one ledger entry at a time.

Folding an entry costs what that entry holds, never what came before, so that a run with hundreds of
submissions of hundreds of items, or a trace of tens of thousands of events, stays cheap to record.
Rows that can no longer change become Arrow batches once a sink wants them.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import pyarrow as pa

from rl_bench.agent_records import AGENT_ROWS, AGENT_SCHEMAS
from rl_bench.agent_view import BREACH
from rl_bench.config import RunSpec
from rl_bench.events import (
    AgentStarted,
    BaselineGraded,
    DriverCall,
    Entry,
    Evaluation,
    FindingMade,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.noise import within_noise
from rl_bench.record_schema import Growing, LazyBatch, Place
from rl_bench.records import (
    BASELINE_ID,
    EVENTS,
    ITEMS,
    NOT_IN_EVENTS,
    DriverPoint,
    RunSnapshot,
    SubmissionRow,
    detail_json,
    event_row,
)
from rl_bench.run_view import RunView
from rl_bench.task_view import difference, failure_of, score_of

MAX_DRIVER_POINTS = 500
"""Of an attempt within its budget: the driver's use is charted no finer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    attempt: int
    submission_id: int
    task: str


class RunRecords:
    """A run's records, folded from its ledger.

    Attributes:
        view: The live view; copy it before handing it to another thread.
    """

    def __init__(self, run_id: str) -> None:
        self.view = RunView(run_id=run_id)
        self._place = Place(run_id=run_id, sweep="", attempt=0)
        self._spec: RunSpec | None = None
        self._rows: dict[_Key, SubmissionRow] = {}
        self._accepted_s: dict[_Key, float] = {}
        self._judged: dict[_Key, None] = {}
        self._stale: set[tuple[int, str]] = set()
        self._items: list[LazyBatch] = []
        self._events = Growing(EVENTS, event_row)
        makers = dict(AGENT_ROWS.values())
        self._tables = {
            name: Growing(schema, makers[name]) for name, schema in AGENT_SCHEMAS.items()
        }
        self._curve: list[_Key | DriverPoint] = []
        self._next_point_s = 0.0

    def fold(self, entry: Entry) -> None:
        """Takes the next entry.

        Raises:
            ValueError: It is not the next one.
        """
        self.view.fold(entry)
        event = entry.event
        match event:
            case RunStarted():
                self._spec = event.spec
                self._place = Place(self.view.run_id, event.sweep, event.attempt)
                self._next_point_s = 0.0
            case AgentStarted():
                self._place = self._place._replace(session=event.session)
            case BaselineGraded():
                for evaluation in event.evaluations:
                    self._add_items(BASELINE_ID, evaluation)
            case SubmissionAccepted():
                self._accept(event, entry)
            case SubmissionGraded():
                for evaluation in event.evaluations:
                    self._grade(event.submission_id, evaluation, entry)
            case DriverCall():
                self._chart(event)
            case FindingMade() if event.severity == BREACH:
                self._invalidate(event)
        if type(event) in AGENT_ROWS:
            self._tables[AGENT_ROWS[type(event)][0]].add(self._place, entry)
        if not isinstance(event, NOT_IN_EVENTS):
            self._events.add(self._place, entry)

    def snapshot(self) -> RunSnapshot:
        """The records so far, independent of later folding."""
        for attempt, task in self._stale:
            self._rank_again(attempt, task)
        self._stale = set()
        return RunSnapshot(
            run_id=self.view.run_id,
            view=copy.deepcopy(self.view),
            spec=self._spec,
            submissions=tuple(self._rows.values()),
            batches={
                "items": tuple(self._items),
                "events": self._events.batches(),
                **{name: table.batches() for name, table in self._tables.items()},
            },
            curve=tuple(
                point if isinstance(point, DriverPoint) else self._rows[point]
                for point in self._curve
            ),
        )

    def _key(self, submission_id: int, task: str) -> _Key:
        return _Key(attempt=self.view.attempt, submission_id=submission_id, task=task)

    def _accept(self, event: SubmissionAccepted, entry: Entry) -> None:
        for task in event.tasks:
            key = self._key(event.submission_id, task)
            self._accepted_s[key] = entry.elapsed_s
            self._rows[key] = SubmissionRow(
                run_id=self.view.run_id,
                sweep=self.view.sweep,
                attempt=key.attempt,
                submission_id=event.submission_id,
                task=task,
                status="pending",
                score=None,
                failure="",
                best_so_far=None,
                improvement=None,
                within_noise=None,
                is_invalid=False,
                invalid_reason="",
                content_hash=event.content_hash,
                model_path=event.model_path,
                code_revision=event.code_revision,
                duplicate_of=event.duplicate_of,
                unchanged=event.unchanged,
                reused=False,
                budget_used_s=event.budget_used_s,
                queue_s=None,
                load_s=None,
                load_kind="",
                duration_s=None,
                num_graders=None,
                latency_s=None,
                num_items=None,
                num_errors=None,
                evaluator_version="",
                accepted_at=datetime.fromisoformat(entry.time_utc),
                graded_at=None,
                metrics=(),
            )

    def _grade(self, submission_id: int, evaluation: Evaluation, entry: Entry) -> None:
        key = self._key(submission_id, evaluation.task)
        accepted = self._rows.get(key)
        if accepted is None or accepted.status == "graded":
            return  # A verdict on nothing or a second one: the events table still tells of it.
        self._add_items(submission_id, evaluation)
        self._judged.pop(key, None)
        self._judged[key] = None
        task = self.view.tasks[evaluation.task]
        score = score_of(evaluation)
        improvement = difference(score, task.baseline)
        self._rows[key] = replace(
            accepted,
            status="failed" if score is None else "graded",
            score=score,
            failure=failure_of(evaluation),
            best_so_far=task.best,
            improvement=improvement,
            within_noise=within_noise(improvement, task.noise_floor),
            reused=evaluation.reused,
            queue_s=evaluation.queue_s,
            load_s=evaluation.load_s,
            load_kind=evaluation.load_kind,
            duration_s=evaluation.duration_s,
            num_graders=evaluation.num_graders,
            latency_s=max(entry.elapsed_s - self._accepted_s[key], 0.0),
            num_items=evaluation.num_items,
            num_errors=evaluation.num_errors,
            evaluator_version=evaluation.evaluator_version,
            graded_at=datetime.fromisoformat(entry.time_utc),
            metrics=tuple(evaluation.metrics.items()),
        )

        if score is not None:
            self._curve.append(key)

    def _invalidate(self, event: FindingMade) -> None:
        """Marks the submission that a breach names; the run's is in its view."""
        for task in self.view.tasks if event.submission_id is not None else ():
            key = self._key(event.submission_id or 0, task)
            if key in self._rows:
                self._rows[key] = replace(
                    self._rows[key],
                    is_invalid=True,
                    invalid_reason=f"{event.rule}: {event.summary}",
                )
                self._stale.add((key.attempt, task))

    def _rank_again(self, attempt: int, task: str) -> None:
        """Writes ``best_so_far`` anew, in the order of the verdicts, without invalid scores."""
        best: float | None = None
        for key in self._judged:
            if (key.attempt, key.task) != (attempt, task):
                continue
            row = self._rows[key]
            if row.score is not None and not row.is_invalid:
                best = row.score if best is None else max(best, row.score)
            self._rows[key] = replace(row, best_so_far=best)

    def _chart(self, call: DriverCall) -> None:
        if call.budget_used_s < self._next_point_s:
            return
        self._next_point_s = call.budget_used_s + self.view.budget_s / MAX_DRIVER_POINTS
        self._curve.append(
            DriverPoint(
                attempt=self.view.attempt,
                budget_used_s=call.budget_used_s,
                use=copy.copy(self.view.driver_use),
            )
        )

    def _add_items(self, submission_id: int, evaluation: Evaluation) -> None:
        if evaluation.items:
            make = partial(item_batch, self._place, submission_id, evaluation)
            self._items.append(LazyBatch(make))


def item_batch(place: Place, submission_id: int, evaluation: Evaluation) -> pa.RecordBatch:
    """Rows of table ``items`` (`rl_bench.records.ItemRow`) that an evaluation makes.

    Made column by column: there are more of them than of all other rows together.
    """
    items = evaluation.items
    shared = {
        "run_id": place.run_id,
        "sweep": place.sweep,
        "attempt": place.attempt,
        "submission_id": submission_id,
        "task": evaluation.task,
    }
    columns = {
        "item_id": [item.item_id for item in items],
        "status": [item.status for item in items],
        "score": [item.score for item in items],
        "num_steps": [item.num_steps for item in items],
        "num_tokens": [item.num_tokens for item in items],
        "duration_s": [item.duration_s for item in items],
        "detail": [detail_json(item) for item in items],
    }
    arrays = [
        pa.repeat(pa.scalar(shared[field.name], field.type), len(items))
        if field.name in shared
        else pa.array(columns[field.name], field.type)
        for field in ITEMS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ITEMS)


def records_of(run_id: str, entries: Iterable[Entry]) -> RunRecords:
    """The records that all ``entries`` of one ledger make."""
    records = RunRecords(run_id)
    for entry in entries:
        records.fold(entry)
    return records
