"""Limits of a whole process tree, watched from its supervisor: how many processes, how much memory.

Standard library only: the supervisor takes it along.
"""

import contextlib
from collections.abc import Collection
from pathlib import Path

from rl_bench.process.tree import below, memory_bytes, processes

LOOK_S = 1.0
MEMORY_LOOK_S = 0.25
"""Memory can grow by gigabytes in a second."""
MIN_JUMP = 32
"""So many more tasks on the machine than at the last look are a reason to look at once."""
_GIB = 1024**3


class LimitWatch:
    """Tells when a tree is over a limit. A look costs some ms, so it is taken now and then.

    Args:
        root: The tree is below this process.
        max_processes: The most at one time; None: any number.
        max_memory_bytes: The most resident memory together; None: any amount.
    """

    def __init__(
        self, root: int, *, max_processes: int | None, max_memory_bytes: int | None
    ) -> None:
        self._root = root
        self._max_processes = max_processes
        self._max_memory_bytes = max_memory_bytes
        self._every_s = LOOK_S if max_memory_bytes is None else MEMORY_LOOK_S
        self._jump = max(MIN_JUMP, (max_processes or 0) // 8)
        self._next = 0.0
        self._num_tasks = 0

    def exceeded(self, *, now: float, ignore: Collection[int]) -> str:
        """What is too much, in words; empty when nothing is, or when it is no time to look.

        Args:
            now: Monotonic seconds.
            ignore: Processes of the tree that do not count.
        """
        if self._max_processes is None and self._max_memory_bytes is None:
            return ""
        num_tasks = _num_tasks()
        if now < self._next and num_tasks - self._num_tasks < self._jump:
            return ""
        self._next, self._num_tasks = now + self._every_s, num_tasks
        found = below(self._root, processes())
        for pid in ignore:
            found.pop(pid, None)
        if self._max_processes is not None and len(found) > self._max_processes:
            return f"{len(found)} processes at one time, where {self._max_processes} are allowed"
        if self._max_memory_bytes is not None:
            used = memory_bytes(found, limit=self._max_memory_bytes)
            if used > self._max_memory_bytes:
                allowed = self._max_memory_bytes / _GIB
                return f"{used / _GIB:.2f} GiB of memory, where {allowed:.2f} are allowed"
        return ""


def _num_tasks() -> int:
    """Processes and threads of the machine: one short read that shows a storm of forks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    return 0
