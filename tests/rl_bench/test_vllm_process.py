"""An engine whose start is given up, without vLLM: what it had started is ended."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rl_bench.engine import vllm_process
from rl_bench.engine.vllm_process import VllmProcess
from rl_bench.engine.vllm_setup import VllmOptions


class Llm:
    """Has one process, and does not answer the first thing that it is told."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        manager = SimpleNamespace(processes=[child])
        self.engine_core = SimpleNamespace(
            resources=SimpleNamespace(engine_manager=manager), get_output_async=self.silence
        )
        self.input_processor = None
        self.told = asyncio.Event()

    async def silence(self) -> None:
        await asyncio.Event().wait()

    async def collective_rpc(self, method: str, args: tuple[object, ...]) -> None:
        self.told.set()
        await self.silence()

    def shutdown(self, timeout: float) -> None:
        """Leaves its process."""


@contextmanager
def sleeping() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) as child:
        try:
            yield child
        finally:
            child.kill()


async def give_up(child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Llm(child)
    monkeypatch.setattr(vllm_process, "_launch", lambda folder, options, made: made.append(llm))
    starting = asyncio.ensure_future(VllmProcess.start(Path("nowhere"), VllmOptions()))
    await llm.told.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


def test_a_start_that_is_given_up_at_its_last_step_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with sleeping() as child:
        asyncio.run(give_up(child, monkeypatch))
        assert not psutil.pid_exists(child.pid)
