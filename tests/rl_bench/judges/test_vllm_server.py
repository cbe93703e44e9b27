"""A judge that this machine serves: its life with a small stand-in server, and once with vLLM."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from rl_bench.config import JudgeConfig, ModelConfig
from rl_bench.judges import vllm_server
from rl_bench.judges.base import FunctionSpec, JudgeReply, JudgeRequest
from rl_bench.judges.pool import JudgePool
from rl_bench.judges.vllm_server import VllmServer
from rl_bench.models.base import resolve_model

SERVER = """
import http.server, json, os, sys

class Connection(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer " + os.environ["VLLM_API_KEY"]:
            return self.answer(401, {"error": {"message": "another's key"}})
        text = f"{os.getpid()} {asked['seed']}"
        self.answer(200, {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Connection).serve_forever()
"""
RANK = FunctionSpec(
    name="rank",
    parameters={
        "type": "object",
        "properties": {"best": {"type": "string", "enum": ["m", "M"]}},
        "required": ["best"],
        "additionalProperties": False,
    },
)


def request(text: str = "hello", **fields: Any) -> JudgeRequest:
    return JudgeRequest(
        item_id="x",
        messages=({"role": "user", "content": text},),
        **({"max_tokens": 32} | fields),
    )


def config_of(folder: Path, **fields: Any) -> JudgeConfig:
    defaults = {"name": "local", "kind": "vllm", "annotator": "a", "model_id": "m", "path": folder}
    return JudgeConfig.model_validate(defaults | fields)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@asynccontextmanager
async def opened(config: JudgeConfig, folder: Path) -> AsyncIterator[JudgePool]:
    pool = JudgePool.from_config(config, cache=folder, log_folder=folder, first_wait_s=0.05)
    try:
        yield pool
    finally:
        await pool.close()
        await pool.close()


def serve_with(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    def command(config: JudgeConfig, folder: Path, port: int, *, on_gpu: bool) -> list[str]:
        return [sys.executable, "-c", script, str(port)]

    monkeypatch.setattr(vllm_server, "server_command", command)


async def test_it_starts_once_when_it_is_needed_and_again_when_it_died(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path
) -> None:
    serve_with(monkeypatch, SERVER)
    async with opened(config_of(checkpoint, num_votes=3), tmp_path) as pool:
        judged = await pool.ask([request(f"a{i}") for i in range(4)], parse=_pid_and_seed)
        values = [value for vote in judged.votes for value in vote.values]
        assert len(values) == 12
        (pid,) = {value[0] for value in values}
        assert {value[1] for value in values} == {0, 1, 2}  # each vote draws anew
        os.kill(pid, signal.SIGKILL)
        again = await pool.ask([request(f"b{i}") for i in range(4)], parse=_pid_and_seed)
        (second,) = {value[0] for vote in again.votes for value in vote.values}
        assert second != pid
        cached = await pool.ask([request("a0")], parse=_pid_and_seed)
        assert cached.votes[0] == judged.votes[0]
    assert not psutil.pid_exists(second)


def _pid_and_seed(reply: JudgeReply) -> tuple[int, int]:
    pid, seed = map(int, reply.text.split())
    return pid, seed


async def test_what_is_known_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path
) -> None:
    serve_with(monkeypatch, SERVER)
    async with opened(config_of(checkpoint), tmp_path) as pool:
        first = await pool.ask([request()], parse=_pid_and_seed)
    serve_with(monkeypatch, "raise SystemExit(3)")
    async with opened(config_of(checkpoint), tmp_path) as pool:
        assert (await pool.ask([request()], parse=_pid_and_seed)).votes == first.votes
    (checkpoint / "config.json").write_text('{"another": "checkpoint"}')
    async with opened(config_of(checkpoint), tmp_path) as pool:
        judged = await pool.ask([request()], parse=_pid_and_seed)
    assert not judged.votes[0].is_judged


async def test_a_start_that_fails_is_told_with_the_logs_end(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path
) -> None:
    script = "import sys; print('started', flush=True); raise MemoryError('too large')"
    serve_with(monkeypatch, script)
    async with opened(config_of(checkpoint), tmp_path) as pool:
        judged = await pool.ask([request(f"{i}") for i in range(20)], parse=_pid_and_seed)
    (reason,) = {failure for vote in judged.votes for failure in vote.failures}
    assert reason.startswith("the server did not start (exit code 1), see ")
    assert reason.endswith(f"{tmp_path / 'judge_local.log'}: MemoryError: too large")
    assert (tmp_path / "judge_local.log").read_text().count("started") == 1


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", ""),
        ("one\ntwo\nthree\n", "two three"),
        (
            "1 WARNING limits can cause `OSError: too many files`\nTraceback\n"
            "(core) ERROR ValueError: no room\n at x\nRuntimeError: core failed, see above\n",
            "(core) ERROR ValueError: no room at x",
        ),
    ],
)
def test_the_root_cause_is_the_first_error(log: str, cause: str) -> None:
    assert vllm_server._root_cause(log) == cause


async def test_a_start_is_bounded(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path
) -> None:
    serve_with(monkeypatch, "import time; time.sleep(600)")
    server = VllmServer(config_of(checkpoint), log_folder=tmp_path, start_timeout_s=0.5)
    with pytest.raises(Exception, match=r"not ready within 0\.5 s"):
        await server.address()
    await server.close()


async def test_closing_while_it_starts_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path
) -> None:
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    serve_with(monkeypatch, script)
    server = VllmServer(config_of(checkpoint), log_folder=tmp_path)
    starting = asyncio.create_task(server.address())
    log = tmp_path / "judge_local.log"
    while not (log.exists() and log.read_text().strip()):  # noqa: ASYNC110  another process's
        await asyncio.sleep(0.05)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert psutil.pid_exists(int(log.read_text()))  # others may wait for it
    await server.close()
    assert not psutil.pid_exists(int(log.read_text()))


async def test_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    async with opened(config_of(tmp_path / "gone"), tmp_path) as pool:
        judged = await pool.ask([request()], parse=_pid_and_seed)
    assert not judged.votes[0].is_judged
    assert "gone" in judged.votes[0].failures[0]


OWNER = """
import asyncio, sys
from pathlib import Path
from rl_bench.config import JudgeConfig
from rl_bench.judges import vllm_server

async def main():
    folder, script = Path(sys.argv[1]), sys.argv[2]
    vllm_server.server_command = lambda *a, **k: [sys.executable, "-c", script, str(a[2])]
    config = JudgeConfig(name="l", kind="vllm", annotator="a", model_id="m", path=folder)
    server = vllm_server.VllmServer(config, log_folder=folder)
    await server.address()
    print("pid", server._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_server_dies_with_its_owner(checkpoint: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(checkpoint), SERVER],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        try:
            assert owner.stdout is not None
            pid = next(int(line.split()[1]) for line in owner.stdout if line.startswith("pid"))
            assert psutil.pid_exists(pid)
        finally:
            owner.kill()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(pid)


@pytest.mark.vllm
@pytest.mark.timeout(400)
async def test_vllm_answers_with_log_probabilities_and_forced_calls(tmp_path: Path) -> None:
    folder = resolve_model(ModelConfig(name="tiny", kind="tiny"), cache=tmp_path)
    async with opened(config_of(folder, max_model_len=256, max_concurrency=4), tmp_path) as pool:
        top = await pool.ask(
            [request(max_tokens=1, top_logprobs=5), request("other", max_tokens=1, top_logprobs=5)],
            parse=lambda reply: reply.top_logprobs,
        )
        for vote in top.votes:
            ((likeliest,),) = vote.values
            assert len(likeliest) == 5
            assert all(-100 < logprob <= 0 for logprob in likeliest.values())
        assert top.usage.num_tokens == 2
        called = await pool.ask(
            [request(function=RANK, temperature=1.0)],
            parse=lambda reply: json.loads(reply.arguments or "")["best"],
        )
        assert called.votes[0].values[0] in ("m", "M")
        long = await pool.ask([request("take " * 900)], parse=lambda reply: reply.text)
        assert "maximum context length is 256" in long.votes[0].failures[0]
