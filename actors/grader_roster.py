"""Which grader takes which job: affinity, help, health, and how many graders are wanted.

An engine start costs ten seconds to minutes, so a job goes to a grader whose engine already serves
its architecture. It takes another's only when no such grader exists and the other has no work of
its own kind waiting, or when it has been passed over for `WORTH` times what a start takes, at most
`GraderConfig.affinity_wait_s`. A grader without an engine takes anything at once.

Pure and synchronous; the calls to graders are `actors.grader_pool`'s.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from actors.grading_queue import GradingQueue, Ticket
from actors.shared_requests import Offer
from rl_bench.config import GraderConfig
from rl_bench.events import Evaluation

FAILURES_BEFORE_PAUSE = 3
"""Failures in a row, while others succeed, after which a grader is set aside."""
PAUSE_S = 120.0
"""For this long. One more failure after it sets it aside again."""
WARM_LOAD_S = 1.0
"""What a swap of weights takes before any was measured."""
WORTH = 2.0
"""Help must save more than what loading costs, and waiting for an engine may cost more than a
start of another, by this factor."""


class Doing(StrEnum):
    """What a grader does."""

    IDLE = "idle"
    GRADING = "grading"
    HELPING = "helping"
    RECOVERING = "recovering"
    RELEASED = "released"


@dataclass(slots=True, eq=False)
class _Grader:
    """What the roster knows of one; ``since_s``: what it does now began then."""

    name: str
    is_grown: bool
    since_s: float
    doing: Doing = Doing.IDLE
    architecture: str | None = None
    content_hash: str = ""
    ticket: Ticket | None = None
    is_recalled: bool = False
    num_failures: int = 0
    successes_before: int = 0
    paused_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """A ticket and the grader that is to grade it."""

    ticket: Ticket
    grader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the pool wants of the owner of the graders.

    Attributes:
        wants_more: One more grader would be of use.
        released: Graders that get no more jobs and can be ended.
        notes: What has happened to graders since the last question, for people.
    """

    wants_more: bool
    released: tuple[str, ...]
    notes: tuple[str, ...]


