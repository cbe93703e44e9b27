"""Watches the disk of a run's results: a warning early, and the agent's end before it is full.

Where nothing can be written any more no submission can be accepted either, so a run on a full disk
is infrastructure's failure, not the agent's.
"""

import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rl_bench.counts import plural

WARN_BYTES = 1024**3
STOP_BYTES = 16 * 1024**2
WARN_FILES = 20_000
STOP_FILES = 500
"""Files and folders that the disk has room for, where it has a number of them."""
CHECK_S = 1.0


class DiskWatch:
    """Asked again and again while the agent works.

    Args:
        folder: On the disk to watch.
        warn: Told once, in words, when less than `WARN_BYTES` are free, or few files can be made.

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
        num_files = _room_for_files(self._folder)
        words = f"the disk of {self._folder} has {free / 1024**2:.0f} MiB free"
        if num_files < WARN_FILES:
            words += f" and room for {plural(int(num_files), 'file')}"
        if free < STOP_BYTES or num_files < STOP_FILES:
            self.problem = f"{words}: free some space and give the same command again"
        elif (free < WARN_BYTES or num_files < WARN_FILES) and not self._warned:
            self._warned = True
            self._warn(words)
        return bool(self.problem)


def _room_for_files(folder: Path) -> float:
    """How many more an ordinary user may make; infinite where the file system counts none."""
    status = os.statvfs(folder)
    return status.f_favail if status.f_files else math.inf
