"""An inference engine kept warm: one vLLM process, weights swapped in place between checkpoints.

Promise: after `load` the engine answers as a fresh engine for that checkpoint would. It is kept by
comparing fingerprints before a swap (only equal architectures are swapped), proving weights finite
before the engine sees them, completing vLLM's reload (`rl_bench.engine.vllm_worker`), emptying the
prefix cache, and a canary after every load (`rl_bench.engine.canary`). Whatever fails on the
engine's side ends in a fresh engine, never in a submission's score.

One instance belongs to one event loop. Loads wait for running requests, requests for a load.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rl_bench.config import GraderConfig, ModelConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    Sampling,
    ignore_completion,
    num_chars,
)
from rl_bench.engine.vllm_collectors import CompletionCollector, ScoreCollector
from rl_bench.engine.vllm_process import VllmProcess
from rl_bench.engine.vllm_requests import VllmRequests
from rl_bench.engine.vllm_setup import VllmOptions
from rl_bench.errors import GraderError, SubmissionError

if TYPE_CHECKING:
    from rl_bench.engine.canary import Canary, CanaryVerdict
    from rl_bench.engine.prepared import Prepared, Preparer

logger = logging.getLogger(__name__)
T = TypeVar("T")

SWAP_TIMEOUT_S = 300.0
"""A swap with its canary, or a fresh engine's canary, that takes longer hangs."""

ALIVE_CHECK_S = 1.0

MAX_CHARS_IN_PLACE = 2000
"""Longer prompts are encoded in a thread, which costs as much as encoding this."""

ENCODED_AT_A_TIME = 32
"""Prompts whose token ids are made before the engine gets the first of them."""

NUM_STARTS = 2
"""Attempts at a cold start: the first can lose a port or memory to a neighbour."""


