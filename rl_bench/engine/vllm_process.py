"""Starts vLLM's asynchronous engine and makes sure that its processes end.

vLLM ends its children through its own shutdown; here they are also remembered by pid and start
time, and killed if they outlive it. No other process is ever touched.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import filelock
import psutil

from rl_bench.engine.vllm_requests import VllmRequests
from rl_bench.engine.vllm_setup import (
    VllmOptions,
    engine_arguments,
    prepare_environment,
    start_lock_path,
)
from rl_bench.errors import GraderError

logger = logging.getLogger(__name__)
T = TypeVar("T")

GRACE_S = 1.0
"""From SIGTERM to SIGKILL: an engine has nothing to save, and takes seconds to end by itself."""

KILL_TIMEOUT_S = 5.0

ALIVE_CHECK_S = 1.0


class VllmProcess:
    """One running engine: the client object in this process, and its child processes.

    Attributes:
        llm: vLLM's ``AsyncLLM``, untyped because vLLM is an optional dependency.
        requests: What it is asked to generate.
        processes: The engine core, its workers and their helpers.
    """

    def __init__(self, llm: Any) -> None:
        self.llm = llm
        self.requests = VllmRequests(llm)
        self.processes = _children_of(llm)

    @classmethod
    async def start(cls, folder: Path, options: VllmOptions) -> "VllmProcess":
        """Starts an engine for the checkpoint in ``folder``: seconds to minutes.

        Cancelling it does not lose the engine: it is ended once its start has returned.

        Raises:
            RuntimeError, ValueError, OSError, AssertionError, TimeoutError: What vLLM raises when
                a start fails, or the start lock was not to be had.
        """
        # Handed over in a list: a frame that vLLM keeps would hold a thread's result for ever.
        made: list[Any] = []
        starting = asyncio.ensure_future(asyncio.to_thread(_launch, folder, options, made))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(partial(_discard, made))
            raise
        running = cls(made.pop())
        me = psutil.Process()
        try:
            await running.llm.collective_rpc("follow_parent", args=(me.pid, me.create_time()))
        except BaseException:  # nobody else knows of it
            await running.stop()
            raise
        return running

    @property
    def is_alive(self) -> bool:
        """Whether it can still answer."""
        return (
            not self.llm.errored
            and self.requests.is_running
            and all(map(_is_running, self.processes))
        )

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, unless the engine dies first: vLLM may leave its callers waiting.

        Raises:
            GraderError: It died.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=ALIVE_CHECK_S))[0]:
                if not self.is_alive:
                    raise GraderError("the engine died")
            return task.result()
        finally:
            task.cancel()

    async def stop(self) -> None:
        """Ends the engine, whatever state it is in; its processes are gone afterwards."""
        self.requests.close(GraderError("the engine was stopped"))
        await asyncio.to_thread(_end, self.llm, self.processes)
        self.llm = None
        gc.collect()  # vLLM's object is part of cycles and complains when it outlives the modules


def _launch(folder: Path, options: VllmOptions, made: list[Any]) -> None:
    prepare_environment(options)
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        with filelock.FileLock(start_lock_path(), timeout=options.start_timeout_s):
            made.append(AsyncLLM.from_engine_args(engine_arguments(folder, options)))
    except filelock.Timeout as error:
        raise TimeoutError(f"waited too long for {start_lock_path()}") from error


def _children_of(llm: Any) -> list[psutil.Process]:
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


def _discard(made: list[Any], starting: "asyncio.Future[None]") -> None:
    """Ends an engine whose load was cancelled while it started."""
    if not starting.cancelled() and starting.exception() is None:
        llm = made.pop()
        _end(llm, _children_of(llm))


def _end(llm: Any, processes: Sequence[psutil.Process]) -> None:
    try:
        llm.shutdown(timeout=GRACE_S)
    except Exception:
        # Teardown of an engine in any state: its processes are killed next, whatever it says.
        logger.warning("the engine's shutdown failed", exc_info=True)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil knows a pid's next owner apart
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=KILL_TIMEOUT_S)
    if any(map(_is_running, alive)):
        logger.error("engine processes survive SIGKILL: %s", [process.pid for process in alive])
