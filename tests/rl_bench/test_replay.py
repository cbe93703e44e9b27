"""Real runs done again by a real process."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_bench.agents.replay.report import ReplayReport
from rl_bench.config import AgentConfig, SandboxConfig
from rl_bench.events import (
    RunStarted,
    SubmissionAccepted,
)
from rl_bench.grading_api import GradingServer
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.lineage.code_watch import CodeWatch
from rl_bench.lineage.recording import (
    check_recording,
    write_recording,
)
from rl_bench.process.agent_process import AgentProcess
from rl_bench.sandbox.base import Forward, Launch, Sandbox, View
from rl_bench.sandbox.choose import make_sandbox
from rl_bench.sandbox.none import NoSandbox
from tests.needs import needs
from tests.rl_bench.grading_scene import Scene, make_spec
from tests.rl_bench.replay_scene import CLI, call, replay_agent, result

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """
import json, sys
import numpy as np
from pathlib import Path
import os, shutil
from safetensors.numpy import load_file, save_file
VALUE = {value}
target = Path(os.environ["OUTPUT_DIR"], sys.argv[1])
shutil.copytree(os.environ["MODEL_PATH"], target, dirs_exist_ok=True, copy_function=shutil.copyfile)
for path in (target, *target.iterdir()):
    path.chmod(0o755)
weights = load_file(target / "model.safetensors")
weights["model.embed_tokens.weight"] = np.full((4, 2), VALUE, dtype=np.float32)
save_file(weights, target / "model.safetensors")
"""
SUBMIT = (
    'curl -sf -X POST "$GRADING_SERVER_URL/submit" -H "Content-Type: application/json" '
    '-d \'{"model_path": "output/%s"}\''
)


class Recorder:
    """Plays a CLI: runs commands in a scene and tells its ledger of them, as a run does."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        history = CodeHistory(scene.workspace.code, history=scene.paths.code_history)
        self.watch = CodeWatch(
            scene.workspace.code,
            history=history,
            used_s=lambda: scene.clock.used_s,
            tell=scene.ledger.append,
        )
        scene.desk._code_revision = self.watch.at_submission
        scene.ledger.append(RunStarted(run_id="r", sweep="s", attempt=0, spec=scene.spec))
        scene.server.run(scene.desk.grade_baseline())

    def write(self, name: str, text: str) -> None:
        (self.scene.workspace.root / name).write_text(text)
        self.watch._record("change")

    def bash(self, text: str) -> str:
        scene = self.scene
        scene.ledger.append(call(text, scene.clock.used_s))
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=scene.workspace.root,
            env=scene.workspace.environment(scene.server.url),
            capture_output=True,
            text=True,
            check=False,
        )
        scene.ledger.append(result(text, scene.clock.used_s))
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def shown_to_agents(tmp_path: Path) -> Path:
    """Of the project, what a sandbox shows of it."""
    folder = tmp_path / "checkout"
    (folder / "rl_bench").mkdir(parents=True)
    (folder / "rl_bench" / "__init__.py").touch()
    shutil.copytree(ROOT / "rl_bench" / "agents", folder / "rl_bench" / "agents")
    return folder


class Outcome:
    """A finished replay."""

    def __init__(self, scene: Scene, exit_code: int | None) -> None:
        self.exit_code = exit_code
        self.stdout = (scene.paths.logs / "agent.stdout").read_text()
        self.stderr = (scene.paths.logs / "agent.stderr").read_text()
        self.log = (scene.workspace.output / "replay.log").read_text(errors="replace")
        report = scene.workspace.output / "replay.json"
        self.report = ReplayReport.model_validate_json(report.read_bytes())
        self.hashes = hashes(scene)
        self.code = scene.workspace.code


def replay(
    root: Path, run: Path, *tasks: str, checkout: Path, sandbox: Sandbox | None = None
) -> Outcome:
    agent = replay_agent(str(run))
    spec = make_spec(*tasks, agent=agent)
    check_recording(spec)
    write_recording(run)
    # As in a sandbox: of the recorded run the agent sees two things only.
    hidden = (run / "ledger.jsonl").rename(run / "hidden")
    with tempfile.TemporaryDirectory() as sockets:
        scene = Scene(root, spec)
        scene.server.close()
        scene.server = GradingServer(scene.desk, socket_path=Path(sockets, "s"))
        with scene.serving():
            env = scene.workspace.environment(scene.server.url)
            launch = Launch(
                argv=scene.workspace.argv(),
                env={**env, "PYTHONPATH": str(checkout)},
                cwd=scene.workspace.root,
            )
            view = View(
                workspace=scene.workspace.root,
                home=scene.workspace.home,
                tmp=scene.workspace.tmp,
                read_only=agent.read_only,
                forwards=(Forward(scene.server.port, Path(sockets, "s")),),
            )
            exit_code = start_and_wait(scene, (sandbox or NoSandbox()).wrap(launch, view))
            hidden.rename(run / "ledger.jsonl")
            return Outcome(scene, exit_code)


