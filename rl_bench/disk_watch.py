"""Watches the disk of a run's results: a warning early, and the agent's end before it is full.

Where nothing can be written any more no submission can be accepted either, so a run on a full disk
is infrastructure's failure, not the agent's.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

WARN_BYTES = 1024**3
STOP_BYTES = 16 * 1024**2
CHECK_S = 1.0


class DiskWatch:
    """Asked again and again while the agent works.

    Args:
        folder: On the disk to watch.
        warn: Told once, in words, when less than `WARN_BYTES` are free.

    Attributes:
        problem: What is wrong, in words; empty while there is space.
    """

    def __init__(self, folder: Path, *, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._warned = False
        self._next_check = 0.0
        self.problem = ""

    def is_full(self) -> bool:
        """Whether the disk is so full that the run must stop; looks once a second."""
        now = time.monotonic()
        if self.problem or now < self._next_check:
            return bool(self.problem)
        self._next_check = now + CHECK_S
        return self.look()

    def look(self) -> bool:
        """The same, looking now."""
        free = shutil.disk_usage(self._folder).free
        words = f"the disk of {self._folder} has {free / 1024**2:.0f} MiB free"
        if free < STOP_BYTES:
            self.problem = f"{words}: free some space and give the same command again"
        elif free < WARN_BYTES and not self._warned:
            self._warned = True
            self._warn(words)
        return bool(self.problem)