class Roster:
    """The graders, and the choice among them.

    Args:
        queue: The tickets that wait.
        config: Limits and waits.
        clock: Monotonic seconds, the queue's.
    """

    def __init__(
        self, queue: GradingQueue, *, config: GraderConfig, clock: Callable[[], float]
    ) -> None:
        self._queue = queue
        self._config = config
        self._clock = clock
        self._graders: dict[str, _Grader] = {}
        self._num_successes = 0
        self._cold_s: dict[str, float] = {}
        self._warm_s: dict[str, float] = {}
        self._notes: list[str] = []

    def __len__(self) -> int:
        return len(self._graders)

    @property
    def names(self) -> tuple[str, ...]:
        """All graders, in the order they came."""
        return tuple(self._graders)

    def add(self, name: str, *, is_grown: bool = False) -> None:
        """A new grader without an engine; one that was ``is_grown`` can be released again."""
        self._graders[name] = _Grader(name, is_grown, self._clock())

    def remove(self, name: str) -> None:
        """The grader is gone; what it is grading will fail by itself."""
        self._graders.pop(name, None)

    # --- jobs

    def next(self) -> Placement | None:
        """The next job that can begin now, taken out of the queue; ``None``: nothing can."""
        idle = [grader for grader in self._graders.values() if self._is_idle(grader)]
        if not idle:
            return None
        tickets = self._queue.in_order()
        for ticket in tickets:
            grader = self._choose(ticket, idle, tickets)
            if grader is not None:
                self._queue.take(ticket)
                self._set(grader, Doing.GRADING)
                grader.ticket = ticket
                return Placement(ticket, grader.name)
        return None

    def graded(self, placed: Placement, evaluations: tuple[Evaluation, ...] = ()) -> None:
        """The grading ended with a verdict, or through the checkpoint's fault."""
        job, architecture = placed.ticket.job, placed.ticket.architecture
        self._queue.settle(placed.ticket)
        self._num_successes += 1
        for evaluation in evaluations:
            if evaluation.load_kind in ("cold", "warm"):
                known = self._cold_s if evaluation.load_kind == "cold" else self._warm_s
                known[architecture] = evaluation.load_s
        grader = self._graders.get(placed.grader)
        if grader is not None:
            grader.num_failures = 0
            grader.architecture, grader.content_hash = architecture, job.content_hash
            self._set(grader, Doing.IDLE)

    def failed(self, placed: Placement) -> None:
        """The grading ended through the grader's fault; it gets no job before `recovered`."""
        ticket = placed.ticket
        self._queue.settle(ticket)
        ticket.failed_on.add(placed.grader)
        ticket.num_failures += 1
        grader = self._graders.get(placed.grader)
        if grader is not None:
            self._set(grader, Doing.RECOVERING)
            grader.architecture, grader.content_hash = None, ""
            self._note_failure(grader)

    def recovered(self, name: str) -> None:
        """The grader answers again."""
        grader = self._graders.get(name)
        if grader is not None and grader.doing is Doing.RECOVERING:
            self._set(grader, Doing.IDLE)

    def due_s(self) -> float | None:
        """When `next` may find what it did not find now, though nothing happened meanwhile."""
        times = [
            grader.paused_until_s
            for grader in self._graders.values()
            if grader.paused_until_s > self._clock()
        ]
        times += [
            ticket.passed_over_s + self._patience_s(ticket)
            for ticket in self._queue.in_order()
            if ticket.passed_over_s is not None
        ]
        return min((time for time in times if time > self._clock()), default=None)

    def _choose(self, ticket: Ticket, idle: list[_Grader], tickets: list[Ticket]) -> _Grader | None:
        usable = [grader for grader in self._graders.values() if self._is_usable(grader)]
        untried = [grader for grader in usable if grader.name not in ticket.failed_on]
        allowed = untried or usable
        at_hand = [grader for grader in idle if grader in allowed]
        wanted, content = ticket.architecture, ticket.job.content_hash
        fitting = [grader for grader in at_hand if grader.architecture == wanted]
        if fitting:
            return next((each for each in fitting if each.content_hash == content), fitting[0])
        empty = [grader for grader in at_hand if grader.architecture is None]
        if empty:
            return empty[0]
        if self._has_waited(ticket):
            return self._least_needed(at_hand or idle, tickets)
        if not any(grader.architecture == wanted for grader in allowed):
            waiting = {other.architecture for other in tickets}
            spare = [grader for grader in at_hand if grader.architecture not in waiting]
            if spare:
                return self._least_needed(spare, tickets)
        if ticket.passed_over_s is None:
            ticket.passed_over_s = self._clock()
        return None

    def _has_waited(self, ticket: Ticket) -> bool:
        since = ticket.passed_over_s
        return since is not None and self._clock() - since >= self._patience_s(ticket)

    def _patience_s(self, ticket: Ticket) -> float:
        """How long a job may be passed over."""
        longest_s = self._config.affinity_wait_s
        return min(longest_s, WORTH * self._cold_s.get(ticket.architecture, longest_s))

    def _least_needed(self, graders: list[_Grader], tickets: list[Ticket]) -> _Grader:
        """Whose architecture has the least work waiting, and the most other graders."""

        def need(grader: _Grader) -> tuple[int, int]:
            kind = grader.architecture
            waiting = sum(ticket.architecture == kind for ticket in tickets)
            return waiting, -sum(other.architecture == kind for other in self._graders.values())

        return min(graders, key=need)

    # --- help

    def to_recall(self) -> str | None:
        """A helper that is to stop for a job that waits, told once; rather one that fits it."""
        helpers = [each for each in self._graders.values() if each.doing is Doing.HELPING]
        num_coming = sum(each.is_recalled for each in helpers)
        waiting = self._queue.in_order()[num_coming:]
        staying = [each for each in helpers if not each.is_recalled]
        if not waiting or not staying:
            return None
        wanted = waiting[0].architecture
        chosen = next((each for each in staying if each.architecture == wanted), staying[0])
        chosen.is_recalled = True
        return chosen.name

    def idle(self) -> tuple[str, ...]:
        """Graders that could help; none while a job waits."""
        if len(self._queue):
            return ()
        return tuple(each.name for each in self._graders.values() if self._is_idle(each))

    def grading(self) -> dict[str, Ticket]:
        """Graders at work and what they grade."""
        return {
            each.name: each.ticket
            for each in self._graders.values()
            if each.doing is Doing.GRADING and each.ticket is not None
        }

    def is_worth(self, helper: str, ticket: Ticket, offer: Offer) -> bool:
        """Whether the helper can load the checkpoint and still save time."""
        if not offer.num_items or helper not in self._graders:
            return False
        wanted, held = ticket.architecture, self._graders[helper].architecture
        if held == wanted:
            return offer.left_s > WORTH * self._warm_s.get(wanted, WARM_LOAD_S)
        # An engine that is given up for it will have to be started again.
        num_starts = 1 if held is None else 2
        cold_s = num_starts * self._cold_s.get(wanted, self._config.affinity_wait_s)
        return offer.is_measured and offer.left_s > WORTH * cold_s

    def helping(self, helper: str, ticket: Ticket) -> None:
        """The idle grader begins to help with a ticket that another grades."""
        grader = self._graders[helper]
        self._set(grader, Doing.HELPING)
        grader.architecture, grader.content_hash = ticket.architecture, ticket.job.content_hash

    def helped(self, helper: str, *, is_well: bool) -> None:
        """It has ended; when it failed it gets no job before `recovered`."""
        grader = self._graders.get(helper)
        if grader is None:
            return
        self._set(grader, Doing.IDLE if is_well else Doing.RECOVERING)
        if not is_well:
            grader.architecture, grader.content_hash = None, ""
            self._note_failure(grader)

    # --- how many

    def demand(self) -> Demand:
        """What is wanted now; notes are told once."""
        for grader in self._graders.values():
            if self._is_surplus(grader):
                self._set(grader, Doing.RELEASED)
        notes, self._notes = tuple(self._notes), []
        return Demand(
            wants_more=self._wants_more(),
            released=tuple(
                each.name for each in self._graders.values() if each.doing is Doing.RELEASED
            ),
            notes=notes,
        )

    def _wants_more(self) -> bool:
        num = sum(each.doing is not Doing.RELEASED for each in self._graders.values())
        limit = self._config.most_graders
        return num < limit and self._queue.oldest_wait_s() >= self._config.grow_after_s

    def _is_surplus(self, grader: _Grader) -> bool:
        if not grader.is_grown or grader.doing is not Doing.IDLE or len(self._queue):
            return False
        return self._clock() - grader.since_s >= self._config.shrink_after_s

    # --- states

    def _set(self, grader: _Grader, doing: Doing) -> None:
        grader.doing, grader.since_s, grader.is_recalled = doing, self._clock(), False
        if doing is not Doing.GRADING:
            grader.ticket = None

    def _is_usable(self, grader: _Grader) -> bool:
        return grader.doing is not Doing.RELEASED and grader.paused_until_s <= self._clock()

    def _is_idle(self, grader: _Grader) -> bool:
        return grader.doing is Doing.IDLE and self._is_usable(grader)

    def _note_failure(self, grader: _Grader) -> None:
        """Sets it aside when it fails again and again while others succeed."""
        if not grader.num_failures:
            grader.successes_before = self._num_successes
        grader.num_failures += 1
        others = [each for each in self._graders.values() if each is not grader]
        is_alone = self._num_successes == grader.successes_before
        if grader.num_failures < FAILURES_BEFORE_PAUSE or is_alone:
            return
        if not any(map(self._is_usable, others)):
            return
        grader.paused_until_s = self._clock() + PAUSE_S
        grader.num_failures = FAILURES_BEFORE_PAUSE - 1
        self._notes.append(
            f"{grader.name} failed {FAILURES_BEFORE_PAUSE} times in a row while others did not: "
            f"it gets no jobs for {PAUSE_S:.0f} s"
        )
