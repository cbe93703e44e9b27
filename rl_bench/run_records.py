"""`RunRecords`: a run's view and table rows, grown one ledger entry at a time.

Folding an entry costs what that entry holds, never what came before, so that a run with hundreds of
submissions of hundreds of items stays cheap to record. Rows that can no longer change (items,
events) become Arrow batches once a sink wants them.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from rl_bench.config import RunSpec
from rl_bench.events import (
    BaselineGraded,
    Entry,
    Evaluation,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.noise import within_noise
from rl_bench.records import (
    BASELINE_ID,
    EVENTS,
    ITEMS,
    EventRow,
    ItemRow,
    LazyBatch,
    RunSnapshot,
    SubmissionRow,
    detail_json,
    event_json,
    to_batch,
)
from rl_bench.run_view import RunView, difference, failure_of, score_of

_EVENTS_PER_BATCH = 256


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
        self._spec: RunSpec | None = None
        self._rows: dict[_Key, SubmissionRow] = {}
        self._accepted_s: dict[_Key, float] = {}
        self._items: list[LazyBatch] = []
        self._events: list[LazyBatch] = []
        self._new_events: list[tuple[Place, Entry]] = []

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
            case BaselineGraded():
                for evaluation in event.evaluations:
                    self._add_items(BASELINE_ID, evaluation)
            case SubmissionAccepted():
                self._accept(event, entry)
            case SubmissionGraded():
                for evaluation in event.evaluations:
                    self._grade(event.submission_id, evaluation, entry)
        self._add_event(entry)

    def snapshot(self) -> RunSnapshot:
        """The records so far, independent of later folding."""
        self._seal_events()
        return RunSnapshot(
            run_id=self.view.run_id,
            view=copy.deepcopy(self.view),
            spec=self._spec,
            submissions=tuple(self._rows.values()),
            item_batches=tuple(self._items),
            event_batches=tuple(self._events),
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
            latency_s=max(entry.elapsed_s - self._accepted_s[key], 0.0),
            num_items=evaluation.num_items,
            num_errors=evaluation.num_errors,
            evaluator_version=evaluation.evaluator_version,
            graded_at=datetime.fromisoformat(entry.time_utc),
            metrics=tuple(evaluation.metrics.items()),
        )

    def _place(self) -> "Place":
        return Place(run_id=self.view.run_id, sweep=self.view.sweep, attempt=self.view.attempt)

    def _add_items(self, submission_id: int, evaluation: Evaluation) -> None:
        if evaluation.items:
            make = partial(item_batch, self._place(), submission_id, evaluation)
            self._items.append(LazyBatch(make))

    def _add_event(self, entry: Entry) -> None:
        self._new_events.append((self._place(), entry))
        if len(self._new_events) >= _EVENTS_PER_BATCH:
            self._seal_events()

    def _seal_events(self) -> None:
        if self._new_events:
            self._events.append(LazyBatch(partial(_event_batch, tuple(self._new_events))))
            self._new_events = []


class Place(NamedTuple):
    """Where a row of items or events belongs."""

    run_id: str
    sweep: str
    attempt: int


def item_batch(place: Place, submission_id: int, evaluation: Evaluation) -> pa.RecordBatch:
    """Rows of table ``items`` that an evaluation makes."""
    rows = [
        ItemRow(
            run_id=place.run_id,
            sweep=place.sweep,
            attempt=place.attempt,
            submission_id=submission_id,
            task=evaluation.task,
            item_id=item.item_id,
            status=item.status,
            score=item.score,
            num_steps=item.num_steps,
            num_tokens=item.num_tokens,
            duration_s=item.duration_s,
            detail=detail_json(item),
        )
        for item in evaluation.items
    ]
    return to_batch(rows, ITEMS)


def _event_batch(entries: Sequence[tuple[Place, Entry]]) -> pa.RecordBatch:
    rows = [
        EventRow(
            run_id=place.run_id,
            sweep=place.sweep,
            attempt=place.attempt,
            seq=entry.seq,
            time=datetime.fromisoformat(entry.time_utc),
            elapsed_s=entry.elapsed_s,
            type=entry.event.type,
            payload=event_json(entry),
        )
        for place, entry in entries
    ]
    return to_batch(rows, EVENTS)


def records_of(run_id: str, entries: Iterable[Entry]) -> RunRecords:
    """The records that all ``entries`` of one ledger make."""
    records = RunRecords(run_id)
    for entry in entries:
        records.fold(entry)
    return records
