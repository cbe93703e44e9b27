"""The graders of a sweep, whose number follows the work.

The pool says what it wants; here graders are started and ended, in the sweep's own process, so
that all of them end with it. Nothing here ever waits: a grader for which there is no room yet
stays asked for, which on a cluster brings a node, and is withdrawn when it has not been wanted
for a while.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from actors.grader_roster import Demand
from actors.remote import Handle, last_line
from rl_bench.config import GraderConfig
from rl_bench.counts import plural

TEND_S = 2.0
"""Between two questions to the pool, which has at most one to answer at a time."""
CLOSE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Starting:
    """A grader that was asked for; ``ready`` is answered when it is there."""

    name: str
    actor: Handle
    ready: "ray.ObjectRef[Any]"


@dataclass(frozen=True, slots=True)
class _Ending:
    """A grader whose engine is being closed."""

    actor: Handle
    closed: "ray.ObjectRef[Any]"
    deadline_s: float


class GraderFleet:
    """Starts and ends graders as the pool wants it.

    Args:
        pool: The pool's actor.
        graders: Those that there are, by name.
        start: Starts a grader of a name; returns before it is there.
        config: How many there may be.
        say: Told of what people should know.
        tend_s: Seconds between two questions to the pool.
    """

    def __init__(
        self,
        pool: Handle,
        graders: Mapping[str, Handle],
        *,
        start: Callable[[str], Handle],
        config: GraderConfig,
        say: Callable[[str], None],
        tend_s: float = TEND_S,
    ) -> None:
        self._pool = pool
        self._graders = dict(graders)
        self._start = start
        self._config = config
        self._say = say
        self._tend_s = tend_s
        self._next_s = time.monotonic()
        self._next_number = len(graders)
        self._asked: ray.ObjectRef[Any] | None = None
        self._starting: _Starting | None = None
        self._wanted_s = 0.0
        self._ending: list[_Ending] = []

    @property
    def graders(self) -> Sequence[Handle]:
        """All that get jobs."""
        return list(self._graders.values())

    @property
    def num_starting(self) -> int:
        """1 while a further grader is asked for."""
        return int(self._starting is not None)

    def tend(self) -> None:
        """Goes one step on; returns at once."""
        self._take_started()
        self._end_closed()
        demand = self._answer()
        if demand is not None:
            for note in demand.notes:
                self._say(note)
            for name in demand.released:
                if self._end(name):
                    left = plural(len(self._graders), "grader")
                    self._say(f"{name} had nothing to do and ends: {left}")
            self._follow(wants_more=demand.wants_more)
        if self._asked is None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._tend_s
            self._asked = self._pool.tend.remote(tuple(self._graders))

    def begin_close(self) -> None:
        """Has all engines end; `close` waits for it."""
        if self._starting is not None:
            ray.kill(self._starting.actor)
        for name in list(self._graders):
            self._end(name)

    def close(self) -> None:
        """Returns when all engines have ended, at the latest after `CLOSE_LIMIT_S`."""
        closing = [ending.closed for ending in self._ending]
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)

    def _answer(self) -> Demand | None:
        if self._asked is None or not _is_done(self._asked):
            return None
        asked, self._asked = self._asked, None
        try:
            demand: Demand = ray.get(asked)
        except RayError:  # it is being started again, and asked again
            return None
        return demand

    def _follow(self, *, wants_more: bool) -> None:
        now = time.monotonic()
        if wants_more:
            self._wanted_s = now
        if wants_more and self._starting is None and len(self._graders) < self._config.most_graders:
            name = f"grader-{self._next_number}"
            self._next_number += 1
            actor = self._start(name)
            self._starting = _Starting(name, actor, actor.__ray_ready__.remote())
            self._say(f"{name} is asked for: a job waits longer than {self._config.grow_after_s} s")
        elif self._starting is not None and now - self._wanted_s > self._config.grow_after_s:
            ray.kill(self._starting.actor)
            self._say(f"{self._starting.name} is no longer needed, and had no room yet")
            self._starting = None

    def _take_started(self) -> None:
        starting = self._starting
        if starting is None or not _is_done(starting.ready):
            return
        self._starting = None
        try:
            ray.get(starting.ready)
        except RayError as error:
            self._say(f"{starting.name} could not start: {last_line(error)}")
            ray.kill(starting.actor)
            return
        self._graders[starting.name] = starting.actor
        self._next_s = time.monotonic()  # the pool is told at once
        self._say(f"{starting.name} is there: {plural(len(self._graders), 'grader')}")

    def _end(self, name: str) -> bool:
        """Has its engine closed; ``False``: that was done before."""
        actor = self._graders.pop(name, None)
        if actor is None:
            return False
        deadline_s = time.monotonic() + CLOSE_LIMIT_S
        self._ending.append(_Ending(actor, actor.close.remote(), deadline_s))
        return True

    def _end_closed(self) -> None:
        now = time.monotonic()
        over = [each for each in self._ending if _is_done(each.closed) or now > each.deadline_s]
        for each in over:
            self._ending.remove(each)
            ray.kill(each.actor)


def _is_done(reference: "ray.ObjectRef[Any]") -> bool:
    done, _ = ray.wait([reference], timeout=0)
    return bool(done)
