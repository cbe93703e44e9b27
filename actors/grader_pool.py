"""The pool of graders: one queue for all runs, each verdict reached once.

A plain class; `actors.factory` makes it a Ray actor. It owns who waits for which verdict, retries,
and the calls to graders. In what order jobs go is `actors.grading_queue`'s, which grader takes one
`actors.grader_roster`'s, and starting and ending graders is their owner's, who is told in `tend`
what is wanted. Everything is decided anew whenever something ends: nothing here holds a lock.
"""

import asyncio
import hashlib
import logging
import pickle
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from actors.grader_roster import Demand, Placement, Roster
from actors.grading_queue import GradingQueue, Ticket
from actors.shared_requests import NOTHING, Offer
from rl_bench.config import GraderConfig
from rl_bench.counts import plural
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob

LOG = logging.getLogger(__name__)

HELP_POLL_S = 1.0
"""Idle graders ask busy ones this often whether they could help."""
OFFER_LIMIT_S = 5.0
"""A grader that does not answer within this time is not helped for now."""
MAX_REMEMBERED_BYTES = 64 * 2**20
"""Of finished verdicts, packed; those not asked for longest are forgotten first."""

Verdict = tuple[Evaluation, ...]


class GraderLink(Protocol):
    """A grader, as the pool reaches it."""

    @property
    def name(self) -> str:
        """Which grader it is."""
        ...

    async def grade(self, job: GradeJob) -> Verdict:
        """Raises `SubmissionError` or `GraderError`; tells of a loss at once."""
        ...

    async def recover(self) -> None:
        """Returns when the grader answers again after a failure, or may never do so."""
        ...

    async def offer(self) -> Offer:
        """What the grader could give away of what it grades; raises `GraderError`."""
        ...

    async def help(self, job: GradeJob, owner: str) -> None:
        """Has it help the grader ``owner`` with ``job`` until nothing is left or it is recalled.

        Raises:
            SubmissionError: The checkpoint cannot be loaded.
            GraderError: This grader failed.
        """
        ...

    async def recall(self) -> None:
        """Has it stop to help, after the part that it has; raises `GraderError`."""
        ...


@dataclass(slots=True, eq=False)
class _Grading:
    """A verdict to come, and the jobs of all who wait for it."""

    ticket: Ticket
    verdict: "asyncio.Future[Verdict]"
    callers: list[GradeJob] = field(default_factory=list)


