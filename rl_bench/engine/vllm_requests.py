"""Requests under way in a running engine: vLLM's core is asked, without vLLM's front end.

For each request that front end makes a generator, a queue, copies of the parameters and an object
for what comes back, and looks after texts that are not used here. With a small model this costs
more than the answer. Here a request is one message to the core, and what comes back goes to its
collector. Whoever asks says how to collect, so that nothing is known here of texts or scores.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from rl_bench.errors import GraderError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Collector(Protocol[T_co]):
    """Makes one request's result of what the engine's steps say about it."""

    def take(self, output: Any) -> T_co | None:
        """Takes an ``EngineCoreOutput``; returns the result as soon as there is one."""
        ...


class VllmRequests:
    """The requests of one engine; belongs to the event loop that it is made in.

    Args:
        llm: vLLM's ``AsyncLLM``, asked for nothing else than generation through this object.
    """

    def __init__(self, llm: Any) -> None:
        self._core = llm.engine_core
        self._processor = llm.input_processor
        self._open: dict[str, tuple[Collector[Any], asyncio.Future[Any]]] = {}
        self._ids = itertools.count()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_running(self) -> bool:
        """Whether answers still arrive."""
        return not self._reader.done()

    def checked(self, params: Any) -> Any:
        """``SamplingParams`` as the core wants them; to be used for any number of requests.

        Raises:
            ValueError: vLLM refuses them.
        """
        from vllm.inputs import tokens_input

        request = self._processor.process_inputs(
            "", tokens_input([0]), params, supported_tasks=("generate",)
        )
        return request.sampling_params

    async def ask(
        self,
        prompt: Sequence[int],
        params: Any,
        collector: Collector[T],
    ) -> "asyncio.Future[T]":
        """Sends a request with `checked` parameters; returns when it is sent, not answered.

        The future raises ``GraderError`` when the engine gives the request up or is stopped, and
        whatever the collector or vLLM raises.
        """
        from vllm.v1.engine import EngineCoreRequest

        if self._reader.done():
            raise GraderError("the engine is not running")
        request_id = f"r{next(self._ids)}"
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._open[request_id] = collector, future
        future.add_done_callback(lambda _future: self._open.pop(request_id, None))
        try:
            await self._core.add_request_async(
                EngineCoreRequest(
                    request_id=request_id,
                    prompt_token_ids=list(prompt),
                    mm_features=None,
                    sampling_params=params,
                    pooling_params=None,
                    arrival_time=time.time(),
                    lora_request=None,
                    cache_salt=None,
                    data_parallel_rank=None,
                )
            )
        except BaseException:
            future.cancel()
            raise
        return future

    async def drop(self, futures: "Iterable[asyncio.Future[Any]]") -> None:
        """Has the engine forget those that are not answered yet."""
        unwanted = set(futures)
        if not unwanted:
            return
        ids = [name for name, (_, future) in self._open.items() if future in unwanted]
        for name in ids:
            self._open.pop(name)[1].cancel()
        if ids and self.is_running:
            with suppress(Exception):  # a dead engine has forgotten them
                await self._core.abort_requests_async(ids)

    def close(self, error: Exception) -> None:
        """Ends reading; whoever waits gets ``error``."""
        self._reader.cancel()
        self._fail(error)

    async def _read(self) -> None:
        try:
            while True:
                outputs = (await self._core.get_output_async()).outputs
                settled = [output.request_id for output in outputs if self._is_settled(output)]
                if settled:
                    await self._core.abort_requests_async(settled)
        except Exception as error:  # noqa: BLE001  what ends the reading ends every request
            self._fail(error)

    def _is_settled(self, output: Any) -> bool:
        """Hands an output on; tells whether the engine need not go on with its request."""
        entry = self._open.get(output.request_id)
        if entry is None:
            return False
        collector, future = entry
        try:
            result = collector.take(output)
            if result is None and output.finished:
                raise GraderError(f"the engine gave a request up: {output.finish_reason}")
        except Exception as error:  # noqa: BLE001  a fault of the agent's tokenizer is this request's alone
            _settle(future, error=error)
        else:
            if result is None:
                return False
            _settle(future, result=result)
        self._open.pop(output.request_id, None)
        return not output.finished

    def _fail(self, error: Exception) -> None:
        for _, future in list(self._open.values()):
            _settle(future, error=error)
        self._open.clear()


def _settle(
    future: "asyncio.Future[T]", *, result: T | None = None, error: Exception | None = None
) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
        future.exception()  # who has stopped waiting is no error of its own
    else:
        assert result is not None
        future.set_result(result)
