"""Gets checkpoints into a vLLM process: staged and swapped where it can be, else by a fresh start.

Promise: after `VllmLoader.load` the process answers as a fresh one for that checkpoint would. It is
kept by comparing fingerprints before a swap (only equal architectures are swapped), proving weights
finite before the engine computes with them, completing vLLM's reload (`vllm_standby`),
emptying the prefix cache, and a canary after every load (`rl_bench.engine.canary`). Whatever fails
on the engine's side ends in a fresh engine, never in a submission's score.

Nothing here knows of requests: no request may run during a load, and `VllmEngine` sees to it.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_bench.engine.base import LoadKind, LoadReport
from rl_bench.engine.vllm_collectors import ask_for_scores
from rl_bench.engine.vllm_process import VllmProcess
from rl_bench.engine.vllm_setup import VllmOptions
from rl_bench.errors import GraderError, SubmissionError

if TYPE_CHECKING:
    from rl_bench.engine.canary import Canary, CanaryVerdict
    from rl_bench.engine.prepared import Opened, Prepared, Preparer

logger = logging.getLogger(__name__)

SWAP_TIMEOUT_S = 300.0
"""Staging, a swap with its canary, or a fresh engine's canary, that takes longer hangs."""

NUM_STARTS = 2
"""Attempts at a cold start: the first can lose a port or memory to a neighbour."""


