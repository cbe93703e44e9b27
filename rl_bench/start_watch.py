"""What a sweep waits for until its first grading is under way, for people who see nothing else yet.

The views and gradings that the table is made of tell it; nothing is decided by it.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from rl_bench.events import RunState
from rl_bench.grading_status import GradingStatus
from rl_bench.run_table import has_begun
from rl_bench.run_view import RunView
from rl_bench.waiting import SoFar

PROCESS = "waiting for the process of the first run"
ENGINE = "waiting for a grader and its engine"


class StartWatch:
    """Says what a start waits for, and for how long so far; silent once a grading is under way.

    Args:
        known: Where runs stood before: what they did then is no start.
        say: Takes a line.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        known: Mapping[str, RunView],
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = {name: view.next_seq for name, view in known.items()}
        self._say = say
        self._clock = clock
        self._so_far: SoFar | None = None
        self._is_over = False

    def look(self, views: Mapping[str, RunView], gradings: Iterable[GradingStatus]) -> None:
        """Takes where runs and gradings stand; call it every second or so."""
        if self._is_over:
            return
        what = self._waits_for(views, gradings)
        self._is_over = what is None
        if what is None:
            self._so_far = None
        elif self._so_far is None or self._so_far.what != what:
            self._so_far = SoFar(what, self._say, clock=self._clock)
            self._say(what)
        else:
            self._so_far.look()

    def _waits_for(
        self, views: Mapping[str, RunView], gradings: Iterable[GradingStatus]
    ) -> str | None:
        known = self._known
        begun = [
            view
            for name, view in views.items()
            if has_begun(view) and view.next_seq > known.get(name, 0)
        ]
        if not begun:
            return PROCESS
        early = (RunState.PREPARING, RunState.BASELINE)
        is_early = all(view.state in early and view.end is None for view in begun)
        is_counted = any(status.total for status in gradings)
        return ENGINE if is_early and not is_counted else None
