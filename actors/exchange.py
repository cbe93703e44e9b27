"""Many episodes' requests in few calls: both ends of the way from a rollout worker to a grader.

A call between actors costs as much as a step of a small model. `Asker`, in the worker, hands over
whatever its episodes ask in one turn of its event loop; `AnswerDesk`, in the grader, returns
whatever has been answered by then, while more is being generated. Plain classes: between them lies
one function, which `actors.remote` makes a call of Ray's.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from actors.shorthand import (
    Receiver,
    Sender,
    ShortAnswer,
    ShortRequest,
    read_answer,
    shorten_answer,
)
from rl_bench.engine.base import Completion, GenerationRequest, OnCompletion
from rl_bench.errors import GraderError, RlBenchError

Asked: TypeAlias = list[ShortRequest]
Answered: TypeAlias = list[ShortAnswer]

LINGER_S = 0.001
"""An engine's step answers several requests at once; waiting this long finds them together."""
MAX_WAITING = 16
"""More requests than these are handed over before the turn ends, so that the engine goes on."""


class Generate(Protocol):
    """Has an engine answer; see `rl_bench.engine.base.Engine.generate`."""

    async def __call__(
        self, requests: Sequence[GenerationRequest], *, on_completion: OnCompletion
    ) -> list[Completion]: ...


class AnswerDesk:
    """The grader's end, for as long as one checkpoint is evaluated."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self._trays: dict[str, _Tray] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def exchange(self, asker: str, asked: Asked) -> Answered:
        """Takes requests, and returns answers as soon as there are any to give to ``asker``.

        Returns nothing only when nothing is open any more.

        Raises:
            GraderError: The evaluation is over.
        """
        tray = self._trays.setdefault(asker, _Tray())
        if asked:
            tray.num_open += len(asked)
            requests = {short.number: tray.receiver.read(short) for short in asked}
            task = asyncio.create_task(self._answer(tray, requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while tray.num_open and not tray.answers and not self._is_closed:
            tray.changed.clear()
            await tray.changed.wait()
        if tray.num_open > len(tray.answers):
            await asyncio.sleep(LINGER_S)
        if self._is_closed:
            raise GraderError("the evaluation is over")
        return tray.take()

    def close(self) -> None:
        """Ends whatever is still generated; who waits is told."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for tray in self._trays.values():
            tray.changed.set()

    async def _answer(self, tray: "_Tray", left: dict[int, GenerationRequest]) -> None:
        numbers = list(left)

        def put(index: int, answer: Completion | RlBenchError) -> None:
            if left.pop(numbers[index], None) is not None:
                tray.put(numbers[index], answer)

        try:
            for index, completion in enumerate(
                await self._generate(list(left.values()), on_completion=put)
            ):
                put(index, completion)
        except RlBenchError as error:
            for index in range(len(numbers)):
                put(index, error)


class _Tray:
    """One asker's answers, until it takes them; ``num_open`` counts those not yet taken too."""

    def __init__(self) -> None:
        self.answers: Answered = []
        self.receiver = Receiver()
        self.num_open = 0
        self.changed = asyncio.Event()

    def put(self, number: int, answer: Completion | RlBenchError) -> None:
        self.answers.append(shorten_answer(number, answer))
        self.changed.set()

    def take(self) -> Answered:
        taken, self.answers = self.answers, []
        self.num_open -= len(taken)
        self.changed.set()  # another call of the same asker may have nothing left to wait for
        return taken


class Asker:
    """The worker's end; implements `rl_bench.rollout.Policy` for many episodes at once.

    Args:
        exchange: `AnswerDesk.exchange` for this asker, wherever the desk is.
    """

    def __init__(self, exchange: Callable[[Asked], Awaitable[Answered]]) -> None:
        self._exchange = exchange
        self._numbers = itertools.count()
        self._sender = Sender()
        self._waiting: Asked = []
        self._open: dict[int, asyncio.Future[Completion]] = {}
        self._num_calls = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def generate(
        self, requests: Sequence[GenerationRequest], *, conversation: str | None = None
    ) -> list[Completion]:
        """Completions in order.

        Args:
            requests: What to ask.
            conversation: Names an episode: of each of its prompts only what is new is sent.

        Raises:
            GraderError: The grader was lost, or the evaluation is over.
            SubmissionError: The checkpoint cannot be asked, through its own fault.
        """
        asked = [self._ask(request, conversation) for request in requests]
        if len(asked) == 1:
            return [await asked[0]]
        return list(await asyncio.gather(*asked))

    def _ask(
        self, request: GenerationRequest, conversation: str | None
    ) -> "asyncio.Future[Completion]":
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        answer = self._open[number] = loop.create_future()
        self._waiting.append(self._sender.shorten(number, request, conversation=conversation))
        if len(self._waiting) == 1:
            loop.call_soon(self._hand_over)
        elif len(self._waiting) >= MAX_WAITING:
            self._hand_over()
        return answer

    def _hand_over(self) -> None:
        asked, self._waiting = self._waiting, []
        if asked:
            self._call(asked)

    def _call(self, asked: Asked) -> None:
        self._num_calls += 1
        call = asyncio.get_running_loop().create_task(self._turn(asked))
        self._tasks.add(call)  # the loop itself keeps no task alive
        call.add_done_callback(self._tasks.discard)

    async def _turn(self, asked: Asked) -> None:
        try:
            for answer in await self._exchange(asked):
                self._settle(answer[0], read_answer(answer))
        except RlBenchError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  nobody will be answered: who waits must be told
            self._fail(GraderError(f"{type(error).__name__}: {error}"))
        self._num_calls -= 1
        if self._open and not self._num_calls:  # somebody must go on waiting
            self._call([])

    def _fail(self, error: RlBenchError) -> None:
        for number in list(self._open):
            self._settle(number, error)
        self._sender.forget()

    def _settle(self, number: int, answer: Completion | RlBenchError) -> None:
        self._sender.answered(number)
        future = self._open.pop(number, None)
        if future is None or future.done():
            return
        if isinstance(answer, RlBenchError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
