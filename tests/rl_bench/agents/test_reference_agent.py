"""The reference agent as a program: trains for a moment, submits over HTTP, keeps the best."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from safetensors import safe_open

from rl_bench.compose import compose
from rl_bench.config import DataSource, TaskConfig
from rl_bench.models.tiny import build_tiny
from rl_bench.plan import expand
from rl_bench.tasks.alfworld.task import AlfworldTask
from rl_bench.tasks.base import Task
from rl_bench.tasks.gsm8k.task import GSM8KTask
from rl_bench.tasks.registry import make_task

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {
    "sft_demos": 8,
    "sft_epochs": 1,
    "sft_batch": 4,
    "sft_stages": 2,
    "warmup_demos": 8,
    "warmup_epochs": 1,
    "grpo_steps": 2,
    "grpo_prompts": 2,
    "grpo_group": 2,
    "grpo_micro_batch": 4,
    "grpo_stages": 2,
    "reserve_s": 1,
}


class ScriptedGrader(HTTPServer):
    """A grading server that gives out ``scores`` in turn and has ``remaining_s`` left."""

    def __init__(self, scores: Sequence[float | int], *, remaining_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.scores = list(scores)
        self.remaining_s = remaining_s
        self.submitted: list[Path] = []


class _Answers(BaseHTTPRequestHandler):
    server: ScriptedGrader

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {"remaining_s": self.server.remaining_s})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.submitted.append(Path(body["model_path"]))
        score = self.server.scores[len(self.server.submitted) - 1]
        if score < 0:
            self._answer(422, {"detail": "rejected"})
        else:
            self._answer(200, {"submission_id": len(self.server.submitted), "score": score})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return build_tiny(tmp_path / "base")


def _task(kind: str, cache: Path) -> tuple[Task, TaskConfig]:
    config = TaskConfig(
        name=f"{kind}_test",
        kind=kind,
        level="L1",
        source=DataSource.BUILTIN,
        num_eval=4,
        num_train=12,
        max_tokens=16,
        max_steps=12 if kind == "alfworld" else 1,
        settings={"task_types": ("pick_and_place_simple",), "num_receptacles": 3, "num_objects": 2}
        if kind == "alfworld"
        else {},
    )
    make = AlfworldTask if kind == "alfworld" else GSM8KTask
    return make(config, cache=cache), config


def _workspace(root: Path, *, kind: str, mode: str) -> Path:
    task, config = _task(kind, root / "cache")
    workspace = root / "workspace"
    task.write_train_data(workspace / "data")
    _describe(workspace, [config], mode=mode)
    return workspace


def _shipped_workspace(root: Path, options: Sequence[str], *, mode: str) -> Path:
    """A workspace with the tasks of ``conf/task``, few train items each."""
    workspace = root / "workspace"
    configs = [
        expand(compose([f"task={option}", "task.num_train=4"]).experiment)[0].tasks[0]
        for option in options
    ]
    for config in configs:
        folder = workspace / "data" / config.name if len(configs) > 1 else workspace / "data"
        make_task(config, cache=root / "cache").write_train_data(folder)
    _describe(workspace, configs, mode=mode)
    return workspace


def _describe(workspace: Path, configs: Sequence[TaskConfig], *, mode: str) -> None:
    for name in ("output", "code"):
        (workspace / name).mkdir()
    rows = [
        {
            "name": config.name,
            "kind": config.kind,
            "protocol": config.protocol,
            "max_steps": config.max_steps,
            "max_tokens": config.max_tokens,
        }
        for config in configs
    ]
    meta = {"mode": mode, "seed": 3, "tasks": rows, "budget_s": 60, "max_model_len": 700}
    (workspace / "run_meta.json").write_text(json.dumps(meta))


def _run(
    workspace: Path, base: Path, grader: ScriptedGrader, *, kind: str
) -> subprocess.CompletedProcess[str]:
    thread = threading.Thread(target=grader.serve_forever, daemon=True)
    thread.start()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(workspace),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "WORKSPACE": str(workspace),
        "MODEL_PATH": str(base),
        "DATA_PATH": str(workspace / "data"),
        "OUTPUT_DIR": str(workspace / "output"),
        "GRADING_SERVER_URL": f"http://127.0.0.1:{grader.server_address[1]}/token",
        "AGENT_SETTINGS": json.dumps({kind: SETTINGS}),
    }
    command = [sys.executable, "-m", "rl_bench.agents.reference"]
    done = subprocess.run(
        command, cwd=workspace, env=environ, capture_output=True, text=True, check=False
    )
    grader.shutdown()
    grader.server_close()
    thread.join()
    return done


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    with safe_open(folder / "model.safetensors", framework="pt") as weights:
        for name in sorted(weights.keys()):
            yield name, tuple(weights.get_slice(name).get_shape())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gsm8k", "alfworld"])
def test_rl_only_warms_up_then_reinforces_and_submits(
    tmp_path: Path, base: Path, kind: str
) -> None:
    workspace = _workspace(tmp_path, kind=kind, mode="rl_only")
    grader = ScriptedGrader([10.0, -1.0, 5.0], remaining_s=600.0)
    done = _run(workspace, base, grader, kind=kind)
    assert done.returncode == 0, done.stderr
    names = [folder.name for folder in grader.submitted]
    assert names == ["01-warmup-2", "02-grpo-1", "03-grpo-2"]
    files = {path.name for path in base.iterdir()}
    for folder in grader.submitted:
        assert files <= {path.name for path in folder.iterdir()}
        assert list(_tensors(folder)) == list(_tensors(base))
        assert (folder / "chat_template.jinja").read_text() == (
            base / "chat_template.jinja"
        ).read_text()
    weights = {
        (folder / "model.safetensors").read_bytes() for folder in [base, grader.submitted[0]]
    }
    assert len(weights) == 2
    best = workspace / "output" / "best" / "model.safetensors"
    assert best.read_bytes() == (grader.submitted[0] / "model.safetensors").read_bytes()
    assert "refused with 422" in done.stdout
    log = (workspace / "output" / "logs" / "grpo.jsonl").read_text().splitlines()
    rewards = [json.loads(line)["reward"] for line in log if "reward" in json.loads(line)]
    assert len(rewards) == 2
    assert json.loads((workspace / "code" / "plan.json").read_text())["mode"] == "rl_only"


@pytest.mark.slow
def test_sft_stops_at_the_deadline_and_still_submits(tmp_path: Path, base: Path) -> None:
    workspace = _workspace(tmp_path, kind="gsm8k", mode="sft_only")
    grader = ScriptedGrader([1.0, 2.0], remaining_s=0.5)
    done = _run(workspace, base, grader, kind="gsm8k")
    assert done.returncode == 0, done.stderr
    assert [folder.name for folder in grader.submitted] == ["01-sft-1"]


@pytest.mark.slow
def test_every_kind_of_task_can_be_fine_tuned_on(tmp_path: Path, base: Path) -> None:
    tasks = ["humaneval", "alpacaeval_mini", "webshop_mini", "deepsearchqa_mini"]
    workspace = _shipped_workspace(tmp_path, tasks, mode="multi")
    grader = ScriptedGrader([1.0] * 8, remaining_s=600.0)
    done = _run(workspace, base, grader, kind="humaneval")
    assert done.returncode == 0, done.stderr
    assert "sft: demonstrations 16" in done.stdout
    assert "answers that do not fit 700 tokens" in done.stdout
    weights = {(folder / "model.safetensors").read_bytes() for folder in grader.submitted}
    assert len(grader.submitted) == 2 * len(tasks)
    assert len(weights) == 2


def test_no_model_is_loaded_for_a_task_without_rewards(tmp_path: Path) -> None:
    workspace = _shipped_workspace(tmp_path, ["humaneval"], mode="rl_only")
    grader = ScriptedGrader([], remaining_s=60.0)
    done = _run(workspace, tmp_path / "no_model", grader, kind="humaneval")
    assert done.returncode == 2
    assert "no reinforcement learning for kind 'humaneval'" in done.stderr
    assert not grader.submitted
