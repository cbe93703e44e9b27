"""The end of what is left of an agent: of a killed supervisor's tree, of an earlier attempt."""

import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from rl_bench.process.supervisor import KILL_LIMIT_S, MARK_VARIABLE
from rl_bench.process.tree import kill_groups, send, start_ticks, with_variable


class Ended(NamedTuple):
    """How many processes were ended, and how many even SIGKILL did not end in time."""

    num_ended: int
    num_left: int


def end_strays(known: Collection[int], *, supervisor: int, mark: str) -> Ended:
    """Ends ``known``, and whatever carries the mark: what a supervisor's tree was.

    Args:
        known: Its processes as far as they are known, its sandbox's among them.
        supervisor: The supervisor itself, which may hang; 0 if it is not known.
        mark: The value of `MARK_VARIABLE`.
    """
    return _end(known, supervisor=supervisor, variable=MARK_VARIABLE, value=mark)


def end_earlier(workspace: Path) -> Ended:
    """Ends what an earlier attempt's agent left on this machine, before its workspace is made anew.

    A run's process that was killed has left its agent to a supervisor that gives it its grace; the
    next attempt, made meanwhile in the same place, must not be written into.
    """
    return _end((), supervisor=0, variable="WORKSPACE", value=str(workspace))


def _end(known: Collection[int], *, supervisor: int, variable: str, value: str) -> Ended:
    born = {pid: ticks for pid in known if (ticks := start_ticks(pid)) is not None}
    if supervisor:
        send([supervisor], signal.SIGKILL)
    deadline = time.monotonic() + KILL_LIMIT_S
    num_ended = 0
    while True:
        # A sandbox goes with its wrapper, and the kernel may take a moment for all that is in it.
        rest = {pid for pid, ticks in born.items() if start_ticks(pid) == ticks}
        rest |= set(with_variable(variable, value))
        num_ended = max(num_ended, len(rest))
        if not rest or time.monotonic() > deadline:
            return Ended(num_ended, len(rest))
        kill_groups(rest)
        time.sleep(0.05)
