"""Notices an agent that does nothing: neither output nor CPU time for a long while.

A stall is only told, never punished: an agent may wait for its language model or for a score.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class StallWatch:
    """Tells when neither output nor CPU time moved for ``limit_s``, once a stall."""

    def __init__(self, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._last: tuple[int, float] | None = None
        self._since = 0.0
        self._told = False

    def see(self, activity: tuple[int, float], *, now: float) -> float | None:
        """Takes (output bytes, CPU seconds); a stall's length in seconds when it is to be told."""
        if self._last is None or self._moved(activity):
            self._last, self._since, self._told = activity, now, False
            return None
        if self._told or now - self._since < self._limit_s:
            return None
        self._told = True
        return now - self._since

    def _moved(self, activity: tuple[int, float]) -> bool:
        assert self._last is not None
        # Idle runtimes tick; half a second of CPU between two looks is work.
        return activity[0] != self._last[0] or abs(activity[1] - self._last[1]) > 0.5


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds that the living ``pids`` have used."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            fields = stat[stat.rindex(b")") + 2 :].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS
