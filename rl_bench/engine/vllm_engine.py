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
import hashlib
import itertools
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import filelock
import psutil

from rl_bench.checkpoint import CheckpointHeader, inspect, weight_files
from rl_bench.config import GraderConfig, ModelConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    LoadReport,
    Sampling,
)
from rl_bench.engine.vllm_setup import (
    VllmOptions,
    engine_arguments,
    prepare_environment,
    start_lock_path,
)
from rl_bench.errors import GraderError, SubmissionError

logger = logging.getLogger(__name__)

NUM_STARTS = 2
"""Attempts at a cold start: the first can lose a port or memory to a neighbour."""

STOP_TIMEOUT_S = 5.0

_VOLATILE = frozenset(
    {
        "_name_or_path",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "use_cache",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "initializer_range",
        "attention_dropout",
    }
)
"""Config entries that change nothing in what an engine computes from token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A checkpoint that was read and found sound."""

    folder: Path
    content_hash: str
    header: CheckpointHeader
    fingerprint: str
    tokenizer: Any
    weights: Any


class VllmEngine:
    """`rl_bench.engine.base.Engine` over vLLM's asynchronous engine, on GPU and CPU alike.

    Args:
        options: What the engine is started with.
    """

    def __init__(self, options: VllmOptions) -> None:
        self._options = options
        self._llm: Any = None
        self._processes: list[psutil.Process] = []
        self._fingerprint = ""
        self._canary: Any = None
        self._loaded: _Prepared | None = None
        self._sound: dict[str, Any] = {}
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
        return cls(
            VllmOptions(
                dtype=model.dtype,
                max_model_len=model.max_model_len,
                max_num_seqs=grader.max_num_seqs,
                kv_cache_gib=grader.kv_cache_gib,
                gpu_memory_utilization=grader.gpu_memory_utilization,
                tensor_parallel_size=max(1, grader.gpus_per_grader),
                enforce_eager=grader.enforce_eager,
                log_folder=log_folder,
            )
        )

    def __repr__(self) -> str:
        content = self._loaded.content_hash[:12] if self._loaded else "nothing"
        return f"VllmEngine({content} loaded, pids {self.pids})"

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running engine's processes."""
        return tuple(process.pid for process in self._processes)

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        """Makes ``snapshot`` the checkpoint that answers; see `Engine.load`.

        Raises:
            SubmissionError: The checkpoint is at fault; the previous one stays loaded unless its
                weights had reached the engine.
            GraderError: No engine could be started, or it failed twice.
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

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Answers ``requests`` concurrently; see `Engine.generate`.

        Raises:
            GraderError: Nothing is loaded, or the engine died.
            SubmissionError: The checkpoint's chat template refused a request.
        """
        async with self._running() as loaded:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._complete(loaded, request)) for request in requests
                    ]
            except ExceptionGroup as failures:
                raise self._explain(failures.exceptions[0]) from failures
        return [task.result() for task in tasks]

    async def close(self) -> None:
        """Ends the engine's processes; they are gone when this returns."""
        async with self._turn:
            await self._stop()

    # --- answering

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[_Prepared]:
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

    async def _complete(self, loaded: _Prepared, request: GenerationRequest) -> Completion:
        prompt = loaded.tokenizer.encode(request)
        room = self._options.max_model_len - len(prompt)
        if room <= 0:
            return Completion(
                text="",
                num_prompt_tokens=len(prompt),
                num_tokens=0,
                finish_reason=FinishReason.PROMPT_TOO_LONG,
            )
        watch = loaded.tokenizer.watch(request.sampling.stop)
        params = self._params(request.sampling, room=room, stop_ids=loaded.tokenizer.stop_ids)
        reason = FinishReason.LENGTH
        text: str | None = None
        stream = self._stream(prompt, params)
        async with contextlib.aclosing(stream):  # closing early aborts the request
            async for output in stream:
                text = watch.feed(output.token_ids)
                if text is not None or output.finish_reason == "stop":
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
        """The engine's outputs for one prompt: all at once, or token by token with DELTA."""
        request_id = f"r{next(self._request_ids)}"
        outputs = self._llm.generate(_tokens(prompt), params, request_id)
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                yield output.outputs[0]

    def _params(self, sampling: Sampling, *, room: int, stop_ids: frozenset[int]) -> Any:  # noqa: ANN401
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # A stop string is watched for token by token; without one a single message is cheaper.
        kind = RequestOutputKind.DELTA if sampling.stop else RequestOutputKind.FINAL_ONLY
        return SamplingParams(
            max_tokens=min(sampling.max_tokens, room),
            temperature=sampling.temperature,
            top_p=sampling.top_p if sampling.temperature > 0 else 1.0,
            seed=sampling.seed,
            stop_token_ids=sorted(stop_ids),
            detokenize=False,
            output_kind=kind,
        )

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, SubmissionError | GraderError):
            return error
        state = "died" if not self._is_alive() else "refused a request"
        return GraderError(f"the engine {state}: {type(error).__name__}: {str(error)[:300]}")

    # --- loading

    def _prepare(self, snapshot: Path, content_hash: str) -> _Prepared:
        import torch

        from rl_bench.engine.prompts import CheckpointTokenizer
        from rl_bench.engine.weights import scan_weights

        header = inspect(snapshot)
        tokenizer = CheckpointTokenizer(snapshot)
        if content_hash not in self._sound:
            self._sound[content_hash] = scan_weights(
                header, weight_files(snapshot), dtype=getattr(torch, self._options.dtype)
            )
        return _Prepared(
            folder=snapshot,
            content_hash=content_hash,
            header=header,
            fingerprint=fingerprint(header),
            tokenizer=tokenizer,
            weights=self._sound[content_hash],
        )

    async def _swap(self, prepared: _Prepared) -> bool:
        """Swaps the weights in place; ``False`` when a fresh engine is needed."""
        if not self._is_alive() or prepared.fingerprint != self._fingerprint:
            return False
        problem = await self._try_swap(prepared)
        if problem:
            logger.warning("warm swap to %s failed: %s", prepared.content_hash[:12], problem)
        return not problem

    async def _try_swap(self, prepared: _Prepared) -> str:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            problems = await self._llm.collective_rpc("swap_weights", args=(str(prepared.folder),))
            if any(problems):
                return "; ".join(problem for problem in problems if problem)
            if not await self._llm.reset_prefix_cache():
                return "the prefix cache could not be emptied"
            return str((await self._check(prepared)).problem)
        except EngineDeadError as error:
            return f"the engine died: {error}"

    async def _start(self, prepared: _Prepared) -> None:
        failure: Exception | None = None
        for _ in range(NUM_STARTS):
            await self._stop()
            try:
                await self._start_once(prepared)
            # vLLM reports a failed start with whatever its child died of.
            except (RuntimeError, ValueError, OSError, AssertionError, TimeoutError) as error:
                logger.warning("engine start failed: %s", error)
                failure = error
                continue
            return
        await self._stop()
        raise GraderError(
            f"the engine did not start in {NUM_STARTS} attempts: {str(failure)[:500]}",
            cure=f"see {self._options.log_folder or 'standard error'}",
        ) from failure

    async def _start_once(self, prepared: _Prepared) -> None:
        # The thread cannot be interrupted, so a cancelled load must not lose the engine it makes.
        starting = asyncio.ensure_future(asyncio.to_thread(self._launch, prepared.folder))
        try:
            self._llm = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_discard)
            raise
        self._processes = _processes_of(self._llm)
        me = psutil.Process()
        await self._llm.collective_rpc("follow_parent", args=(me.pid, me.create_time()))
        self._fingerprint = prepared.fingerprint
        self._canary = self._new_canary(prepared)
        await self._check_fresh(prepared)

    def _launch(self, folder: Path) -> Any:  # noqa: ANN401  vLLM is optional
        prepare_environment(self._options)
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = engine_arguments(folder, self._options)
        try:
            with filelock.FileLock(start_lock_path(), timeout=self._options.start_timeout_s):
                return AsyncLLM.from_engine_args(arguments)
        except filelock.Timeout as error:
            raise TimeoutError(f"waited too long for {start_lock_path()}") from error

    # --- the canary

    def _new_canary(self, prepared: _Prepared) -> Any:  # noqa: ANN401  imported lazily, with torch
        import torch

        from rl_bench.engine.canary import MAX_REFERENCE_PARAMETERS, Canary

        canary = Canary(
            vocab_size=prepared.header.vocab_size,
            max_model_len=self._options.max_model_len,
            dtype=getattr(torch, self._options.dtype),
        )
        canary.uses_reference = prepared.header.num_parameters <= MAX_REFERENCE_PARAMETERS
        return canary

    async def _check_fresh(self, prepared: _Prepared) -> None:
        """A fresh engine defines what is right, so here a wrong reference is the one to go."""
        verdict = await self._check(prepared)
        if not verdict.finite:
            await self._stop()
            raise SubmissionError(
                "the model computes NaN or infinite values, though its weights are finite",
                cure="the weights are too large for the dtype: train with a lower rate",
                reason="non_finite",
            )
        if verdict.problem:
            logger.warning("no independent canary for this architecture: it %s", verdict.problem)
            self._canary.uses_reference = False
            verdict = await self._check(prepared)
        if verdict.problem:
            raise RuntimeError(f"a fresh engine fails its canary: it {verdict.problem}")

    async def _check(self, prepared: _Prepared) -> Any:  # noqa: ANN401  a CanaryVerdict
        from rl_bench.engine.canary import reference_answers

        canary = self._canary
        reference = None
        if canary.uses_reference:
            reference = await asyncio.to_thread(
                reference_answers, prepared.folder, canary.prompts, dtype=canary.dtype
            )
        scored = await asyncio.gather(*(self._score(prompt) for prompt in canary.prompts))
        return canary.judge(
            [value for scores in scored for value in scores],
            content_hash=prepared.content_hash,
            weights=prepared.weights,
            reference=reference,
        )

    async def _score(self, prompt: Sequence[int]) -> list[float]:
        """Log-probability of each token of ``prompt`` but the first."""
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        entries: list[Any] = []
        request_id = f"canary{next(self._request_ids)}"
        async for output in self._llm.generate(_tokens(prompt), params, request_id):
            entries = output.prompt_logprobs or entries
        return [
            float(entry[token].logprob)
            for token, entry in zip(prompt[1:], entries[1:], strict=True)
        ]

    # --- processes

    def _is_alive(self) -> bool:
        return (
            self._llm is not None
            and not self._llm.errored
            and all(_is_running(process) for process in self._processes)
        )

    async def _stop(self) -> None:
        llm, processes = self._llm, self._processes
        self._llm, self._processes, self._loaded = None, [], None
        if llm is not None:
            await asyncio.to_thread(_shut_down, llm)
        await asyncio.to_thread(_kill, processes)


