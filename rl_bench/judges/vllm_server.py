"""A judge on this machine: vLLM's own OpenAI-compatible server, started when it is first needed.

It listens on loopback with a key of its own, logs into a file, and ends with this process, however
that ends: `rl_bench.process` starts it under the supervisor that also holds agents. A server that
died is started again by the next question.
"""

import asyncio
import json
import os
import secrets
import socket
import sys
import time
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from rl_bench.checkpoint import content_hash
from rl_bench.config import JudgeConfig
from rl_bench.engine.vllm_setup import (
    HARMFUL_VARIABLES,
    default_environment,
    has_gpu,
    start_lock_path,
)
from rl_bench.errors import RlBenchError
from rl_bench.judges.endpoint import Address
from rl_bench.judges.failures import AskError, FailureKind
from rl_bench.process import AgentProcess, tail

HOST = "127.0.0.1"
START_TIMEOUT_S = 900.0
"""Of a large model on a cold disk."""
POLL_S = 0.25
GRACE_S = 1.0
"""From SIGTERM to SIGKILL: a server has nothing to save."""
MAX_TAIL_BYTES = 1500
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
        self._starting = asyncio.Lock()
        self._process: AgentProcess | None = None
        self._address: Address | None = None
        self._identity = ""

    async def identity(self) -> str:
        """The checkpoint's content: the same wherever it lies."""
        if not self._identity:
            try:
                self._identity = await asyncio.to_thread(content_hash, self._folder)
            except RlBenchError as error:
                raise _closed(f"judge {self._config.name}: {error.message}") from error
        return self._identity

    async def address(self) -> Address:
        """Where the server listens; the first call starts it, which takes half a minute or more."""
        async with self._starting:
            if self._process is None or self._process.poll() is not None:
                await self._start()
            assert self._address is not None
            return self._address

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.stop, grace_s=GRACE_S)

    async def _start(self) -> None:
        lock = FileLock(start_lock_path(), thread_local=False)
        try:
            # Two that measure free memory at the same time both fail.
            await asyncio.to_thread(lock.acquire, timeout=self._start_timeout_s)
        except Timeout as error:
            raise _closed(f"waited too long for {start_lock_path()}") from error
        try:
            key, port = secrets.token_urlsafe(24), _free_port()
            process = await asyncio.to_thread(self._launch, key, port)
            try:
                await self._until_ready(process, port)
            except BaseException:  # cancelled, too: nothing half started may stay
                await asyncio.shield(asyncio.to_thread(process.stop, grace_s=0.0))
                raise
        finally:
            lock.release()
        self._process = process
        self._address = Address(base_url=f"http://{HOST}:{port}/v1", key=key)

    def _launch(self, key: str, port: int) -> AgentProcess:
        environment = default_environment(self._start_timeout_s) | os.environ
        for name in (*HARMFUL_VARIABLES, "VLLM_LOGGING_CONFIG_PATH"):
            environment.pop(name, None)
        # A forced call is decoded as its arguments alone, under their schema: so it does not depend
        # on the format of calls that a model was trained on.
        environment["VLLM_ENFORCE_STRICT_TOOL_CALLING"] = "0"
        if not has_gpu():
            environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a process less to start
        # In the environment, since everyone on the machine can read a command line.
        environment["VLLM_API_KEY"] = key
        self._log.parent.mkdir(parents=True, exist_ok=True)
        return AgentProcess.start(
            server_command(self._config, self._folder, port),
            env=environment,
            cwd=self._log.parent,
            stdout=self._log,
            stderr=self._log,
        )

    async def _until_ready(self, process: AgentProcess, port: int) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        async with httpx.AsyncClient(trust_env=False) as client:
            while time.monotonic() < deadline:
                end = process.poll()
                if end is not None:
                    why = end.start_error or f"exit code {end.exit_code}"
                    raise self._not_started(f"it ended ({why})")
                try:
                    response = await client.get(f"http://{HOST}:{port}/health", timeout=5.0)
                    if response.status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass  # it does not listen yet
                await asyncio.sleep(POLL_S)
        raise self._not_started(f"it was not ready within {self._start_timeout_s:g} s")

    def _not_started(self, why: str) -> AskError:
        end = tail(self._log, max_bytes=MAX_TAIL_BYTES).strip()
        return _closed(
            f"judge {self._config.name}: the server did not start: {why}; {self._log} ends: …{end}"
        )


def server_command(config: JudgeConfig, folder: Path, port: int) -> list[str]:
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
    if has_gpu():
        return [*command, "--gpu-memory-utilization", str(config.gpu_memory_utilization)]
    # On a CPU as the grader's engine, for the reasons that rl_bench.engine.vllm_setup gives.
    return [
        *command,
        *("--kv-cache-memory-bytes", str(CPU_KV_CACHE_BYTES)),
        *("--max-num-batched-tokens", str(max(MIN_BATCHED_TOKENS, config.max_model_len))),
        "--no-enable-chunked-prefill",
        *("--distributed-executor-backend", "uni"),
    ]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _closed(message: str) -> AskError:
    return AskError(message, kind=FailureKind.CLOSED)
