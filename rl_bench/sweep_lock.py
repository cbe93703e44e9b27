"""``driver.lock``: one process at a time drives a sweep, or makes its tables anew."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from rl_bench.clone import open_regular
from rl_bench.errors import PreflightError, SweepConflictError
from rl_bench.paths import SweepPaths

LOOK_S = 0.5
"""Who only looks whether the lock is held has it for less."""
_WAIT = "Wait for it or stop it, or choose another sweep.name="


@contextmanager
def hold_sweep(paths: SweepPaths, *, cure: str = _WAIT) -> Iterator[None]:
    """Holds the lock; the sweep's folder is made if it is not there.

    Args:
        paths: Of the sweep.
        cure: What to do about another process that holds it.

    Raises:
        SweepConflictError: Another process holds it.
        PreflightError: The folder or the lock cannot be used.
    """
    lock = FileLock(paths.lock, timeout=LOOK_S)
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise _in_use(paths, cure) from error
    except OSError as error:
        raise PreflightError(
            f"the sweep's folder {paths.root} cannot be used: {error}",
            cure="Free its place and make it writable, or choose another paths.results=",
        ) from error
    try:
        yield
    finally:
        lock.release()


def check_not_held(paths: SweepPaths) -> None:
    """Looks whether a process holds the lock, and leaves it as it is.

    Raises:
        SweepConflictError: One does.
    """
    if is_driven(paths):  # what is wrong with a lock that cannot be read, `hold_sweep` says
        raise _in_use(paths, _WAIT)


def is_driven(paths: SweepPaths) -> bool | None:
    """Whether a process runs the sweep; None: its lock is not there or cannot be read."""
    try:
        with open_regular(paths.lock, follow=True) as lock:
            # Shared and for an instant only: it tells of a holder and excludes no other look.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _in_use(paths: SweepPaths, cure: str) -> SweepConflictError:
    name = paths.root.resolve().name
    return SweepConflictError(
        f"sweep '{name}' is being run by another process ({paths.lock})", cure=cure
    )
