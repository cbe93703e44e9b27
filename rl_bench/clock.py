"""The run's one clock: what `/time` says, what `run_meta.json` shows and what kills the agent.

It starts with the agent, after the baseline. It is monotonic: a changed wall clock, time zone or
daylight saving moves nothing. Linux's monotonic clock stands still while a machine is suspended,
so a suspended machine uses no budget. Time that a blocking submission waited in the grader's queue
is credited back, up to a cap; waits that overlap are credited once, since the agent lived through
them at the same time.
"""

import threading
import time
from collections.abc import Callable

from rl_bench.config import BudgetConfig


class RunClock:
    """Seconds used and left of a run's budget; thread-safe.

    Args:
        budget: The run's budget.
        now: Monotonic seconds.
    """

    def __init__(self, budget: BudgetConfig, *, now: Callable[[], float] = time.monotonic) -> None:
        self.budget_s = float(budget.wall_clock_s)
        self._max_credit_s = budget.max_queue_credit_s if budget.credit_queue_wait else 0.0
        self._now = now
        self._mutex = threading.Lock()
        self._started: float | None = None
        self._waits: list[tuple[float, float]] = []

    def start(self) -> None:
        """Starts the budget; once only.

        Raises:
            RuntimeError: The clock runs already.
        """
        with self._mutex:
            if self._started is not None:
                raise RuntimeError("the run's clock has been started already")
            self._started = self._now()

    @property
    def started(self) -> bool:
        """Whether the budget is being used."""
        return self._started is not None

    @property
    def used_s(self) -> float:
        """Seconds since the start, without credited ones; 0 before the start."""
        with self._mutex:
            if self._started is None:
                return 0.0
            return max(0.0, self._now() - self._started - self._credit_s())

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative; the whole budget before the start."""
        return max(0.0, self.budget_s - self.used_s)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.remaining_s <= 0

    @property
    def queue_credit_s(self) -> float:
        """Seconds credited so far."""
        with self._mutex:
            return self._credit_s()

    def now(self) -> float:
        """A mark on this clock for `credit`'s ``since``."""
        return self._now()

    def credit(self, seconds: float, *, since: float | None = None) -> float:
        """Gives back a wait of ``seconds`` that began at ``since`` (default: that ends now).

        Returns:
            The seconds that this added, after overlaps and the cap.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"a credit of {seconds} s is negative")
        with self._mutex:
            if self._started is None:
                return 0.0
            before, now = self._credit_s(), self._now()
            begin = max(self._started, now - seconds if since is None else since)
            self._waits = _merged([*self._waits, (begin, min(now, begin + seconds))])
            return self._credit_s() - before

    def _credit_s(self) -> float:
        return min(self._max_credit_s, sum(end - begin for begin, end in self._waits))


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
