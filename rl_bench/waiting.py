"""What takes long says for how long so far: after 5 s, 10 s, 20 s and so on, each time one line."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_S = 5.0
"""What takes less is not told of."""


class SoFar:
    """How long something lasts, for whoever looks every now and then.

    Args:
        what: In words that a colon may follow.
        say: Takes a line.
        first_s: Seconds until the first line; each time after that is twice as long.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        what: str,
        say: Callable[[str], None],
        *,
        first_s: float = FIRST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what = what
        self._say = say
        self._clock = clock
        self._began_s = clock()
        self._next_s = first_s

    @property
    def quiet_s(self) -> float:
        """Seconds until a line is due."""
        return max(self._began_s + self._next_s - self._clock(), 0.0)

    def look(self) -> None:
        """Says a line if one is due."""
        if not self.quiet_s:
            spent_s = self._clock() - self._began_s
            self._say(f"{self.what}: {spent_s:.0f} s so far")
            while self._next_s <= spent_s:
                self._next_s *= 2


@contextmanager
def told_while(
    what: str, say: Callable[[str], None], *, first_s: float = FIRST_S
) -> Iterator[None]:
    """Says for how long the block lasts, from a thread: nobody need look.

    Args:
        what: As in `SoFar`.
        say: Takes a line; called in that thread.
        first_s: As in `SoFar`.
    """
    so_far = SoFar(what, say, first_s=first_s)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(so_far.quiet_s):
            so_far.look()

    thread = threading.Thread(target=watch, name="told_while", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
