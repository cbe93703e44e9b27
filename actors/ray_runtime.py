"""Starts Ray on this machine, or joins a cluster.

Ray reads its environment once, when it is imported, so nothing here imports it at module level, and
`ray_runtime` is entered (or `set_environment` called) before anything does. A Ray that is started
here listens on loopback only and asks for a token that this process alone hands to its workers.

Ray gives its own processes 30 s to come up, which a busy machine may not grant. So starts on one
machine take turns, and one that was only too slow is made again.
"""

import logging
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil
from filelock import FileLock, Timeout

from rl_bench.config import ClusterConfig
from rl_bench.errors import GraderError
from rl_bench.waiting import told_while

NUM_STARTS = 4
"""How often Ray is started on this machine before that is given up."""
TOO_SLOW_S = 15.0
"""A start that fails later than this lacked time; one that fails sooner would fail again."""
TURN_LIMIT_S = 900.0
"""So long a start waits for others on this machine."""


def set_environment(config: ClusterConfig) -> None:
    """What Ray is to find in the environment when it is imported; too late after that."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # An actor with num_gpus=0 on a machine with GPUs must not lose sight of them by default rules
    # that differ between Ray's versions; the factory says what each actor sees.
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    if config.address is None:
        # Without it Ray replaces a loopback address by one that other machines can reach.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _silent(_line: str) -> None:
    """Nobody is told."""


@contextmanager
def ray_runtime(config: ClusterConfig, *, say: Callable[[str], None] = _silent) -> Iterator[None]:
    """Ray is up inside the context; what was started here is shut down after it.

    Args:
        config: Where it is started or joined.
        say: Told of that, and for how long it lasts so far; from a thread too.
    """
    if "ray" not in sys.modules:
        set_environment(config)
    what = "starting Ray" if config.address is None else f"joining Ray at {config.address}"
    say(what)
    with told_while(what, say):
        import ray

        _connect_or_fail(config, say=say)
    # Ray answers SIGTERM with a dump of its stack; a sweep that is asked to end is interrupted.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)


def _connect_or_fail(config: ClusterConfig, *, say: Callable[[str], None]) -> None:
    import ray

    try:
        _connect(config, say=say)
    except SystemExit:
        # Ray's own answer to SIGTERM, which it takes over while it starts.
        ray.shutdown()
        raise KeyboardInterrupt from None
    # Ray raises whatever its processes or the network tripped over.
    except Exception as error:
        ray.shutdown()
        where = (
            f"join the cluster at {config.address}" if config.address else "start on this machine"
        )
        raise GraderError(
            f"Ray could not {where}: {type(error).__name__}: {str(error).strip()[:500]}",
            cure="Look for processes or limits that are in its way (free memory, /dev/shm, /tmp), "
            "and start again",
        ) from error


def _connect(config: ClusterConfig, *, say: Callable[[str], None] = _silent) -> None:
    import ray

    if config.address is None:
        with _turn(say):
            _start(config)
    else:
        ray.init(address=config.address, log_to_driver=False, logging_level=logging.ERROR)


def _start(config: ClusterConfig) -> None:
    """Starts Ray here; again if it was too slow, and without what the slow start left."""
    import ray

    others = set(psutil.Process().children(recursive=True))
    for tries_left in reversed(range(NUM_STARTS)):
        started = time.monotonic()
        try:
            ray.init(
                num_cpus=config.num_cpus,
                num_gpus=config.num_gpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
                _system_config={"enable_metrics_collection": False},
            )
        # Ray raises a bare Exception for it.
        except Exception:
            if not tries_left or time.monotonic() - started < TOO_SLOW_S:
                raise
            ray.shutdown()
            for process in set(psutil.Process().children(recursive=True)) - others:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        else:
            return


@contextmanager
def _turn(say: Callable[[str], None]) -> Iterator[None]:
    """One start at a time on this machine, of this user; after `TURN_LIMIT_S` all the same."""
    turn = FileLock(Path(tempfile.gettempdir()) / f"rl_bench-ray-start-{os.getuid()}.lock")
    with suppress(OSError):
        try:
            turn.acquire(timeout=0)
        except Timeout:
            say("another process starts Ray on this machine: it comes first")
            with suppress(Timeout):
                turn.acquire(timeout=TURN_LIMIT_S)
    try:
        yield
    finally:
        turn.release()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
