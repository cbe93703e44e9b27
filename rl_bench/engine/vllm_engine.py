"""An inference engine kept warm: requests to one vLLM process, and loads between them.

`rl_bench.engine.vllm_loader` promises that the process answers for the checkpoint that was loaded
last; here is how it is asked, and that no request runs while weights change.

One instance belongs to one event loop. Loads wait for running requests, requests for a load.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rl_bench.config import GraderConfig, ModelConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadReport,
    OnCompletion,
    Sampling,
    ignore_completion,
    num_chars,
)
from rl_bench.engine.vllm_collectors import CompletionCollector, ask_for_scores
from rl_bench.engine.vllm_loader import VllmLoader
from rl_bench.engine.vllm_process import VllmProcess
from rl_bench.engine.vllm_requests import VllmRequests
from rl_bench.engine.vllm_setup import VllmOptions
from rl_bench.errors import GraderError, SubmissionError

if TYPE_CHECKING:
    from rl_bench.engine.prepared import Prepared

MAX_CHARS_IN_PLACE = 2000
"""Longer prompts are encoded in a thread, which costs as much as encoding this."""

ENCODED_AT_A_TIME = 32
"""Prompts whose token ids are made before the engine gets the first of them."""


class VllmEngine:
    """`rl_bench.engine.base.Engine` over vLLM's asynchronous engine, on GPU and CPU alike.

    Args:
        options: What the engine is started with.
        loader: Loads into it; one of these options when left out.
    """

    def __init__(self, options: VllmOptions, *, loader: VllmLoader | None = None) -> None:
        self._options = options
        self._loader = loader or VllmLoader(options)
        self._turn = asyncio.Lock()
        self._num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    def from_config(
        cls, grader: GraderConfig, model: ModelConfig, *, log_folder: Path | None = None
    ) -> Self:
        """The engine that a pool of ``grader`` runs for ``model``."""
        return cls(VllmOptions.of(grader, model, log_folder=log_folder))

    def __repr__(self) -> str:
        loaded = self._loader.loaded
        content = loaded.content_hash[:12] if loaded else "nothing"
        return f"VllmEngine({content} loaded, pids {self.pids})"

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running engine's processes."""
        process = self._loader.process
        return tuple(child.pid for child in process.processes) if process else ()

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        """Makes ``snapshot`` the checkpoint that answers; see `Engine.load`.

        Raises:
            SubmissionError: The checkpoint is at fault; the previous one stays loaded unless the
                fault showed only in a fresh engine.
            GraderError: No engine could be started.
        """
        started = time.monotonic()
        async with self._turn:
            await self._idle.wait()
            report = await self._loader.load(snapshot, content_hash=content_hash)
        return replace(report, seconds=time.monotonic() - started)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        """Answers ``requests`` concurrently; see `Engine.generate`.

        Raises:
            GraderError: Nothing is loaded, or the engine died.
            SubmissionError: The checkpoint's chat template refused a request.
        """
        async with self._running() as loaded:
            try:
                return await self._process().while_alive(
                    self._complete_all(loaded, requests, on_completion)
                )
            except Exception as error:  # noqa: BLE001  the boundary to vLLM, whose classes are optional
                # Not chained: all requests share one exception, whose traceback grows with each.
                raise self._explain(error) from None

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probability of each token but the first, in nats, by the loaded checkpoint.

        Raises:
            GraderError: Nothing is loaded, or the engine died.
        """
        async with self._running():
            try:
                return await ask_for_scores(self._process().requests, token_ids)
            except Exception as error:  # noqa: BLE001  the boundary to vLLM, whose classes are optional
                raise self._explain(error) from None

    async def close(self) -> None:
        """Ends the engine's processes; they are gone when this returns."""
        async with self._turn:
            await self._loader.stop()

    # --- answering

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator["Prepared"]:
        async with self._turn:
            loaded = self._loader.loaded
            if loaded is None:
                raise GraderError("no checkpoint is loaded", cure="load one before generating")
            self._num_running += 1
            self._idle.clear()
        try:
            yield loaded
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    async def _complete_all(
        self, loaded: "Prepared", requests: Sequence[GenerationRequest], on_completion: OnCompletion
    ) -> list[Completion]:
        running = self._process().requests
        answers: list[asyncio.Future[Completion]] = []
        try:
            # In parts, so that the engine works on the first while the next is encoded.
            for begin in range(0, len(requests), ENCODED_AT_A_TIME):
                part = requests[begin : begin + ENCODED_AT_A_TIME]
                for request, prompt in zip(part, await self._encode(loaded, part), strict=True):
                    answer = await self._ask(running, loaded, request, prompt)
                    answer.add_done_callback(partial(_tell, on_completion, len(answers)))
                    answers.append(answer)
            return list(await asyncio.gather(*answers))
        finally:
            await running.drop(answer for answer in answers if not answer.done())

    async def _encode(
        self, loaded: "Prepared", requests: Sequence[GenerationRequest]
    ) -> list[list[int]]:
        if sum(map(num_chars, requests)) > MAX_CHARS_IN_PLACE:  # other requests go on meanwhile
            return await asyncio.to_thread(loaded.tokenizer.encode, requests)
        return loaded.tokenizer.encode(requests)

    async def _ask(
        self,
        running: VllmRequests,
        loaded: "Prepared",
        request: GenerationRequest,
        prompt: Sequence[int],
    ) -> "asyncio.Future[Completion]":
        room = self._options.max_model_len - len(prompt)
        if room <= 0:
            refused: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
            refused.set_result(_too_long(prompt, max_model_len=self._options.max_model_len))
            return refused
        sampling = request.sampling
        if sampling.max_tokens > room:
            sampling = replace(sampling, max_tokens=room)
        if sampling not in loaded.params:
            ending = loaded.tokenizer.ids_that_end(sampling.stop) or frozenset()
            params = _sampling_params(sampling, stop_ids=loaded.tokenizer.stop_ids | ending)
            loaded.params[sampling] = running.checked(params)
        collector = CompletionCollector(
            loaded.tokenizer, sampling.stop, num_prompt_tokens=len(prompt)
        )
        return await running.ask(prompt, loaded.params[sampling], collector)

    def _process(self) -> VllmProcess:
        if self._loader.process is None:
            raise GraderError("the engine is not running")
        return self._loader.process

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, SubmissionError | GraderError):
            return error
        state = "died" if not self._loader.is_alive else "refused a request"
        return GraderError(f"the engine {state}: {type(error).__name__}: {str(error)[:300]}")


def _tell(on_completion: OnCompletion, index: int, answer: "asyncio.Future[Completion]") -> None:
    if not answer.cancelled() and answer.exception() is None:
        on_completion(index, answer.result())


def _too_long(prompt: Sequence[int], *, max_model_len: int) -> Completion:
    return Completion(
        text="",
        num_prompt_tokens=len(prompt),
        num_tokens=0,
        finish_reason=FinishReason.PROMPT_TOO_LONG,
        max_prompt_tokens=max_model_len - 1,
    )


def _sampling_params(sampling: Sampling, *, stop_ids: frozenset[int]) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p if sampling.temperature > 0 else 1.0,
        seed=sampling.seed,
        stop_token_ids=sorted(stop_ids),
        detokenize=False,
    )
