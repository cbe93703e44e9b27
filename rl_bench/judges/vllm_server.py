"""A judge on this machine: vLLM's own OpenAI-compatible server, started when it is first needed.

It listens on loopback with a key of its own, logs into a file, and ends with this process, however
that ends: it is started under the supervisor that also holds agents. A server that died is started
again by the next question.
"""

import asyncio
import json
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from rl_bench.checkpoint import content_hash
from rl_bench.config import JudgeConfig
from rl_bench.endpoint.client import Address
from rl_bench.endpoint.failures import AskError, FailureKind
from rl_bench.engine.vllm_setup import (
    HARMFUL_VARIABLES,
    default_environment,
    has_gpu,
    start_lock_path,
)
from rl_bench.errors import RlBenchError
from rl_bench.process.agent_process import AgentProcess, tail

HOST = "127.0.0.1"
START_TIMEOUT_S = 900.0
"""Of a large model on a cold disk."""
POLL_S = 0.25
GRACE_S = 1.0
"""From SIGTERM to SIGKILL: a server has nothing to save."""
MAX_TAIL_BYTES = 100_000
_ERROR = re.compile(r"\w(Error|Exception): ")
_HARMLESS = re.compile(r"\b(WARNING|INFO|DEBUG)\b")
CPU_KV_CACHE_BYTES = 1 << 30
MIN_BATCHED_TOKENS = 2048
STRUCTURED_OUTPUTS = {"backend": "xgrammar", "disable_any_whitespace": True}


class VllmServer:
    """The `rl_bench.judges.endpoint.Endpoint` of a checkpoint on this machine.

    Args:
        config: With ``kind=vllm``.
        log_folder: Gets ``judge_NAME.log``.
        start_timeout_s: A start that takes longer has failed.
    """

    def __init__(
        self, config: JudgeConfig, *, log_folder: Path, start_timeout_s: float = START_TIMEOUT_S
    ) -> None:
        assert config.path is not None
        self._config = config
        self._folder = config.path
        self._log = log_folder / f"judge_{config.name}.log"
        self._start_timeout_s = start_timeout_s
        self._start: asyncio.Task[Address] | None = None
        self._process: AgentProcess | None = None
        self._identity = ""

    async def identity(self) -> str:
        """The checkpoint's content: the same wherever it lies."""
        if not self._identity:
            try:
                self._identity = await asyncio.to_thread(content_hash, self._folder)
            except RlBenchError as error:
                raise _closed(error.message) from error
        return self._identity

    async def address(self) -> Address:
        """Where the server listens; the first call starts it, which takes half a minute or more.

        Calls that wait for the same start share its failure.
        """
        if self._start is None or (self._start.done() and not self._is_alive()):
            self._start = asyncio.create_task(self._started())
        # Whoever gives up waiting does not end the start for the others.
        return await asyncio.shield(self._start)

    async def close(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            start.cancel()
            await asyncio.wait({start})
            if not start.cancelled():
                start.exception()  # it was told to those who waited
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.stop, grace_s=GRACE_S)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def _started(self) -> Address:
        on_gpu = await asyncio.to_thread(has_gpu)  # imports torch
        async with self._only_start():
            key, port = secrets.token_urlsafe(24), _free_port()
            seen = self._log.stat().st_size if self._log.exists() else 0
            # Not in a thread: a start that is cancelled there would leave a server behind.
            self._process = self._launch(key, port, on_gpu=on_gpu)
            await self._until_ready(self._process, port, seen=seen)
        return Address(base_url=f"http://{HOST}:{port}/v1", key=key)

    @asynccontextmanager
    async def _only_start(self) -> AsyncIterator[None]:
        """Keeps other engines from starting: two that measure free memory together both fail."""
        lock = FileLock(start_lock_path())
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout as error:
                if time.monotonic() > deadline:
                    raise _closed(f"waited too long for {start_lock_path()}") from error
                await asyncio.sleep(POLL_S)
        try:
            yield
        finally:
            lock.release()

    def _launch(self, key: str, port: int, *, on_gpu: bool) -> AgentProcess:
        environment = default_environment(self._start_timeout_s) | os.environ
        for name in (*HARMFUL_VARIABLES, "VLLM_LOGGING_CONFIG_PATH"):
            environment.pop(name, None)
        # A forced call is decoded as its arguments alone, under their schema: so it does not depend
        # on the format of calls that a model was trained on.
        environment["VLLM_ENFORCE_STRICT_TOOL_CALLING"] = "0"
        if not on_gpu:
            environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a process less to start
        # In the environment, since everyone on the machine can read a command line.
        environment["VLLM_API_KEY"] = key
        self._log.parent.mkdir(parents=True, exist_ok=True)
        return AgentProcess.start(
            server_command(self._config, self._folder, port, on_gpu=on_gpu),
            env=environment,
            cwd=self._log.parent,
            stdout=self._log,
            stderr=self._log,
        )

    async def _until_ready(self, process: AgentProcess, port: int, *, seen: int) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        async with httpx.AsyncClient(trust_env=False) as client:
            while time.monotonic() < deadline:
                end = process.poll()
                if end is not None:
                    why = end.start_error or f"exit code {end.exit_code}"
                    raise self._not_started(why, seen=seen)
                try:
                    response = await client.get(f"http://{HOST}:{port}/health", timeout=5.0)
                    if response.status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass  # it does not listen yet
                await asyncio.sleep(POLL_S)
        await asyncio.to_thread(process.stop, grace_s=0.0)
        raise self._not_started(f"not ready within {self._start_timeout_s:g} s", seen=seen)

    def _not_started(self, why: str, *, seen: int) -> AskError:
        size = max(0, self._log.stat().st_size - seen) if self._log.exists() else 0
        text = tail(self._log, max_bytes=min(size, MAX_TAIL_BYTES)) if size else ""
        return _closed(f"the server did not start ({why}), see {self._log}: {_root_cause(text)}")