class GraderPool:
    """Hands jobs to graders and remembers verdicts.

    Args:
        graders: Names of those that are there from the start.
        connect: Gives the way to a grader by its name.
        config: Retries, waits and limits.
        clock: Monotonic seconds.
        queue: Another order of jobs than the default.

    Attributes:
        remembered_bytes: What finished verdicts take, packed.
    """

    def __init__(
        self,
        graders: Sequence[str],
        *,
        connect: Callable[[str], GraderLink],
        config: GraderConfig,
        clock: Callable[[], float] = time.monotonic,
        queue: GradingQueue | None = None,
    ) -> None:
        self._connect = connect
        self._config = config
        self._clock = clock
        self._queue = GradingQueue(clock=clock) if queue is None else queue
        self._roster = Roster(self._queue, config=config, clock=clock)
        self._links: dict[str, GraderLink] = {}
        self._first = frozenset(graders)
        self._open: dict[str, _Grading] = {}
        self._verdicts: OrderedDict[str, bytes] = OrderedDict()
        self.remembered_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._helping: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        for name in graders:
            self._add(name)

    def __repr__(self) -> str:
        return f"GraderPool({plural(len(self._roster), 'grader')})"

    async def grade(self, job: GradeJob) -> Verdict:
        """One evaluation a task; identical content on the same tasks is evaluated once.

        Raises:
            SubmissionError: The checkpoint is at fault.
            GraderError: Every attempt failed; nothing is remembered, so the job can come again.
        """
        key = _verdict_key(job)
        if key in self._verdicts:
            self._verdicts.move_to_end(key)
            return _reused(_unpacked(self._verdicts[key]), wait_s=0.0)
        started = self._clock()
        grading = self._open.get(key)
        is_first = grading is None
        if grading is None:
            verdict = asyncio.get_running_loop().create_future()
            grading = self._open[key] = _Grading(self._queue.put(job), verdict)
        grading.callers.append(job)
        if is_first:
            self._dispatch()
        try:
            verdict_now = await asyncio.shield(grading.verdict)
        finally:
            grading.callers = [each for each in grading.callers if each is not job]
            self._drop_unwanted(key, grading)
        if is_first:
            return verdict_now
        return _reused(verdict_now, wait_s=self._clock() - started)

    async def withdraw(self, run_id: str) -> None:
        """The run is gone: what only it waited for is not graded, if it has not begun."""
        for key, grading in list(self._open.items()):
            grading.callers = [each for each in grading.callers if each.run_id != run_id]
            self._drop_unwanted(key, grading)
        self._queue.forget(run_id)

    async def tend(self, graders: Sequence[str]) -> Demand:
        """Learns which graders there are, and says what is wanted of their owner.

        ``graders`` are all that are there: others are forgotten, new ones get jobs. A pool that
        was started again so learns of those that came after the first.
        """
        for name in set(self._roster.names) - set(graders):
            self._roster.remove(name)
        for name in graders:
            if name not in self._roster.names:
                self._add(name)
        self._dispatch()
        return self._roster.demand()

    def _add(self, name: str) -> None:
        self._links[name] = self._connect(name)
        self._roster.add(name, is_grown=name not in self._first)

    def _drop_unwanted(self, key: str, grading: _Grading) -> None:
        """Drops a job without callers while it waits; else it is another caller's from now on."""
        if self._open.get(key) is not grading:
            return
        if not grading.callers:
            if self._queue.drop(grading.ticket):
                self._fail(key, grading, GraderError("nobody waits for this grading any more"))
        elif grading.ticket.job not in grading.callers and self._queue.drop(grading.ticket):
            before, grading.ticket = grading.ticket, self._queue.put(grading.callers[0])
            grading.ticket.arrived_s = before.arrived_s
            grading.ticket.num_failures = before.num_failures
            grading.ticket.failed_on = before.failed_on

    # --- grading

    def _dispatch(self) -> None:
        """Begins whatever can begin now, and sees to it that the rest is looked at in time."""
        while (placed := self._roster.next()) is not None:
            self._spawn(self._carry_out(placed))
        while (name := self._roster.to_recall()) is not None:
            self._spawn(self._recall(name))
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due_s = self._roster.due_s()
        if due_s is not None:
            delay_s = max(due_s - self._clock(), 0.0)
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._dispatch)
        if self._helping is None and self._roster.idle() and self._roster.grading():
            self._helping = self._spawn(self._seek_help())

    async def _carry_out(self, placed: Placement) -> None:
        ticket, link = placed.ticket, self._links[placed.grader]
        key = _verdict_key(ticket.job)
        grading = self._open[key]
        queue_s = self._clock() - ticket.arrived_s
        try:
            evaluations = await link.grade(ticket.job)
        except GraderError as error:
            self._roster.failed(placed)
            self._try_again(key, grading, error)
            self._spawn(self._recover(placed.grader))
        except Exception as error:  # noqa: BLE001  the checkpoint's fault, or the waiting run's affair
            self._roster.graded(placed)
            self._fail(key, grading, error)
        else:
            self._roster.graded(placed, evaluations)
            verdict = tuple(e.model_copy(update={"queue_s": queue_s}) for e in evaluations)
            self._settle(key, grading, verdict)
        self._dispatch()

    def _try_again(self, key: str, grading: _Grading, error: GraderError) -> None:
        ticket = grading.ticket
        run_id = ticket.job.run_id
        LOG.warning("grading %s failed (try %d): %s", run_id, ticket.num_failures, error)
        if ticket.num_failures > self._config.num_retries:
            self._fail(key, grading, error)
        else:
            self._queue.put_back(ticket)
            self._drop_unwanted(key, grading)

    async def _recover(self, name: str) -> None:
        await self._links[name].recover()
        self._roster.recovered(name)
        self._dispatch()

    def _fail(self, key: str, grading: _Grading, error: Exception) -> None:
        del self._open[key]
        grading.verdict.set_exception(error)
        grading.verdict.exception()  # all who waited may be gone: then nobody asks for it

    def _settle(self, key: str, grading: _Grading, verdict: Verdict) -> None:
        """Remembers a verdict, but for one that infrastructure kept from a score."""
        del self._open[key]
        grading.verdict.set_result(verdict)
        if any(evaluation.score is None for evaluation in verdict):
            return
        packed = self._verdicts[key] = _packed(verdict)
        self.remembered_bytes += len(packed)
        while self.remembered_bytes > MAX_REMEMBERED_BYTES and len(self._verdicts) > 1:
            self.remembered_bytes -= len(self._verdicts.popitem(last=False)[1])

    # --- help

    async def _seek_help(self) -> None:
        """While some graders are idle and others work: has the first help the second."""
        try:
            while self._roster.idle() and (owners := self._roster.grading()):
                offers = await asyncio.gather(*(self._offer(owner) for owner in owners))
                ranked = sorted(zip(owners, offers, strict=True), key=lambda pair: -pair[1].left_s)
                for helper in self._roster.idle():
                    self._begin_help(helper, ranked)
                await asyncio.sleep(HELP_POLL_S)
        finally:
            self._helping = None

    def _begin_help(self, helper: str, ranked: Sequence[tuple[str, Offer]]) -> None:
        under_way = self._roster.grading()
        for owner, offer in ranked:
            ticket = under_way.get(owner)
            if ticket is not None and self._roster.is_worth(helper, ticket, offer):
                self._roster.helping(helper, ticket)
                self._spawn(self._help(helper, ticket.job, owner))
                return

    async def _offer(self, owner: str) -> Offer:
        try:
            async with asyncio.timeout(OFFER_LIMIT_S):
                return await self._links[owner].offer()
        except (GraderError, TimeoutError):  # whoever waits for its job hears of it
            return NOTHING

    async def _help(self, helper: str, job: GradeJob, owner: str) -> None:
        try:
            await self._links[helper].help(job, owner)
        except GraderError as error:
            LOG.warning("%s could not help %s: %s", helper, owner, error)
            self._roster.helped(helper, is_well=False)
            self._spawn(self._recover(helper))
        except SubmissionError:  # the owner finds the same, and says so
            self._roster.helped(helper, is_well=True)
        else:
            self._roster.helped(helper, is_well=True)
        self._dispatch()

    async def _recall(self, helper: str) -> None:
        try:
            await self._links[helper].recall()
        except GraderError as error:
            LOG.warning("%s could not be recalled: %s", helper, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._tasks.discard)
        return task


def _reused(verdict: Verdict, *, wait_s: float) -> Verdict:
    return tuple(
        evaluation.model_copy(
            update={"reused": True, "queue_s": wait_s, "load_s": 0.0, "duration_s": 0.0}
        )
        for evaluation in verdict
    )


def _packed(verdict: Verdict) -> bytes:
    """The verdict as it is remembered: few are ever asked for again, and objects take much room."""
    return zlib.compress(pickle.dumps(verdict), level=1)


def _unpacked(packed: bytes) -> Verdict:
    verdict: Verdict = pickle.loads(zlib.decompress(packed))  # noqa: S301  packed by this process
    return verdict


def _verdict_key(job: GradeJob) -> str:
    digest = hashlib.sha256(job.content_hash.encode())
    digest.update(job.model.model_dump_json().encode())
    for task in job.tasks:
        digest.update(task.model_dump_json().encode())
    return digest.hexdigest()
