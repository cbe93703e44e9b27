"""In what order jobs are graded: baselines, then the run that has had the least of the graders.

Fair by attained service: what counts is the seconds that graders have spent on a run, so that
neither many cheap submissions nor few dear ones starve others. A run that was away, or is new,
joins where the others stand (start-time fair queueing: Goyal, Vin and Cheng, 1996), so that no
newcomer holds up those who have come far. One run's own submissions keep their order.

Pure and synchronous: which grader takes a job is `actors.grader_roster`'s business, and waiting
is `actors.grader_pool`'s.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rl_bench.grading import GradeJob

FIRST_GUESS_S = 60.0
"""What a grading is taken to cost before any has ended."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A job that waits or is graded.

    Attributes:
        job: Of the first of those who wait for it.
        number: Order of arrival.
        arrived_s: On the queue's clock, seconds; ``taken_s``: when its present grading began.
        architecture: What an engine must have been started for to take it without a new start.
        failed_on: Graders that it was tried on in vain; ``num_failures`` counts the tries.
        passed_over_s: Since when it has been its turn and it waits for a better grader.
    """

    job: GradeJob
    number: int
    arrived_s: float
    taken_s: float | None = None
    failed_on: set[str] = field(default_factory=set)
    num_failures: int = 0
    passed_over_s: float | None = None
    architecture: str = field(init=False)

    def __post_init__(self) -> None:
        self.architecture = self.job.model.model_dump_json()

    @property
    def is_baseline(self) -> bool:
        """Baselines go before every submission and are charged to nobody."""
        return self.job.submission_id is None


@dataclass(slots=True)
class _Run:
    """A run's account: ``attained_s`` of ended gradings, and what one of them takes."""

    attained_s: float = 0.0
    usual_s: float | None = None
    waiting: deque[Ticket] = field(default_factory=deque)
    in_service: list[Ticket] = field(default_factory=list)


class GradingQueue:
    """Tickets of many runs.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._baselines: deque[Ticket] = deque()
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, _Run] = {}
        self._virtual_s = 0.0
        self._usual_s = FIRST_GUESS_S

    def __len__(self) -> int:
        """Tickets that wait."""
        return len(self._baselines) + sum(len(run.waiting) for run in self._waiting.values())

    def put(self, job: GradeJob) -> Ticket:
        """A new ticket, behind its run's others."""
        ticket = Ticket(job, next(self._numbers), self._clock())
        if ticket.is_baseline:
            self._baselines.append(ticket)
            return ticket
        run = self._runs.setdefault(job.run_id, _Run())
        if not run.waiting and not run.in_service:
            run.attained_s = max(run.attained_s, self._virtual_s)
        run.waiting.append(ticket)
        self._waiting[job.run_id] = run
        return ticket

    def put_back(self, ticket: Ticket) -> None:
        """A ticket whose grading failed goes before its run's others."""
        if ticket.is_baseline:
            self._baselines.appendleft(ticket)
            return
        run = self._runs[ticket.job.run_id]
        run.waiting.appendleft(ticket)
        self._waiting[ticket.job.run_id] = run

    def in_order(self) -> list[Ticket]:
        """Baselines, then the first ticket of each run that waits; the next to be graded first."""
        heads = [
            (self.attained_s(name), run.waiting[0].number, run.waiting[0])
            for name, run in self._waiting.items()
        ]
        return [*self._baselines, *(ticket for _, _, ticket in sorted(heads, key=lambda h: h[:2]))]

    def attained_s(self, run_id: str) -> float:
        """Grading seconds of a run; a grading under way counts as what one usually takes."""
        run = self._runs.get(run_id)
        return self._attained_s(run) if run else 0.0

    def take(self, ticket: Ticket) -> None:
        """The ticket waits no longer: its grading begins."""
        ticket.taken_s = self._clock()
        ticket.passed_over_s = None
        if ticket.is_baseline:
            self._baselines.remove(ticket)
            return
        run = self._runs[ticket.job.run_id]
        self._virtual_s = max(self._virtual_s, self._attained_s(run))
        self._remove(run, ticket)
        run.in_service.append(ticket)

    def settle(self, ticket: Ticket) -> None:
        """The ticket's grading has ended, well or not; its run is charged what it took."""
        assert ticket.taken_s is not None
        spent_s = self._clock() - ticket.taken_s
        ticket.taken_s = None
        self._usual_s = spent_s
        if not ticket.is_baseline:
            run = self._runs[ticket.job.run_id]
            run.in_service.remove(ticket)
            run.attained_s += spent_s
            run.usual_s = spent_s

    def drop(self, ticket: Ticket) -> bool:
        """Removes a ticket that nobody waits for; ``False`` when it does not wait any more."""
        if ticket in self._baselines:
            self._baselines.remove(ticket)
            return True
        run = self._runs.get(ticket.job.run_id)
        if run is None or ticket not in run.waiting:
            return False
        self._remove(run, ticket)
        return True

    def forget(self, run_id: str) -> None:
        """The run is gone; should it come back, it joins where the others stand."""
        run = self._runs.get(run_id)
        if run is not None and not run.waiting and not run.in_service:
            del self._runs[run_id]

    def oldest_wait_s(self) -> float:
        """How long the ticket that came first has waited; 0 when none waits."""
        arrived = [ticket.arrived_s for ticket in self._baselines]
        arrived += [run.waiting[0].arrived_s for run in self._waiting.values()]
        return self._clock() - min(arrived) if arrived else 0.0

    def _attained_s(self, run: _Run) -> float:
        now, usual_s = self._clock(), run.usual_s or self._usual_s
        under_way = (max(now - (ticket.taken_s or now), usual_s) for ticket in run.in_service)
        return run.attained_s + sum(under_way)

    def _remove(self, run: _Run, ticket: Ticket) -> None:
        run.waiting.remove(ticket)
        if not run.waiting:
            del self._waiting[ticket.job.run_id]