def server_command(config: JudgeConfig, folder: Path, port: int, *, on_gpu: bool) -> list[str]:
    """The command line of vLLM's server for a checkpoint folder."""
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(folder.absolute()), "--served-model-name", config.model_id),
        *("--host", HOST, "--port", str(port)),
        *("--max-model-len", str(config.max_model_len)),
        *("--max-num-seqs", str(config.max_concurrency)),
        # A judge's sampling is what its config says, not what its checkpoint suggests.
        *("--generation-config", "vllm"),
        *("--load-format", "safetensors"),
        # A call needs a parser, even a forced one that is read without it: see `_launch`.
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        # Small models else fill a verdict with blanks up to its limit of tokens.
        *("--structured-outputs-config", json.dumps(STRUCTURED_OUTPUTS)),
        "--disable-log-stats",
        "--disable-uvicorn-access-log",
        "--enforce-eager",
    ]
    if on_gpu:
        return [*command, "--gpu-memory-utilization", str(config.gpu_memory_utilization)]
    # On a CPU as the grader's engine, for the reasons that rl_bench.engine.vllm_setup gives.
    return [
        *command,
        # Half precision differs in speed and answers from CPU to CPU, and some have instructions
        # for it that a sandbox's kernel does not let through.
        *("--dtype", "float32"),
        *("--kv-cache-memory-bytes", str(CPU_KV_CACHE_BYTES)),
        *("--max-num-batched-tokens", str(max(MIN_BATCHED_TOKENS, config.max_model_len))),
        "--no-enable-chunked-prefill",
        *("--distributed-executor-backend", "uni"),
    ]


def _root_cause(log: str) -> str:
    """The first error that a log tells: those that follow mostly say that one has happened."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [
        number
        for number, line in enumerate(lines)
        if _ERROR.search(line) and not _HARMLESS.search(line)
    ]
    start = telling[0] if telling else max(0, len(lines) - 2)
    return " ".join(lines[start : start + 2])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _closed(message: str) -> AskError:
    return AskError(message, kind=FailureKind.CLOSED)
