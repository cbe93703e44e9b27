"""An event loop whose clock jumps: hours of waiting pass as fast as the code between them runs."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Warp(selectors.DefaultSelector):
    """Waits for nothing; what would have been waited for has passed."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("all wait for something that will never happen")
        self.now_s += max(timeout, 0.0)
        return []  # Nothing but the clock wakes this loop.


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`asyncio.sleep`, `call_later` and `time` in simulated seconds; no threads, no sockets."""

    def __init__(self) -> None:
        self._warp = _Warp()
        super().__init__(self._warp)

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._warp.now_s


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, in simulated time from 0.

    Raises:
        RuntimeError: Everything waits and no clock would end it.
    """
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)


def simulated_s() -> float:
    """The running loop's clock, for what is constructed with one."""
    return asyncio.get_running_loop().time()