class VllmLoader:
    """One vLLM process at a time, and the checkpoint in it.

    Args:
        options: What the process is started with.

    Attributes:
        process: The running one.
        loaded: The checkpoint that answers; ``None`` while none does.
    """

    def __init__(self, options: VllmOptions) -> None:
        self.process: VllmProcess | None = None
        self.loaded: Prepared | None = None
        self._options = options
        self._preparer: Preparer | None = None
        self._canary: Canary | None = None
        self._fingerprint = ""
        self._without_reference: set[str] = set()
        self._staging_s = 0.0
        self._engine_s = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether the process can answer."""
        return self.process is not None and self.process.is_alive

    def holds(self, content_hash: str) -> bool:
        """Whether a live process answers for that content."""
        return (
            self.loaded is not None and self.loaded.content_hash == content_hash and self.is_alive
        )

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        """Makes ``snapshot`` the checkpoint that answers.

        Raises:
            SubmissionError: The checkpoint is at fault; the previous one stays loaded unless the
                fault showed only in a fresh engine.
            GraderError: No engine could be started.
        """
        began = time.monotonic()
        if self.holds(content_hash):
            return LoadReport(kind=LoadKind.RESIDENT, seconds=time.monotonic() - began)
        prepared, is_staged = await self._prepare(snapshot, content_hash)
        self.loaded = None
        kind = LoadKind.WARM
        if not (is_staged and await self._worked("warm swap to", prepared, self._swap(prepared))):
            kind = LoadKind.COLD
            await self._start(prepared)
        self.loaded = prepared
        return LoadReport(
            kind=kind,
            seconds=time.monotonic() - began,
            engine_s=self._engine_s,
            staging_s=self._staging_s,
        )

    async def stop(self) -> None:
        """Ends the process; it is gone when this returns."""
        process, self.process, self.loaded = self.process, None, None
        if process is not None:
            await process.stop()

    # --- examination and staging, side by side

    async def _prepare(self, snapshot: Path, content_hash: str) -> tuple["Prepared", bool]:
        """Examines the checkpoint, and meanwhile has the engine stage it.

        Returns:
            The checkpoint, and whether the engine is ready to swap to it.
        """
        opened = await asyncio.to_thread(self._open, snapshot, content_hash)
        assert self._preparer is not None
        staging = asyncio.ensure_future(self._stage(opened))
        try:
            prepared = await asyncio.to_thread(self._preparer.prove, opened)
        finally:
            is_staged = await staging  # also after a refusal: no request may run beside it
        return prepared, is_staged

    def _open(self, snapshot: Path, content_hash: str) -> "Opened":
        # Lazy: a loader is cheap to make, and torch is imported off the event loop.
        import torch

        from rl_bench.engine.prepared import Preparer

        if self._preparer is None:
            self._preparer = Preparer(
                dtype=getattr(torch, self._options.dtype),
                max_model_len=self._options.max_model_len,
            )
        return self._preparer.open(snapshot, content_hash=content_hash)

    async def _stage(self, opened: "Opened") -> bool:
        """Has the engine do what it can do of the swap before the weights are known to be sound.

        Returns:
            Whether it did; ``False`` when a fresh engine is needed.
        """
        began = time.monotonic()
        is_alike = self.is_alive and opened.fingerprint == self._fingerprint
        is_staged = is_alike and await self._worked("staging", opened, self._try_stage(opened))
        self._staging_s = time.monotonic() - began
        return is_staged

    async def _try_stage(self, opened: "Opened") -> str:
        assert self.process is not None
        if not await self.process.llm.reset_prefix_cache():
            return "could not empty the prefix cache"
        return await self._in_workers("stage_weights", opened.folder)

    # --- the swap

    async def _swap(self, prepared: "Prepared") -> str:
        began = time.monotonic()
        problem = await self._in_workers("swap_weights", prepared.folder)
        self._engine_s = time.monotonic() - began
        return problem or (await self._check(prepared)).problem

    async def _in_workers(self, method: str, folder: Path) -> str:
        """Has every worker do ``method`` with ``folder``; returns what went wrong in any."""
        assert self.process is not None
        problems = await self.process.llm.collective_rpc(method, args=(str(folder),))
        return "; ".join(problem for problem in problems if problem)

    async def _worked(self, what: str, opened: "Opened", work: Coroutine[Any, Any, str]) -> bool:
        """Whether ``work`` in the engine came to its end and told of no problem."""
        assert self.process is not None
        try:
            async with asyncio.timeout(SWAP_TIMEOUT_S):
                problem = await self.process.while_alive(work)
        except Exception as error:  # noqa: BLE001  whatever broke there, a fresh engine is the answer
            problem = f"{type(error).__name__}: {error}"
        if problem:
            logger.warning("%s %s failed: it %s", what, opened.content_hash[:12], problem)
        return not problem

    # --- the start

    async def _start(self, prepared: "Prepared") -> None:
        failure: Exception | None = None
        for _ in range(NUM_STARTS):
            await self.stop()
            try:
                await self._start_once(prepared)
            except SubmissionError:
                await self.stop()
                raise
            except Exception as error:  # noqa: BLE001  vLLM raises whatever its child died of
                logger.warning("engine start failed: %s", error)
                failure = error
                continue
            return
        await self.stop()
        raise GraderError(
            f"the engine did not start in {NUM_STARTS} attempts: {str(failure)[:500]}",
            cure=f"see {self._options.log_folder or 'standard error'}",
        ) from failure

    async def _start_once(self, prepared: "Prepared") -> None:
        import torch

        from rl_bench.engine.canary import Canary

        began = time.monotonic()
        self.process = await VllmProcess.start(prepared.folder, self._options)
        self._engine_s = time.monotonic() - began
        self._fingerprint = prepared.fingerprint
        self._canary = Canary(getattr(torch, self._options.dtype))
        async with asyncio.timeout(SWAP_TIMEOUT_S):
            await self.process.while_alive(self._check_fresh(prepared))

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

    # --- the canary

    async def _check(self, prepared: "Prepared") -> "CanaryVerdict":
        assert self._preparer is not None
        assert self._canary is not None
        assert self.process is not None
        answers: list[float] = []
        for prompt in self._preparer.prompts(prepared.header):
            answers += await ask_for_scores(self.process.requests, prompt)
        trusted = prepared.fingerprint not in self._without_reference
        return self._canary.judge(
            answers,
            content_hash=prepared.content_hash,
            weights=prepared.evidence.weights,
            reference=prepared.evidence.reference if trusted else None,
        )
