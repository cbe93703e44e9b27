"""Faults of a session: which request gets which, and answers that break on purpose.

The counts of faults are the only state of the scripted driver that is not in the requests.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rl_bench.drivers.session import Fault
from rl_bench.local_server import BrokenOffError


class FaultBook:
    """Hands faults out, each as often as it says.

    Args:
        faults: In order; of several before one step the first that is left comes first.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = tuple(faults)
        self._used: Counter[int] = Counter()

    def next(self, step: int | None) -> Fault | None:
        """The fault of a request for ``step``, now used once more; None: there is none (left)."""
        for number, fault in enumerate(self._faults):
            is_left = fault.times is None or self._used[number] < fault.times
            if fault.before_step == step and is_left:
                self._used[number] += 1
                return fault
        return None


class FramesResponse(Response):
    """Sends frames, each as a chunk of its own."""

    def __init__(self, frames: Sequence[bytes], *, media_type: str) -> None:
        super().__init__(media_type=media_type)
        # The base class counted an empty body.
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends them all."""
        await self.begin(send)
        await self.send_frames(self.frames, send)
        await send(_part(b"", more=False))

    async def begin(self, send: Send) -> None:
        """Sends the headers."""
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send_frames(self, frames: Sequence[bytes], send: Send) -> None:
        """Sends some of the frames."""
        for frame in frames:
            await send(_part(frame))


class Halves(NamedTuple):
    """The frames before a break and those after it."""

    first: Sequence[bytes]
    second: Sequence[bytes]


def halves(frames: Sequence[bytes]) -> Halves:
    """Where an answer breaks: in the middle of its frames, or of the only one."""
    if len(frames) == 1:
        middle = len(frames[0]) // 2
        return Halves([frames[0][:middle]], [frames[0][middle:]])
    middle = len(frames) // 2
    return Halves(frames[:middle], frames[middle:])


class BreakingResponse(FramesResponse):
    """Sends half of an answer; then it breaks off, stops for a while, or ends in an error.

    Args:
        frames: The whole answer, broken.
        fault: Of kind ``cut``, ``stall`` or ``error_event``.
        error: The frame that an ``error_event`` ends with.
        media_type: Of the answer.
        closing: Set when the server closes; it ends a stall.
    """

    def __init__(
        self,
        frames: Halves,
        fault: Fault,
        *,
        error: bytes,
        media_type: str,
        closing: asyncio.Event,
    ) -> None:
        super().__init__(frames.first, media_type=media_type)
        self._rest = frames.second
        self._fault = fault
        self._error = error
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends what comes before the break, and what after it."""
        await self.begin(send)
        await self.send_frames(self.frames, send)
        match self._fault.kind:
            case "cut":
                raise BrokenOffError
            case "stall":
                if not await wait(self._fault.seconds, receive, closing=self._closing):
                    raise BrokenOffError
                await self.send_frames(self._rest, send)
            case _:
                await self.send_frames([self._error], send)
        await send(_part(b"", more=False))


async def wait(seconds: float | None, receive: Receive, *, closing: asyncio.Event) -> bool:
    """Waits, for ever if ``seconds`` is None.

    Returns:
        Whether the time passed, rather than that the client left or the server closed.
    """
    tasks = {asyncio.create_task(_left(receive)), asyncio.create_task(closing.wait())}
    done, pending = await asyncio.wait(tasks, timeout=seconds, return_when="FIRST_COMPLETED")
    for task in pending:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return not done


async def _left(receive: Receive) -> bool:
    while (await receive())["type"] != "http.disconnect":
        pass
    return True


def _part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
