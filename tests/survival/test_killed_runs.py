"""A run's process is killed at random moments of a dozen attempts: nothing of them is lost.

Everything but the grader is real: the process, its HTTP server, its supervisor, the agent. Moments
are seeded, and spread over the whole of an attempt by its own length.
"""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.chaos_sweep import AGENT, Census, lives
from benchmarks.invariants import breaches, count
from rl_bench.config import AgentConfig, BudgetConfig, SinkConfig, WandbConfig
from rl_bench.events import Note, RunEnd
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from tests.rl_bench.grading_scene import WordTask, make_spec
from tests.rl_bench.run_scene import make_run

ROOT = Path(__file__).resolve().parents[2]
NUM_KILLS = 12

# Imports once, then forks a process for each attempt, and kills all but the last.
ATTEMPTS = f"""
import asyncio, os, pathlib, random, signal, sys, time
import rl_bench.run
from benchmarks.invariants import attempts_of
from rl_bench.config import AgentConfig, AuditConfig
from rl_bench.events import Evaluation, Item
from rl_bench.paths import SweepPaths
from tests.rl_bench.grading_scene import WordTask, make_spec
from tests.rl_bench.run_scene import make_run

root, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
paths = SweepPaths(root / "results" / "s")
rl_bench.run.make_task = lambda config, cache: WordTask(config.name)

async def grade(job):
    await asyncio.sleep(0.2)
    [task] = job.tasks
    score = int(job.content_hash[:4], 16) % 100
    item = Item(
        item_id="i", status="ok", score=score / 100, num_steps=1, num_tokens=1, duration_s=0
    )
    return (Evaluation(task=task.name, score=score, num_items=1, num_errors=0,
                       evaluator_version="1", items=(item,)),)

def attempt():
    ledger = paths.run("r").ledger
    number = len(attempts_of(ledger, whole=False)) if ledger.exists() else 0
    agent = AgentConfig(name="t", argv=({sys.executable!r}, {str(AGENT)!r}, "3"))
    run = make_run(make_spec(agent=agent), root, paths=paths, grade=grade, value=1.0)
    return run.execute(attempt=number, is_last=False)

def forked():
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os._exit(0 if attempt().value == "completed" else 1)
    return pid

started = time.monotonic()
assert os.waitstatus_to_exitcode(os.waitpid(forked(), 0)[1]) == 0
length = time.monotonic() - started
paths.run("r").root.rename(root / "measured")
(root / "answers").rename(root / "measured" / "answers")
for _ in range({NUM_KILLS}):
    pid = forked()
    time.sleep(chance.uniform(0.0, length))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(os.waitpid(forked(), 0)[1]) == 0
"""


# In its first attempt it leaves a process of its own session, which writes into its output folder.
LEAVING = """
import os, pathlib, sys, time
output, begun = pathlib.Path(os.environ["OUTPUT_DIR"]), pathlib.Path(sys.argv[1])
if not begun.exists():
    if os.fork() == 0:
        os.setsid()
        begun.write_text(f"{os.getpid()} {os.getppid()}")
        for _ in range(6000):
            output.mkdir(parents=True, exist_ok=True)
            (output / "of_the_first").touch()
            time.sleep(0.01)
    time.sleep(60)
time.sleep(1)
sys.exit((output / "of_the_first").exists())
"""


def test_what_a_killed_run_and_supervisor_left_does_not_write_into_the_next_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_bench.run.make_task", lambda config, cache: WordTask(config.name))
    begun = tmp_path / "begun"
    argv = (sys.executable, "-c", LEAVING, str(begun))
    spec = make_spec(
        agent=AgentConfig(name="t", argv=argv, expects_submissions=False),
        budget=BudgetConfig(name="t", wall_clock_s=120),
    )
    run = make_run(spec, tmp_path)
    child = multiprocessing.get_context("fork").Process(
        target=run.execute, kwargs={"attempt": 0, "is_last": False}
    )
    child.start()
    deadline = time.monotonic() + 60
    while not (begun.exists() and begun.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    left, agent = (psutil.Process(int(pid)) for pid in begun.read_text().split())
    agent.parent().kill()  # its supervisor
    child.kill()
    child.join()
    assert lives(left), "nobody is there to end it"

    assert run.execute(attempt=1, is_last=True) is RunEnd.COMPLETED

    assert not lives(left)
    notes = [e.event for e in read_ledger(SweepPaths(tmp_path / "s").run("r").ledger)]
    assert any(isinstance(note, Note) and "earlier attempt" in note.message for note in notes)


@pytest.mark.timeout(280)
@pytest.mark.parametrize("seed", [0])
def test_no_moment_of_a_kill_loses_anything(seed: int, tmp_path: Path) -> None:
    census = Census(tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", ATTEMPTS, str(tmp_path), str(seed)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert census.left_after(20) == []
    finally:
        census.end_all()
    paths, answers = SweepPaths(tmp_path / "results" / "s"), tmp_path / "answers" / "s"
    sink = SinkConfig(name="t", flush_interval_s=60, wandb=WandbConfig(mode="disabled"))
    Recorder(paths, config=sink).close()

    found = breaches(paths, answers=answers, run_ids=["r"])
    assert not any(found.values()), found
    counts = count(paths, answers=answers, run_ids=["r"])
    assert counts.num_attempts > NUM_KILLS / 2
    assert counts.num_accepted > 3