def start_and_wait(scene: Scene, launch: Launch) -> int | None:
    agent = AgentProcess.start(
        launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        stdout=scene.paths.logs / "agent.stdout",
        stderr=scene.paths.logs / "agent.stderr",
        is_wrapped=launch.is_wrapped,
    )
    return agent.wait(remaining_s=lambda: 100.0, grace_s=1.0).exit_code


def hashes(scene: Scene) -> list[str]:
    return [event.content_hash for event in scene.events(SubmissionAccepted)]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorder]:
    with Scene(tmp_path / "one", make_spec(agent=CLI)).serving(baseline=False) as scene:
        yield Recorder(scene)


def test_a_run_is_done_again(tmp_path: Path, recorded: Recorder, shown_to_agents: Path) -> None:
    scene = recorded.scene
    recorded.bash("ls -l && cat instructions.md > /dev/null")
    recorded.write("code/train.py", TRAIN.format(value=30))
    recorded.bash("python code/train.py v1")
    recorded.bash(SUBMIT % "v1")
    recorded.bash("sed -i 's/VALUE = 30/VALUE = 20/' code/train.py")
    recorded.watch._record("change")
    # By the absolute path and the literal address that only the recorded run had.
    recorded.bash(f"cd {scene.workspace.root} && python {scene.workspace.code}/train.py v2")
    recorded.bash((SUBMIT % "v2").replace("$GRADING_SERVER_URL", scene.server.url))
    recorded.bash(f"curl -sf {scene.server.url}/time; echo {'x' * 50} > output/note.txt")

    outcome = replay(tmp_path / "two", scene.paths.root, checkout=shown_to_agents)
    assert outcome.exit_code == 0, (outcome.stdout, outcome.stderr, outcome.log)
    assert outcome.hashes == hashes(scene)
    report = outcome.report
    assert report.is_complete
    assert [sub.replayed for sub in report.submissions] == [{"alfworld": 30.0}, {"alfworld": 20.0}]
    assert [sub.by for sub in report.submissions] == ["command", "command"]
    assert report.recorded_baseline == report.replayed_baseline == {"alfworld": 5.0}
    assert {command.exit_code for command in report.commands} == {0}
    assert len(report.commands) == 7
    assert "VALUE = 20" in (outcome.code / "train.py").read_text()
    assert str(scene.workspace.root) not in outcome.log
    lines = outcome.stdout.splitlines()
    assert lines[-5] == "replay of r (claude_code)"
    assert lines[-2].split() == ["1", "alfworld", "output/v1", "30.00", "30.00", "+0.00"]


def test_a_sandbox_shows_enough_of_the_recorded_run(tmp_path: Path, recorded: Recorder) -> None:
    needs("bwrap")
    recorded.write("code/train.py", TRAIN.format(value=30))
    recorded.bash("python code/train.py v1")
    recorded.bash(SUBMIT % "v1")
    recorded.bash(f"ls -a {recorded.scene.paths.root} || true")
    outcome = replay(
        tmp_path / "two",
        recorded.scene.paths.root,
        checkout=ROOT,
        sandbox=make_sandbox(SandboxConfig(name="bwrap")),
    )
    assert outcome.exit_code == 0, (outcome.stdout, outcome.stderr, outcome.log)
    assert outcome.hashes == hashes(recorded.scene)
    listed = set(outcome.log.split()) & {"ledger.jsonl", "hidden", "logs", "workspace", "code.git"}
    assert listed == {"code.git"}


def test_what_the_agents_client_submitted_is_submitted_by_path(
    tmp_path: Path, recorded: Recorder, shown_to_agents: Path
) -> None:
    scene = recorded.scene
    recorded.write("code/train.py", TRAIN.format(value=31))
    recorded.bash("python code/train.py v1")
    # Not by a recorded command.
    env = {**os.environ, "GRADING_SERVER_URL": scene.server.url}
    subprocess.run(["bash", "-c", SUBMIT % "v1"], env=env, check=True, capture_output=True)
    subprocess.run(
        ["bash", "-c", (SUBMIT % "v1").replace("output/v1", "models/tiny")],
        env=env,
        check=True,
        capture_output=True,
    )
    outcome = replay(tmp_path / "two", scene.paths.root, checkout=shown_to_agents)
    assert outcome.exit_code == 0, (outcome.stdout, outcome.stderr, outcome.log)
    assert outcome.hashes == hashes(scene)
    assert [(sub.by, sub.replayed) for sub in outcome.report.submissions] == [
        ("replay", {"alfworld": 31.0}),
        ("replay", {"alfworld": 5.0}),
    ]


