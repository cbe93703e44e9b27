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
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
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
from rl_bench.engine.vllm_process import VllmProcess
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
        self._without_reference: set[str] = set()
        self._turn = asyncio.Lock()
        self._num_running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._request_ids = itertools.count()

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
        return LoadReport(kind=kind, seconds=time.monotonic() - started)

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
            except ExceptionGroup as failures:
                # Not chained: all requests share one exception, whose traceback grows with each.
                raise self._explain(failures.exceptions[0]) from None

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probability of each token but the first, in nats, by the loaded checkpoint.

        Raises:
            GraderError: Nothing is loaded, or the engine died.
        """
        async with self._running():
            try:
                return await self._score(token_ids)
            # The boundary to vLLM, whose classes cannot be imported without it.
            except Exception as error:  # noqa: BLE001
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
        if sum(map(num_chars, requests)) > MAX_CHARS_IN_PLACE:  # other requests go on meanwhile
            prompts = await asyncio.to_thread(loaded.tokenizer.encode, requests)
        else:
            prompts = loaded.tokenizer.encode(requests)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._complete(loaded, request, prompt))
                for request, prompt in zip(requests, prompts, strict=True)
            ]
            for index, task in enumerate(tasks):
                task.add_done_callback(partial(_tell, on_completion, index))
        return [task.result() for task in tasks]

    async def _complete(
        self, loaded: "Prepared", request: GenerationRequest, prompt: Sequence[int]
    ) -> Completion:
        room = self._options.max_model_len - len(prompt)
        if room <= 0:
            return Completion(
                text="",
                num_prompt_tokens=len(prompt),
                num_tokens=0,
                finish_reason=FinishReason.PROMPT_TOO_LONG,
                max_prompt_tokens=self._options.max_model_len - 1,
            )
        watch = loaded.tokenizer.watch(request.sampling.stop)
        ending = loaded.tokenizer.ids_that_end(request.sampling.stop)
        params = _sampling_params(
            request.sampling,
            room=room,
            stop_ids=loaded.tokenizer.stop_ids | (ending or frozenset()),
            # A longer stop string is watched for token by token; else one message is cheaper.
            streams=ending is None,
        )
        reason = FinishReason.LENGTH
        text: str | None = None
        async with contextlib.aclosing(self._stream(prompt, params)) as outputs:
            async for output in outputs:
                answer = output.outputs[0]
                text = watch.feed(answer.token_ids)
                if text is not None or answer.finish_reason == "stop":
                    reason = FinishReason.STOP
                if text is not None:
                    break
        return Completion(
            text=loaded.tokenizer.decode(watch.token_ids) if text is None else text,
            num_prompt_tokens=len(prompt),
            num_tokens=len(watch.token_ids),
            finish_reason=reason,
        )

    async def _stream(self, prompt: Sequence[int], params: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401
        """The engine's outputs for one prompt; closing the generator early aborts the request."""
        from vllm.inputs import TokensPrompt

        if self._process is None:
            raise GraderError("the engine is not running")
        request_id = f"r{next(self._request_ids)}"
        tokens = TokensPrompt(prompt_token_ids=list(prompt))
        async with contextlib.aclosing(
            self._process.llm.generate(tokens, params, request_id)
        ) as outputs:
            async for output in outputs:
                yield output

    async def _score(self, token_ids: Sequence[int]) -> list[float]:
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        entries: list[Any] = []
        async for output in self._stream(token_ids, params):
            entries = output.prompt_logprobs or entries
        pairs = zip(token_ids[1:], entries[1:], strict=True)
        return [float(entry[token].logprob) for token, entry in pairs]

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
        # Of vLLM's own classes; whatever broke in the swap, a fresh engine is the answer.
        except Exception as error:  # noqa: BLE001
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
        problems = await self._process.llm.collective_rpc("swap_weights", args=(str(folder),))
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
            # vLLM reports a failed start with whatever its child died of.
            except Exception as error:  # noqa: BLE001
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

        self._process = await VllmProcess.start(prepared.folder, self._options)
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


def _tell(on_completion: OnCompletion, index: int, task: "asyncio.Task[Completion]") -> None:
    if not task.cancelled() and task.exception() is None:
        on_completion(index, task.result())


def _sampling_params(
    sampling: Sampling, *, room: int, stop_ids: frozenset[int], streams: bool
) -> Any:  # noqa: ANN401
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=min(sampling.max_tokens, room),
        temperature=sampling.temperature,
        top_p=sampling.top_p if sampling.temperature > 0 else 1.0,
        seed=sampling.seed,
        stop_token_ids=sorted(stop_ids),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if streams else RequestOutputKind.FINAL_ONLY,
    )
