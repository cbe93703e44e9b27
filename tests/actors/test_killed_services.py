"""Each service of a live sweep is killed in the middle of its work: the sweep ends, and truly."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from rl_bench.events import (
    RunEnd,
    RunFinished,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.sinks.parquet import rebuild

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = (
    r"ray::RolloutWorker\b",
    r"VLLM::EngineCore",
    r"ray::Recorder\b",
    r"ray::Grader(\.|$)",
    r"ray::GraderPool\b",
)
"""Killed one after the other, each while a submission is being graded; a run actor comes last."""

# Submits copies of the base model that differ in a note: each is graded anew, to the same score.
AGENT = """
import os, pathlib, shutil, sys, time
import httpx
first, last, then_sleep = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
flag = pathlib.Path(sys.argv[4])
if flag.exists():
    first = last = last + 1
    then_sleep = ""
flag.touch()
output = pathlib.Path(os.environ["OUTPUT_DIR"])
for i in range(first, last + 1):
    shutil.copytree(os.environ["MODEL_PATH"], output / f"m{i}")
    (output / f"m{i}").chmod(0o755)
    (output / f"m{i}" / "notes.txt").write_text(str(i))
    while True:
        try:
            answer = httpx.post(
                os.environ["GRADING_SERVER_URL"] + "/submit",
                json={"model_path": f"output/m{i}"}, timeout=300,
            )
        except httpx.HTTPError:
            time.sleep(0.2)
            continue
        if answer.status_code == 200:
            break
        time.sleep(0.5)
if then_sleep:
    time.sleep(600)
"""


def events_of(run: Path) -> list[object]:
    ledger = run / "ledger.jsonl"
    return [entry.event for entry in read_ledger(ledger)] if ledger.exists() else []


def wait_for(condition: Callable[[], bool], driver: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert driver.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def kill(driver: "subprocess.Popen[bytes]", pattern: str) -> None:
    found = []
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            title = " ".join(process.cmdline()).strip()
        except psutil.Error:
            continue
        if re.match(pattern, title):
            found.append(process)
    assert found, f"no process {pattern}"
    for process in found:
        process.kill()


def count(run: Path, kind: type) -> int:
    return sum(isinstance(event, kind) for event in events_of(run))


def has_accepted(run: Path, number: int) -> bool:
    return count(run, SubmissionAccepted) == number


def test_every_service_may_be_killed(tmp_path: Path) -> None:
    agent, log, flag = tmp_path / "agent.py", tmp_path / "log", tmp_path / "flag"
    agent.write_text(AGENT)
    results = tmp_path / "results"
    number = len(VICTIMS)
    argv = f"agent.argv=[{sys.executable},{agent},'1','{number}',sleep,{flag}]"
    command = [
        *(sys.executable, "-m", "rl_bench.sweep", "agent=command", argv),
        *("task=alfworld_mini", "task.num_eval=8", "task.num_train=20", "task.max_steps=20"),
        # Without a sandbox: its flag lies outside the workspace.
        *("sandbox=none", "budget.wall_clock_s=500"),
        *("sweep.name=killed", f"paths.results={results}"),
    ]
    with log.open("wb") as out:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    paths = SweepPaths(results / "killed")
    try:
        wait_for(lambda: paths.runs.is_dir() and any(paths.runs.iterdir()), driver, log)
        [run] = paths.runs.iterdir()
        for i, victim in enumerate(VICTIMS, start=1):
            wait_for(partial(has_accepted, run, i), driver, log)
            kill(driver, victim)
        wait_for(lambda: graded_ids(run) == set(range(1, number + 1)), driver, log)
        kill(driver, r"ray::RunActor\b")
        assert driver.wait(timeout=200) == 0, log.read_text()
    finally:
        if driver.poll() is None:
            driver.terminate()
            driver.wait(timeout=60)
    check_truth(paths, run, number=number)
    assert "Traceback" not in log.read_text()


def graded_ids(run: Path) -> set[int]:
    return {
        event.submission_id
        for event in events_of(run)
        if isinstance(event, SubmissionGraded)
        and all(verdict.score is not None for verdict in event.evaluations)
    }


def check_truth(paths: SweepPaths, run: Path, *, number: int) -> None:
    """Nothing lost, nothing twice, and the tables say what the ledger says."""
    events = events_of(run)
    assert [e.attempt for e in events if isinstance(e, RunStarted)] == [0, 1]
    ends = [(e.end, e.final) for e in events if isinstance(e, RunFinished)]
    assert ends == [(RunEnd.INFRA_ERROR, False), (RunEnd.COMPLETED, True)]
    accepted = [e.submission_id for e in events if isinstance(e, SubmissionAccepted)]
    assert accepted == [*range(1, number + 1), 1], "the second attempt counts from one"
    scored = [
        e.submission_id
        for e in events
        if isinstance(e, SubmissionGraded) and e.evaluations[0].score is not None
    ]
    assert scored == accepted, "one score each, in order"

    [row] = pq.read_table(paths.tables / "runs").to_pylist()
    assert (row["end"], row["num_submissions"], row["improvement"]) == ("completed", 1, 0)
    before = tables(paths)
    rebuild(paths)
    assert tables(paths) == before, "live tables are what the ledger makes"
    assert {r["num_errors"] for r in before["submissions"] if r["attempt"] == 1} == {0}


def tables(paths: SweepPaths) -> dict[str, list[dict[str, object]]]:
    names = ("runs", "submissions", "items", "events")
    return {name: pq.read_table(paths.tables / name).to_pylist() for name in names}