def test_background_training_that_submits_by_itself(
    tmp_path: Path, recorded: Recorder, shown_to_agents: Path
) -> None:
    scene = recorded.scene
    recorded.write("code/train.py", TRAIN.format(value=32))
    work = f"sleep 1; python code/train.py v1 && {SUBMIT % 'v1'}".replace("'", "'\\''")
    recorded.bash(f"nohup setsid sh -c '{work}' > output/log 2>&1 < /dev/null &")
    deadline = time.monotonic() + 30
    while not hashes(scene) and time.monotonic() < deadline:
        time.sleep(0.05)
    outcome = replay(tmp_path / "two", scene.paths.root, checkout=shown_to_agents)
    assert outcome.exit_code == 0, (outcome.stdout, outcome.stderr, outcome.log)
    assert [sub.by for sub in outcome.report.submissions] == ["command"]
    assert outcome.hashes == hashes(scene)


def test_where_nothing_tells_how_a_checkpoint_was_made_it_stops(
    tmp_path: Path, recorded: Recorder, shown_to_agents: Path
) -> None:
    scene = recorded.scene
    recorded.bash("echo I look around; ls code")
    scene.checkpoint("secret", value=50)
    recorded.bash(SUBMIT % "secret")
    outcome = replay(tmp_path / "two", scene.paths.root, checkout=shown_to_agents)
    assert outcome.exit_code == 1
    assert "submission 1 is of output/secret, which is not there" in outcome.stderr
    assert "1 failed" in outcome.stderr
    assert "stopped: submission 1" in outcome.stdout
    assert outcome.report.problem
    assert outcome.report.submissions == ()
    assert outcome.hashes == []


def test_each_task_of_a_multi_run_is_compared(tmp_path: Path, shown_to_agents: Path) -> None:
    tasks = ("alfworld", "gsm8k")
    one = Scene(tmp_path / "one", make_spec(*tasks, agent=CLI))
    with one.serving(baseline=False) as scene:
        recorder = Recorder(scene)
        recorder.write("code/train.py", TRAIN.format(value=33))
        recorder.bash("python code/train.py v1")
        one_task = (SUBMIT % "v1").replace("}", ', "task": "gsm8k"}')
        env = {**os.environ, "GRADING_SERVER_URL": scene.server.url}
        subprocess.run(["bash", "-c", one_task], env=env, check=True, capture_output=True)
        recorder.bash(SUBMIT % "v1")
    outcome = replay(tmp_path / "two", scene.paths.root, *tasks, checkout=shown_to_agents)
    assert outcome.exit_code == 0, (outcome.stdout, outcome.stderr, outcome.log)
    assert [sub.replayed for sub in outcome.report.submissions] == [
        {"gsm8k": 33.0},
        {"alfworld": 33.0, "gsm8k": 33.0},
    ]


SCRIPT = """
set -e
cd "$WORKSPACE"
python code/train.py "$(date +%N)-first"
for made in output/*-first; do NAME=$(basename "$made"); done
curl -sf -X POST "$GRADING_SERVER_URL/submit" -H 'Content-Type: application/json' \
  -d "{\\"model_path\\": \\"output/$NAME\\"}"
python -c 'import json, os; print(json.loads(os.environ["AGENT_SETTINGS"])["note"])' > output/note
"""


def test_an_agent_without_a_driver_is_run_again(tmp_path: Path, shown_to_agents: Path) -> None:
    script = tmp_path / "start.sh"
    train = TRAIN.format(value=34)
    script.write_text(f"cat > code/train.py <<'EOF'{train}EOF\n{SCRIPT}")
    agent = AgentConfig(name="command", argv=("bash", str(script)), settings={"note": "kept"})
    with Scene(tmp_path / "one", make_spec(agent=agent)).serving(baseline=False) as scene:
        Recorder(scene)
        launch = Launch(
            argv=scene.workspace.argv(),
            env=scene.workspace.environment(scene.server.url),
            cwd=scene.workspace.root,
        )
        assert start_and_wait(scene, launch) == 0
    outcome = replay(tmp_path / "two", scene.paths.root, checkout=shown_to_agents)
    assert outcome.exit_code == 0, (outcome.stdout, outcome.stderr, outcome.log)
    assert outcome.hashes == hashes(scene)
    [submission] = outcome.report.submissions
    assert (submission.by, submission.replayed) == ("command", {"alfworld": 34.0})
    assert (outcome.code.parent / "output" / "note").read_text() == "kept\n"


def test_it_says_what_it_lacks(tmp_path: Path) -> None:
    for settings, words in (({}, "names no recorded run"), ({"run": "/none"}, "cannot be read")):
        done = subprocess.run(
            [sys.executable, "-m", "rl_bench.agents.replay"],
            env={
                **os.environ,
                "AGENT_SETTINGS": json.dumps(settings),
                "WORKSPACE": str(tmp_path),
                "OUTPUT_DIR": str(tmp_path),
                "MODEL_PATH": str(tmp_path),
                "GRADING_SERVER_URL": "http://127.0.0.1:1/t",
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert words in done.stderr