def fingerprint(header: CheckpointHeader) -> str:
    """Equal for checkpoints between which an engine's weights can be swapped in place.

    Covers the normalised config and every weight's name and shape. Not the stored dtype, since an
    engine casts all weights to its own, nor the tokenizer, which no engine holds.

    Raises:
        SubmissionError: ``config``: transformers cannot read the config.
    """
    # Lazy: transformers takes a second to import.
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            header.folder, local_files_only=True, trust_remote_code=False
        ).to_dict()
    # Broad: the file is the agent's, and the loader raises whatever it trips over.
    except Exception as error:
        raise SubmissionError(
            f"config.json cannot be loaded: {type(error).__name__}: {str(error)[:300]}",
            cure="copy the base model's config.json",
            reason="config",
            file="config.json",
        ) from error
    kept = {key: value for key, value in config.items() if key not in _VOLATILE}
    shapes = sorted((name, spec.shape) for name, spec in header.weights().items())
    text = json.dumps([kept, shapes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _tokens(prompt: Sequence[int]) -> Any:  # noqa: ANN401  vLLM's prompt type
    from vllm.inputs import TokensPrompt

    return TokensPrompt(prompt_token_ids=list(prompt))


def _processes_of(llm: Any) -> list[psutil.Process]:  # noqa: ANN401
    """The engine's child processes and theirs, remembered by pid and start time."""
    found: list[psutil.Process] = []
    for child in llm.engine_core.resources.engine_manager.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            found += [process, *process.children(recursive=True)]
    return found


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _shut_down(llm: Any) -> None:  # noqa: ANN401
    try:
        llm.shutdown(timeout=STOP_TIMEOUT_S)
    except Exception:
        # Teardown of an engine in any state: its processes are killed next, whatever it says.
        logger.warning("the engine's shutdown failed", exc_info=True)


def _kill(processes: Sequence[psutil.Process]) -> None:
    """Kills what is left; psutil checks that a pid still means the same process."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=STOP_TIMEOUT_S)
    if any(_is_running(process) for process in alive):
        logger.error("engine processes survive SIGKILL: %s", [process.pid for process in alive])


def _discard(starting: "asyncio.Future[Any]") -> None:
    """Ends an engine whose load was cancelled while it started."""
    if starting.cancelled() or starting.exception() is not None:
        return
    llm = starting.result()
    processes = _processes_of(llm)
    _shut_down(llm)
    _kill(processes)
