"""What the agent finds when it starts, and what it cannot change by changing it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rl_bench import workspace as workspace_module
from rl_bench.clock import RunClock
from rl_bench.config import AgentConfig, BudgetConfig, RunSpec, SandboxConfig
from rl_bench.errors import WorkspaceError
from rl_bench.paths import RunPaths
from rl_bench.process.agent_process import AgentProcess
from rl_bench.sandbox.base import Launch, View
from rl_bench.sandbox.choose import make_sandbox
from rl_bench.workspace import BaseCheck, Workspace
from tests.rl_bench.grading_scene import Scene, WordTask, make_spec, value_of, write_checkpoint


def create(root: Path, spec: RunSpec | None = None) -> Workspace:
    spec = spec or make_spec()
    base = root / "base"
    if not base.exists():
        write_checkpoint(base, value=5)
    tasks = [WordTask(task.name) for task in spec.tasks]
    return Workspace.create(RunPaths(root / "run"), spec, tasks=tasks, base_model=base)


def test_layout(tmp_path: Path) -> None:
    workspace = create(tmp_path)
    names = {path.name for path in workspace.root.iterdir() if not path.name.startswith(".")}
    assert names == {
        *("description.md", "instructions.md", "run_meta.json", "scores.json"),
        *("data", "models", "code", "output"),
    }
    assert value_of(workspace.model) == 5
    assert "alfworld" in (workspace.root / "description.md").read_text()
    instructions = (workspace.root / "instructions.md").read_text()
    assert "Do as you like." in instructions
    assert "600 seconds" in instructions
    assert '"$GRADING_SERVER_URL/submit"' in instructions
    meta = json.loads((workspace.root / "run_meta.json").read_text())
    assert meta["tasks"] == [
        {"name": "alfworld", "kind": "k", "protocol": "chat", "max_steps": 1, "max_tokens": 10}
    ]
    assert (meta["budget_s"], meta["base_model"], meta["mode"]) == (600, "tiny", "free")
    assert meta["clock"] is None


def test_multi_has_a_folder_a_task(tmp_path: Path) -> None:
    workspace = create(tmp_path, make_spec("alfworld", "gsm8k"))
    assert (workspace.data / "gsm8k" / "train.jsonl").exists()
    assert workspace.environment("u")["TASK"] == "alfworld,gsm8k"
    assert '"tasks": {"alfworld"' in (workspace.root / "instructions.md").read_text()


def test_environment_is_built_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("RL_BENCH_DATA", "/test/split")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    agent = AgentConfig(name="test", argv=("true",), settings={"steps": 3}, env={"EXTRA": "1"})
    workspace = create(tmp_path, make_spec(agent=agent))
    env = workspace.environment("http://127.0.0.1:1/t", num_threads=2)
    assert "secret" not in env.values()
    assert "RL_BENCH_DATA" not in env
    root = str(workspace.root)
    assert {
        "TASK": "alfworld",
        "BASE_MODEL": "tiny",
        "WORKSPACE": root,
        "MODEL_PATH": f"{root}/models/tiny",
        "DATA_PATH": f"{root}/data",
        "OUTPUT_DIR": f"{root}/output",
        "GRADING_SERVER_URL": "http://127.0.0.1:1/t",
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "3",
        "EXTRA": "1",
    }.items() <= env.items()
    assert json.loads(env["AGENT_SETTINGS"]) == {"steps": 3}
    assert env["HOME"].startswith(root)
    assert env["TMPDIR"].startswith(root)
    code = "import envs, tempfile, os; print(tempfile.gettempdir()); os.listdir(os.environ['HOME'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == env["TMPDIR"]


def test_placeholders_stay_within_their_argument(tmp_path: Path) -> None:
    argv = ("{python}", "-c", "echo ${HOME} {prompt} {unknown} {workspace}")
    workspace = create(tmp_path, make_spec(agent=AgentConfig(name="t", argv=argv)))
    python, _, script = workspace.argv()
    assert python == sys.executable
    assert script.startswith("echo ${HOME} Post-train the base model tiny")
    assert script.endswith(f"{{unknown}} {workspace.root}")


def test_clock_of_run_meta_is_the_runs(tmp_path: Path) -> None:
    workspace = create(tmp_path)
    clock = RunClock(workspace.spec.budget)
    workspace.start_clock(clock)
    meta = json.loads((workspace.root / "run_meta.json").read_text())["clock"]
    deadline = datetime.fromisoformat(meta["deadline_at"])
    assert deadline.tzinfo is not None
    left = deadline - datetime.now(UTC)
    assert abs(left - timedelta(seconds=clock.remaining_s)) < timedelta(seconds=2)
    assert meta["remaining_s"] == pytest.approx(600, abs=2)


def test_next_attempt_starts_afresh(tmp_path: Path) -> None:
    first = create(tmp_path)
    (first.output / "old").mkdir()
    (first.code / "train.py").write_text("old")
    second = create(tmp_path)
    assert list(second.output.iterdir()) == []
    assert list(second.code.iterdir()) == []
    assert second.base_hash == first.base_hash


def test_copies_do_not_reach_the_truth(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        workspace = scene.workspace
        before = scene.paths.ledger.read_bytes()
        assert workspace.tampered() == ()
        outside = tmp_path / "outside.json"
        outside.write_text("mine")
        (workspace.root / "scores.json").unlink()
        (workspace.root / "scores.json").symlink_to(outside)
        (workspace.root / "run_meta.json").write_text("{}")
        train = workspace.data / "train.jsonl"
        train.parent.chmod(0o755)
        train.chmod(0o644)
        train.write_text("other")
        assert workspace.tampered() == ("data/train.jsonl", "run_meta.json", "scores.json")
        assert workspace.refresh({"best": None}) == (
            "the agent changed scores.json",
            "the agent changed run_meta.json",
        )
        assert outside.read_text() == "mine"
        assert workspace.tampered() == ("data/train.jsonl",)
        assert scene.paths.ledger.read_bytes() == before


def test_link_to_an_equal_file_is_a_change(tmp_path: Path) -> None:
    workspace = create(tmp_path)
    meta = workspace.root / "run_meta.json"
    meta.rename(workspace.root / "moved.json")
    meta.symlink_to(workspace.root / "moved.json")
    assert workspace.tampered() == ("run_meta.json",)


def test_obstacles_are_told_and_stop_nothing(tmp_path: Path) -> None:
    workspace = create(tmp_path)
    (workspace.root / "scores.json").unlink()
    (workspace.root / "scores.json").mkdir()
    (workspace.root / "scores.json" / "x").touch()
    changed = workspace.refresh({})
    assert changed[0] == "the agent changed scores.json"
    assert "could not be written" in changed[1]


def test_verdicts_at_once_are_no_tampering(tmp_path: Path) -> None:
    workspace = create(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda number: workspace.refresh({"best": number}), range(200)))
    assert set(told) == {()}


def test_writing_through_the_base_is_noticed(tmp_path: Path) -> None:
    workspace = create(tmp_path)
    assert workspace.verify_base() == BaseCheck(original_intact=True, view_intact=True)
    weights = workspace.model / "model.safetensors"
    assert not weights.stat().st_mode & 0o222
    weights.chmod(0o644)
    other = write_checkpoint(tmp_path / "x", value=9) / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(other.read_bytes())
    assert workspace.verify_base() == BaseCheck(original_intact=True, view_intact=False)
    assert value_of(tmp_path / "base") == 5


def test_large_base_is_linked_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "MAX_BASE_COPY_BYTES", 0)
    monkeypatch.setattr(workspace_module, "can_reflink", lambda folder, source: False)
    workspace = create(tmp_path)
    assert workspace.model.is_symlink()
    (workspace.model / "config.json").write_text("{}")
    assert workspace.verify_base() == BaseCheck(original_intact=False, view_intact=False)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(WorkspaceError, match="could not be made"):
        create(tmp_path)


def test_sandbox_none_says_what_it_does_not_do(tmp_path: Path) -> None:
    sandbox = make_sandbox(SandboxConfig(name="none"))
    launch = Launch(argv=("true",), env={}, cwd=tmp_path)
    view = View(workspace=tmp_path, home=tmp_path, tmp=tmp_path)
    assert sandbox.wrap(launch, view) == launch
    assert all("sandbox=none" in text for text in sandbox.warnings())


def run_agent(scene: Scene) -> int | None:
    env = scene.workspace.environment(scene.server.url)
    logs = scene.paths.logs
    agent = AgentProcess.start(
        scene.workspace.argv(),
        env=env,
        cwd=scene.workspace.root,
        stdout=logs / "agent.stdout",
        stderr=logs / "agent.stderr",
    )
    exit_ = agent.wait(remaining_s=lambda: scene.clock.remaining_s, grace_s=10.0)
    return exit_.exit_code


def test_copy_base_agent(tmp_path: Path) -> None:
    argv = ("{python}", "-m", "rl_bench.agents.copy_base")
    spec = make_spec(agent=AgentConfig(name="copy_base", argv=argv))
    with Scene(tmp_path, spec).serving() as scene:
        assert run_agent(scene) == 0
        reply = json.loads((scene.paths.logs / "agent.stdout").read_text())
    assert (reply["improvement"], reply["unchanged"]) == (0.0, True)


def test_published_agents_start_script(tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text(
        'set -e\ncp -rL "$MODEL_PATH" "$OUTPUT_DIR/m"; chmod -R u+w "$OUTPUT_DIR/m"\n'
        'echo "{}" > "$OUTPUT_DIR/m/generation_config.json"\n'
        'curl -sf -X POST "$GRADING_SERVER_URL/submit" -H "Content-Type: application/json" '
        '-d "{\\"model_path\\": \\"$OUTPUT_DIR/m\\"}" > reply.json\n'
    )
    spec = make_spec(agent=AgentConfig(name="command", argv=("bash", str(script))))
    with Scene(tmp_path, spec).serving() as scene:
        assert run_agent(scene) == 0, (scene.paths.logs / "agent.stderr").read_text()
        reply = json.loads((scene.workspace.root / "reply.json").read_text())
        scores = json.loads((scene.workspace.root / "scores.json").read_text())
    assert reply["submission_id"] == 1
    assert scores["best"]["score"] == reply["score"] == 5.0


def test_remaining_time_is_zero_when_the_agent_is_ended(tmp_path: Path) -> None:
    script = (
        "trap 'curl -s $GRADING_SERVER_URL/time > at_the_end; exit' TERM\n"
        "while :; do sleep 0.05; done"
    )
    budget = BudgetConfig(name="t", wall_clock_s=2)
    spec = make_spec(agent=AgentConfig(name="t", argv=("bash", "-c", script)), budget=budget)
    with Scene(tmp_path, spec).serving() as scene:
        assert run_agent(scene) == 0
        times = json.loads((scene.workspace.root / "at_the_end").read_text())
    assert times["remaining_s"] == 0
    # A second is the promise; the rest is for a machine that is busy with other things.
    assert 2 <= times["used_s"] < 2 + 1 + 2
