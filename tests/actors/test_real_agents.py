"""Whole runs of real CLIs, as a user starts them, driven by the scripted driver."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rl_bench.events import (
    AgentEvent,
    AgentExited,
    AgentStarted,
    CodeChanged,
    DriverCall,
    Event,
    RunEnd,
    RunFinished,
    SandboxReady,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.paths import RunPaths, SweepPaths
from tests.rl_bench.agents.cli_scene import AGENTS_DIR, installed, is_installed

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    """One sweep of all whose CLIs are here, to its end; it must succeed."""
    root = tmp_path_factory.mktemp("real")
    here = [name for name in ("claude_code", "codex") if is_installed(name)]
    blocks = [f"{{agents: [{','.join(here)}], drivers: [scripted_smoke]}}"]
    if "claude_code" in here:
        blocks.append("{agents: [claude_code], drivers: [scripted_background]}")
    words = (
        *("task=gsm8k_mini", "model=tiny", "budget=quick", "sweep.name=real"),
        f"sweep.blocks=[{','.join(blocks)}]",
        *(f"paths.results={root}/results", f"paths.agents={AGENTS_DIR}"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "rl_bench.sweep", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return SweepPaths(root / "results" / "real")


@pytest.fixture
def run_of(request: pytest.FixtureRequest) -> Callable[[str, str], RunPaths]:
    """The run of an agent with a driver; the test skips, or fails, where the CLI is not."""

    def run_of(agent: str, driver: str) -> RunPaths:
        installed(agent)
        paths: SweepPaths = request.getfixturevalue("sweep")
        [folder] = paths.runs.glob(f"{agent}-{driver}-*")
        return RunPaths(folder)

    return run_of


def events(run: RunPaths, *kinds: type[Event]) -> list[Event]:
    return [entry.event for entry in read_ledger(run.ledger) if isinstance(entry.event, kinds)]


@pytest.mark.parametrize("name", ["claude_code", "codex"])
def test_a_whole_run(name: str, run_of: Callable[[str, str], RunPaths]) -> None:
    agent = installed(name)

    run = run_of(name, "scripted_smoke")

    [finished] = events(run, RunFinished)
    assert isinstance(finished, RunFinished)
    assert finished.end is RunEnd.COMPLETED, finished.detail
    assert len(events(run, SubmissionGraded)) == 2
    accepted = events(run, SubmissionAccepted)
    assert all(isinstance(each, SubmissionAccepted) and each.code_revision for each in accepted)
    assert events(run, CodeChanged)
    assert events(run, SandboxReady)
    [started] = events(run, AgentStarted)
    assert isinstance(started, AgentStarted)
    assert started.argv[0].endswith(agent.binary)
    [exited] = events(run, AgentExited)
    assert isinstance(exited, AgentExited)
    assert exited.final_event
    assert not exited.killed

    told = [each for each in events(run, AgentEvent) if isinstance(each, AgentEvent)]
    assert sum("/submit" in each.text for each in told if each.kind == "tool_call") == 2
    assert told[-1].kind == "result"
    calls = [each for each in events(run, DriverCall) if isinstance(each, DriverCall)]
    answered = [each for each in calls if each.route != "/"]
    assert len(answered) >= 7
    assert all(each.status == 200 and each.failure is None for each in answered)
    assert all((each.cost_usd or 0) > 0 for each in answered if each.input_tokens)

    sweep = SweepPaths(run.root.parents[1])
    [row] = pq.read_table(sweep.tables / "runs" / f"{run.root.name}.parquet").to_pylist()
    assert (row["agent"], row["end"], row["num_graded"]) == (name, "completed", 2)
    # Nothing of the driver's own key is left anywhere.
    for path in (*run.root.rglob("*.jsonl"), *run.logs.iterdir(), *run.workspace.rglob("*")):
        if path.is_file() and not path.is_symlink():
            assert b"sk-scripted-" not in path.read_bytes(), path


def test_training_that_outlives_the_session_is_waited_for(
    run_of: Callable[[str, str], RunPaths],
) -> None:
    run = run_of("claude_code", "scripted_background")

    sessions = [each for each in events(run, AgentStarted) if isinstance(each, AgentStarted)]
    assert len(sessions) >= 2
    assert "--continue" in sessions[1].argv
    assert len(events(run, SubmissionGraded)) >= 1
    [finished] = events(run, RunFinished)
    assert isinstance(finished, RunFinished)
    assert finished.end is RunEnd.COMPLETED, finished.detail
