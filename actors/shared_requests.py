"""One big static set answered by several graders: the owner's side.

The owner's engine takes parts from the front and always has more than it can run at once; helpers
take parts from the back. When none is left the owner generates again what helpers have taken and
not answered: the first answer counts and the other is cancelled. So a helper that is slow or dies
costs nothing, and never more than the owner alone would have taken.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors.exchange import Generate
from rl_bench.engine.base import Completion, GenerationRequest, OnCompletion


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a helper takes: ``share`` and ``number`` say where its answers belong."""

    share: int
    number: int
    requests: tuple[GenerationRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What an owner could give away.

    Attributes:
        num_items: Requests that nobody has begun.
        left_s: Until the set is answered at the present pace, seconds; infinite before the first
            answer.
    """

    num_items: int
    left_s: float

    @property
    def is_measured(self) -> bool:
        """Whether ``left_s`` rests on answers."""
        return math.isfinite(self.left_s)


NOTHING = Offer(num_items=0, left_s=0.0)


@dataclass(slots=True)
class _Part:
    """Requests ``begin`` to ``end``; ``num_open`` of them are in the owner's engine."""

    number: int
    begin: int
    end: int
    task: asyncio.Task[None] | None = None
    num_open: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class SharedRequests:
    """Requests of one `EvalContext.generate`, while they are answered.

    Args:
        requests: In the order of the answers.
        share: Names this set to helpers.
        generate: The owner's engine.
        on_completion: Told of each request's first answer.
        part_size: Requests that are taken at a time.
        window: Requests that the owner's engine has at least, while there are as many.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        requests: Sequence[GenerationRequest],
        *,
        share: int,
        generate: Generate,
        on_completion: OnCompletion,
        part_size: int,
        window: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = tuple(requests)
        self._share = share
        self._generate = generate
        self._on_completion = on_completion
        self._window = window
        self._clock = clock
        self._started = clock()
        self._answers: list[Completion | None] = [None] * len(requests)
        self._num_answered = 0
        self._num_running = 0
        self._parts = [
            _Part(number, begin, min(begin + part_size, len(requests)))
            for number, begin in enumerate(range(0, len(requests), part_size))
        ]
        self._free = deque(self._parts)
        self._claimed: deque[_Part] = deque()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.helpers: set[str] = set()
        """Graders beside the owner whose answers counted."""

    async def run(self) -> list[Completion]:
        """All answers, in order.

        Raises:
            GraderError: The owner's engine failed.
            SubmissionError: The checkpoint cannot be asked, through its own fault.
        """
        try:
            self._fill()
            await self._done
            return [answer for answer in self._answers if answer is not None]
        finally:
            self._free.clear()
            self._claimed.clear()
            for part in self._parts:
                self._stop(part)
                part.settled.set()

    def offer(self) -> Offer:
        """What is left to give."""
        elapsed_s = self._clock() - self._started
        left = len(self._requests) - self._num_answered
        return Offer(
            num_items=sum(part.end - part.begin for part in self._free),
            left_s=left * elapsed_s / self._num_answered if self._num_answered else math.inf,
        )

    def claim(self) -> Part | None:
        """The last part that nobody has begun, for a helper; ``None`` when there is none."""
        if not self._free:
            return None
        part = self._free.pop()
        self._claimed.append(part)
        requests = self._requests[part.begin : part.end]
        return Part(share=self._share, number=part.number, requests=requests)

    def answer(self, number: int, completions: Sequence[Completion], *, helper: str) -> None:
        """A helper's answers to a part; those that have been given already are ignored."""
        part = self._parts[number]
        if self._done.done() or part.settled.is_set():
            return
        self._stop(part)
        for index, completion in enumerate(completions, start=part.begin):
            if self._put(index, completion):
                self.helpers.add(helper)
        self._settle(part)

    async def settled(self, number: int) -> None:
        """Returns when the part is answered, by whomever, or nobody needs it any more."""
        await self._parts[number].settled.wait()

    def _fill(self) -> None:
        """Gives the owner's engine parts until it has enough: free ones, then claimed ones."""
        while self._num_running < self._window and not self._done.done():
            if self._free:
                part = self._free.popleft()
            elif self._claimed:
                part = self._claimed.popleft()
            else:
                return
            if part.settled.is_set():
                continue
            part.num_open = part.end - part.begin
            self._num_running += part.num_open
            part.task = asyncio.get_running_loop().create_task(self._own(part))

    async def _own(self, part: _Part) -> None:
        def on_completion(offset: int, completion: Completion) -> None:
            if not part.settled.is_set():
                part.num_open -= 1
                self._num_running -= 1
                self._put(part.begin + offset, completion)
                self._fill()

        try:
            completions = await self._generate(
                self._requests[part.begin : part.end], on_completion=on_completion
            )
        except Exception as error:  # noqa: BLE001  the evaluation's own: `run` raises it
            if not self._done.done():
                self._done.set_exception(error)
            return
        part.task = None
        self._num_running -= part.num_open
        part.num_open = 0
        for index, completion in enumerate(completions, start=part.begin):
            self._put(index, completion)
        self._settle(part)

    def _put(self, index: int, completion: Completion) -> bool:
        if self._answers[index] is not None:
            return False
        self._answers[index] = completion
        self._num_answered += 1
        self._on_completion(index, completion)
        return True

    def _settle(self, part: _Part) -> None:
        part.settled.set()
        if self._num_answered == len(self._requests):
            if not self._done.done():
                self._done.set_result(None)
            return
        self._fill()

    def _stop(self, part: _Part) -> None:
        """Ends the owner's own work on a part that another has answered."""
        task, part.task = part.task, None
        self._num_running -= part.num_open
        part.num_open = 0
        if task is not None:
            task.cancel()
