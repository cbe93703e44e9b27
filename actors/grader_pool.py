"""The pool of graders: one queue for all runs, fair between them, each verdict reached once.

A plain class; `actors.factory` makes it a Ray actor. It owns order and retries; graders own
engines. Baselines go first, then runs take turns, so that a run's burst cannot starve another.
"""

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rl_bench.errors import GraderError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob

LOG = logging.getLogger(__name__)

GraderCall = Callable[[GradeJob], Awaitable[tuple[Evaluation, ...]]]
"""One grader: raises `SubmissionError` or `GraderError`."""


@dataclass(slots=True)
class _Ticket:
    job: GradeJob
    verdict: "asyncio.Future[tuple[Evaluation, ...]]"
    enqueued: float = field(default_factory=time.monotonic)


class FairQueue:
    """Tickets of many runs: baselines first, then one of each run in turn."""

    def __init__(self) -> None:
        self._baselines: deque[_Ticket] = deque()
        self._runs: dict[str, deque[_Ticket]] = {}
        self._filled = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._baselines) + sum(map(len, self._runs.values()))

    async def put(self, ticket: _Ticket) -> None:
        async with self._filled:
            if ticket.job.submission_id is None:
                self._baselines.append(ticket)
            else:
                self._runs.setdefault(ticket.job.run_id, deque()).append(ticket)
            self._filled.notify()

    async def get(self) -> _Ticket:
        async with self._filled:
            await self._filled.wait_for(lambda: len(self) > 0)
            if self._baselines:
                return self._baselines.popleft()
            run_id, tickets = next(iter(self._runs.items()))
            ticket = tickets.popleft()
            del self._runs[run_id]  # to the back of the turn order
            if tickets:
                self._runs[run_id] = tickets
            return ticket


class GraderPool:
    """Hands jobs to idle graders and remembers verdicts."""

    def __init__(self, graders: Sequence[GraderCall], *, num_retries: int) -> None:
        self._graders = tuple(graders)
        self._num_retries = num_retries
        self._queue = FairQueue()
        self._verdicts: dict[str, asyncio.Future[tuple[Evaluation, ...]]] = {}
        self._servers: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"GraderPool({len(self._graders)} graders)"

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        """One evaluation a task; identical content on the same tasks is evaluated once.

        Raises:
            SubmissionError: The checkpoint is at fault.
            GraderError: Every attempt failed; nothing is remembered, so the job can come again.
        """
        self._start()
        key = _verdict_key(job)
        started = time.monotonic()
        known = self._verdicts.get(key)
        if known is not None:
            verdict = await asyncio.shield(known)
            wait_s = time.monotonic() - started
            return tuple(
                e.model_copy(
                    update={"reused": True, "queue_s": wait_s, "load_s": 0.0, "duration_s": 0.0}
                )
                for e in verdict
            )
        ticket = _Ticket(job, asyncio.get_running_loop().create_future())
        self._verdicts[key] = ticket.verdict
        ticket.verdict.add_done_callback(lambda done: self._forget_failure(key, done))
        await self._queue.put(ticket)
        return await asyncio.shield(ticket.verdict)

    def _start(self) -> None:
        if not self._servers:
            self._servers = [asyncio.create_task(self._serve(grader)) for grader in self._graders]

    def _forget_failure(self, key: str, verdict: "asyncio.Future[tuple[Evaluation, ...]]") -> None:
        void = verdict.cancelled() or verdict.exception() is not None
        if void or any(e.score is None for e in verdict.result()):
            self._verdicts.pop(key, None)

    async def _serve(self, grader: GraderCall) -> None:
        while True:
            ticket = await self._queue.get()
            queue_s = time.monotonic() - ticket.enqueued
            try:
                evaluations = await self._attempt(grader, ticket.job)
            except Exception as error:  # noqa: BLE001  whatever escapes belongs to the waiting run
                ticket.verdict.set_exception(error)
            else:
                ticket.verdict.set_result(
                    tuple(e.model_copy(update={"queue_s": queue_s}) for e in evaluations)
                )

    async def _attempt(self, grader: GraderCall, job: GradeJob) -> tuple[Evaluation, ...]:
        for attempt in range(self._num_retries + 1):
            try:
                return await grader(job)
            except GraderError as error:
                LOG.warning("grading %s failed (attempt %d): %s", job.run_id, attempt, error)
                if attempt == self._num_retries:
                    raise
        raise AssertionError("unreachable")


def _verdict_key(job: GradeJob) -> str:
    digest = hashlib.sha256(job.content_hash.encode())
    digest.update(job.model.model_dump_json().encode())
    for task in job.tasks:
        digest.update(task.model_dump_json().encode())
    return digest.hexdigest()