class VllmEngine:
    """`rl_bench.engine.base.Engine` over vLLM's asynchronous engine, on GPU and CPU alike.

    Args:
        options: What the engine is started with.
    """

    def __init__(self, options: VllmOptions) -> None:
        self._options = options
        self._process: VllmProcess | None = None
        self._preparer: Preparer | None = None
        self._canary: Canary | None = None
        self._fingerprint = ""
        self._loaded: Prepared | None = None
        self._engine_s = 0.0
        self._without_reference: set[str] = set()
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
        content = self._loaded.content_hash[:12] if self._loaded else "nothing"
        return f"VllmEngine({content} loaded, pids {self.pids})"

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running engine's processes."""
        return tuple(child.pid for child in self._process.processes) if self._process else ()

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
            if self._loaded and self._loaded.content_hash == content_hash and self._is_alive():
                return LoadReport(kind=LoadKind.RESIDENT, seconds=time.monotonic() - started)
            prepared = await asyncio.to_thread(self._prepare, snapshot, content_hash)
            self._loaded = None
            kind = LoadKind.WARM
            if not await self._swap(prepared):
                kind = LoadKind.COLD
                await self._start(prepared)
            self._loaded = prepared
        seconds = time.monotonic() - started
        return LoadReport(kind=kind, seconds=seconds, engine_s=self._engine_s)

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
                return await self._while_alive(self._complete_all(loaded, requests, on_completion))
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
                return await self._score(token_ids)
            except Exception as error:  # noqa: BLE001  the boundary to vLLM, whose classes are optional
                raise self._explain(error) from None

    async def close(self) -> None:
        """Ends the engine's processes; they are gone when this returns."""
        async with self._turn:
            await self._stop()

    # --- answering

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator["Prepared"]:
        async with self._turn:
            if self._loaded is None:
                raise GraderError("no checkpoint is loaded", cure="load one before generating")
            loaded = self._loaded
            self._num_running += 1
            self._idle.clear()
        try:
            yield loaded
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    async def _while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, unless the engine dies first: vLLM may leave its callers waiting.

        Raises:
            GraderError: It died.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=ALIVE_CHECK_S))[0]:
                if not self._is_alive():
                    raise GraderError("the engine died")
            return task.result()
        finally:
            task.cancel()

    async def _complete_all(
        self, loaded: "Prepared", requests: Sequence[GenerationRequest], on_completion: OnCompletion
    ) -> list[Completion]:
        running = self._requests()
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

    async def _score(self, token_ids: Sequence[int]) -> list[float]:
        from vllm import SamplingParams

        running = self._requests()
        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        answer = await running.ask(token_ids, running.checked(params), ScoreCollector())
        try:
            return await answer
        finally:
            await running.drop([answer])

    def _requests(self) -> VllmRequests:
        if self._process is None:
            raise GraderError("the engine is not running")
        return self._process.requests

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, SubmissionError | GraderError):
            return error
        state = "died" if not self._is_alive() else "refused a request"
        return GraderError(f"the engine {state}: {type(error).__name__}: {str(error)[:300]}")

    # --- loading

    def _prepare(self, snapshot: Path, content_hash: str) -> "Prepared":
        # Lazy: an engine object is cheap to make, and torch is imported off the event loop.
        import torch

        from rl_bench.engine.prepared import Preparer

        if self._preparer is None:
            self._preparer = Preparer(
                dtype=getattr(torch, self._options.dtype),
                max_model_len=self._options.max_model_len,
            )
        return self._preparer.prepare(snapshot, content_hash=content_hash)

    async def _swap(self, prepared: "Prepared") -> bool:
        """Swaps the weights in place; ``False`` when a fresh engine is needed."""
        if not self._is_alive() or prepared.fingerprint != self._fingerprint:
            return False
        try:
            async with asyncio.timeout(SWAP_TIMEOUT_S):
                problem = await self._while_alive(self._try_swap(prepared))
        except Exception as error:  # noqa: BLE001  whatever broke in the swap, a fresh engine is the answer
            problem = f"{type(error).__name__}: {error}"
        if problem:
            logger.warning("warm swap to %s failed: it %s", prepared.content_hash[:12], problem)
        return not problem

    async def _try_swap(self, prepared: "Prepared") -> str:
        problem = await self._swap_weights(prepared.folder)
        if problem:
            return problem
        assert self._process is not None
        if not await self._process.llm.reset_prefix_cache():
            return "could not empty the prefix cache"
        return (await self._check(prepared)).problem

    async def _swap_weights(self, folder: Path) -> str:
        """Has every worker load ``folder``; returns what went wrong in any of them."""
        assert self._process is not None
        began = time.monotonic()
        problems = await self._process.llm.collective_rpc("swap_weights", args=(str(folder),))
        self._engine_s = time.monotonic() - began
        return "; ".join(problem for problem in problems if problem)

    async def _start(self, prepared: "Prepared") -> None:
        failure: Exception | None = None
        for _ in range(NUM_STARTS):
            await self._stop()
            try:
                await self._start_once(prepared)
            except SubmissionError:
                await self._stop()
                raise
            except Exception as error:  # noqa: BLE001  vLLM raises whatever its child died of
                logger.warning("engine start failed: %s", error)
                failure = error
                continue
            return
        await self._stop()
        raise GraderError(
            f"the engine did not start in {NUM_STARTS} attempts: {str(failure)[:500]}",
            cure=f"see {self._options.log_folder or 'standard error'}",
        ) from failure

    async def _start_once(self, prepared: "Prepared") -> None:
        import torch

        from rl_bench.engine.canary import Canary

        began = time.monotonic()
        self._process = await VllmProcess.start(prepared.folder, self._options)
        self._engine_s = time.monotonic() - began
        self._fingerprint = prepared.fingerprint
        self._canary = Canary(getattr(torch, self._options.dtype))
        async with asyncio.timeout(SWAP_TIMEOUT_S):
            await self._while_alive(self._check_fresh(prepared))

    async def _check_fresh(self, prepared: "Prepared") -> None:
        """A fresh engine defines what is right, so here a wrong reference is the one to go."""
        from rl_bench.engine.prepared import computes_nan

        verdict = await self._check(prepared)
        if not verdict.finite:
            raise computes_nan()
        if verdict.problem:
            logger.warning("no independent canary for this architecture: it %s", verdict.problem)
            self._without_reference.add(prepared.fingerprint)
            verdict = await self._check(prepared)
        if verdict.problem:
            raise RuntimeError(f"a fresh engine fails its canary: it {verdict.problem}")

    async def _check(self, prepared: "Prepared") -> "CanaryVerdict":
        assert self._preparer is not None
        assert self._canary is not None
        answers: list[float] = []
        for prompt in self._preparer.prompts(prepared.header):
            answers += await self._score(prompt)
        trusted = prepared.fingerprint not in self._without_reference
        return self._canary.judge(
            answers,
            content_hash=prepared.content_hash,
            weights=prepared.evidence.weights,
            reference=prepared.evidence.reference if trusted else None,
        )

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive

    async def _stop(self) -> None:
        process, self._process, self._loaded = self._process, None, None
        if process is not None:
            await process.stop()


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
