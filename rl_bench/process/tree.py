"""Process trees as `/proc` shows them: who lives, what it uses, and how it is ended.

Standard library only: the supervisor takes it along.
"""

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB = 1024


class Stat(NamedTuple):
    """What `/proc/<pid>/stat` tells of a living process.

    ``start_ticks``: when it started, in clock ticks since boot; with the pid it names a process.
    """

    parent: int
    cpu_ticks: int
    start_ticks: int
    rss_bytes: int


def stat_of(pid: int) -> Stat | None:
    """A process's state; None when it is gone or a zombie."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = _read(f"/proc/{pid}/stat")
        fields = line[line.rindex(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X"):
            return Stat(
                parent=int(fields[1]),
                cpu_ticks=int(fields[11]) + int(fields[12]),
                start_ticks=int(fields[19]),
                rss_bytes=int(fields[21]) * _PAGE_BYTES,
            )
    return None


def _read(path: str) -> bytes:
    """A small file of `/proc`; a third of the time that `Path.read_bytes` takes."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or a zombie."""
    stat = stat_of(pid)
    return None if stat is None else stat.start_ticks


def processes() -> dict[int, Stat]:
    """Every process that is no zombie, by its id."""
    names = os.listdir("/proc")  # noqa: PTH208  called often, and pathlib is slow
    found = {int(name): stat_of(int(name)) for name in names if name.isdigit()}
    return {pid: stat for pid, stat in found.items() if stat is not None}


def parents() -> dict[int, int]:
    """Parent by process id, for every process that is not a zombie."""
    return {pid: stat.parent for pid, stat in processes().items()}


def below(root: int, all_: Mapping[int, Stat]) -> dict[int, Stat]:
    """Of ``all_``, the processes below ``root``, without itself."""
    children: dict[int, list[int]] = {}
    for pid, stat in all_.items():
        children.setdefault(stat.parent, []).append(pid)
    found: dict[int, Stat] = {}
    queue = list(children.get(root, ()))
    while queue:
        pid = queue.pop()
        found[pid] = all_[pid]
        queue.extend(children.get(pid, ()))
    return found


def descendants(root: int) -> list[int]:
    """Living processes below ``root``, without itself."""
    return list(below(root, processes()))


def argv_of(pid: int) -> tuple[str, ...]:
    """A process's command line; empty when it is gone or has none."""
    with contextlib.suppress(OSError):
        words = Path("/proc", str(pid), "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return tuple(word.decode("utf-8", errors="replace") for word in words if words != [b""])
    return ()


def with_variable(name: str, value: str) -> list[int]:
    """Living processes that carry ``name=value`` in their environment, without this one."""
    needle = f"{name}={value}".encode()
    found = []
    for pid in parents():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and needle in variables:
                found.append(pid)
    return found


def outer_pid(pid: int, *, among: Iterable[int]) -> int:
    """The process that is ``pid`` in its own PID namespace; 0 when it is not ``among`` those."""
    for candidate in among:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{candidate}/status").read_text().splitlines():
                if line.startswith("NSpid:") and int(line.split()[-1]) == pid:
                    return candidate
    return 0


def memory_bytes(found: Mapping[int, Stat], *, limit: float) -> int:
    """Resident memory together; where plain sums exceed ``limit``, shared pages count once.

    A sum of resident sizes counts what processes share again for each; the kernel's proportional
    sizes do not, and cost much more to ask for. A fork between two of them is counted twice, so
    they are asked for twice.
    """
    total = sum(stat.rss_bytes for stat in found.values())
    for _ in range(2):
        if total > limit:
            total = sum(map(_proportional_bytes, found))
    return total


def _proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIB
    # It is not ours to read, or the process has ended meanwhile.
    stat = stat_of(pid)
    return 0 if stat is None else stat.rss_bytes


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signals each of ``pids``; one that is gone is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_groups(pids: Collection[int]) -> None:
    """SIGKILL for the process groups of ``pids``, and for each of them.

    The kernel takes a group as a whole, so that a group that forks faster than it can be listed
    does not get away. The caller's own group is left out.
    """
    groups = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(pid))
    for group in groups - {os.getpgrp(), 0, 1}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    send(pids, signal.SIGKILL)
