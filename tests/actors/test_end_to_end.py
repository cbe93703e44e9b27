"""The whole path as a user starts it: a real sweep in a process of its own, killed and resumed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from rl_bench.events import (
    BaselineGraded,
    Entry,
    RunEnd,
    RunFinished,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SUBMIT = (
    'curl -sS -H "Content-Type: application/json" '
    '-d "{\\"model_path\\": \\"$MODEL_PATH\\"}" $GRADING_SERVER_URL/submit'
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Overrides that keep a sweep's results and cache out of the user's."""
    root = tmp_path_factory.mktemp("sweeps")
    return f"paths.results={root}/results", f"paths.cache={root}/cache"


def command(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "rl_bench.sweep", *overrides]


def sweep(*overrides: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*overrides), cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )


def results(folders: tuple[str, ...], name: str) -> Path:
    return Path(folders[0].partition("=")[2]) / name


def entries(run: Path) -> list[Entry]:
    return read_ledger(run / "ledger.jsonl")


def wait_for(condition: Callable[[], bool], *, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


def processes_with(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if mark in words and process.pid != os.getpid():
            found.append(process)
    return found


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_smoke_sweep_runs_to_its_tables_and_is_not_repeated(folders: tuple[str, ...]) -> None:
    overrides = ("+experiment=smoke", *folders)
    done = sweep(*overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = results(folders, "smoke")

    runs = pq.read_table(folder / "tables" / "runs").to_pylist()
    assert {row["agent"] for row in runs} == {"noop", "copy_base", "reference_smoke"}
    assert all(row["end"] == "completed" for row in runs)
    by_agent = {(row["agent"], row["task"]): row for row in runs if row["mode"] != "multi"}
    multi = {row["task"]: row for row in runs if row["mode"] == "multi"}
    assert set(multi) == {"gsm8k_mini", "alfworld_mini"}
    assert len({row["run_id"] for row in multi.values()}) == 1, "all tasks in one run"
    assert all(row["num_graded"] >= 1 for row in multi.values())
    for task in multi:
        baselines = {row["baseline_score"] for row in runs if row["task"] == task}
        assert len(baselines) == 1, "one model, one task, one grader: one baseline"
    assert by_agent["copy_base", "gsm8k_mini"]["improvement"] == 0
    assert by_agent["noop", "gsm8k_mini"]["best_score"] is None
    assert by_agent["reference_smoke", "gsm8k_mini"]["num_graded"] >= 1

    submissions = pq.read_table(folder / "tables" / "submissions").to_pylist()
    items = pq.read_table(folder / "tables" / "items").to_pylist()
    graded = [row for row in submissions if row["score"] is not None]
    assert graded
    for row in graded:
        mine = [
            item
            for item in items
            if (item["run_id"], item["submission_id"], item["task"])
            == (row["run_id"], row["submission_id"], row["task"])
        ]
        assert len(mine) == row["num_items"] > 0
        mean = 100 * sum(item["score"] for item in mine) / len(mine)
        assert row["score"] == pytest.approx(mean)
    assert list((folder / "wandb").glob("offline-run-*"))

    again = sweep(*overrides)
    assert again.returncode == 0
    assert "finished before" in again.stdout
    assert [e.seq for e in entries(next((folder / "runs").iterdir()))][-1] > 0

    changed = sweep(*overrides, "budget.wall_clock_s=999")
    assert changed.returncode == 2
    assert "budget.wall_clock_s" in changed.stderr


def test_kill_9_loses_no_submission_leaves_no_orphan_and_resumes(
    folders: tuple[str, ...], tmp_path: Path
) -> None:
    mark, flag = f"31415.{os.getpid()}", tmp_path / "second_time"
    script = tmp_path / "start.sh"
    script.write_text(
        f"{SUBMIT}\n"
        f"if [ -e {flag} ]; then exit 0; fi\n"
        f"touch {flag}\n"
        f"(setsid nohup sleep {mark} >/dev/null 2>&1 &)\n"
        f"sleep {mark}\n"
    )
    overrides = (
        "agent=command",
        "sandbox=none",  # its flag lies outside the workspace
        f"agent.argv=[bash,{script}]",
        "task=gsm8k_mini",
        "task.num_eval=12",
        "budget=quick",
        "sweep.name=killed",
        *folders,
    )
    with (tmp_path / "sweep.log").open("wb") as log:
        driver = subprocess.Popen(command(*overrides), cwd=ROOT, stdout=log, stderr=log)

    def has_begun_to_sleep() -> bool:
        assert driver.poll() is None, (tmp_path / "sweep.log").read_text()
        return len(processes_with(f"sleep {mark}")) >= 2

    try:
        wait_for(has_begun_to_sleep, limit_s=240)
        [run] = (results(folders, "killed") / "runs").iterdir()
        before = entries(run)
        [accepted] = [e.event for e in before if isinstance(e.event, SubmissionAccepted)]
        children = psutil.Process(driver.pid).children(recursive=True)
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not processes_with(f"sleep {mark}"), limit_s=30)

    resumed = sweep(*overrides)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    # Ray's own agents look for their lost head for a minute before they give up.
    wait_for(lambda: not [child for child in children if lives(child)], limit_s=150)
    after = entries(run)
    assert after[: len(before)] == before, "what was recorded stays as it was"
    events = [entry.event for entry in after]
    assert [e.attempt for e in events if isinstance(e, RunStarted)] == [0, 1]
    assert len([e for e in events if isinstance(e, BaselineGraded)]) == 2
    assert [e.end for e in events if isinstance(e, RunFinished)] == [RunEnd.COMPLETED]
    assert accepted.content_hash in {
        e.content_hash for e in events[len(before) :] if isinstance(e, SubmissionAccepted)
    }
    assert [e for e in events if isinstance(e, SubmissionGraded)]
    rows = pq.read_table(results(folders, "killed") / "tables" / "submissions").to_pylist()
    assert sorted(row["attempt"] for row in rows) == [0, 1], "the killed attempt stays in the table"


def test_agents_that_fail_in_every_way_leave_the_others_alone(
    folders: tuple[str, ...], tmp_path: Path
) -> None:
    script = tmp_path / "start.sh"
    broken = tmp_path / "nan.py"
    broken.write_text(
        "import os, shutil, sys\n"
        "from safetensors.torch import load_file, save_file\n"
        "base, out = os.environ['MODEL_PATH'], os.environ['OUTPUT_DIR'] + '/nan'\n"
        "shutil.copytree(base, out)\n"
        "os.chmod(out, 0o755); os.chmod(out + '/model.safetensors', 0o644)\n"
        "weights = load_file(out + '/model.safetensors')\n"
        "name = sorted(weights)[-1]\n"
        "weights[name][0] = float('nan')\n"
        "save_file(weights, out + '/model.safetensors', metadata={'format': 'pt'})\n"
    )
    script.write_text(
        f"{sys.executable} {broken}\n"
        'post() { curl -s -o /dev/null -w "%{http_code} " -H "Content-Type: application/json" '
        '-d "{\\"model_path\\": \\"$1\\"}" $GRADING_SERVER_URL/submit; }\n'
        "post /etc; post nowhere; post output/nan; post $MODEL_PATH; exit 3\n"
    )
    done = sweep(
        "agent=command",
        "sandbox=none",  # its flag lies outside the workspace
        f"agent.argv=[bash,{script}]",
        "task=alfworld_mini",
        "task.num_eval=6",
        "budget=quick",
        "sweep.name=broken",
        *folders,
    )
    assert done.returncode == 0, "an agent's own failure is a result: " + done.stdout + done.stderr
    [run] = (results(folders, "broken") / "runs").iterdir()
    assert (run / "logs" / "agent.stdout").read_text().split() == ["400", "400", "422", "200"]
    [row] = pq.read_table(results(folders, "broken") / "tables" / "runs").to_pylist()
    assert row["end"] == "agent_error"
    assert row["num_rejected"] == 2
    assert row["num_failed"] == 1
    assert row["improvement"] == 0
    assert json.loads((run / "spec.json").read_text())["agent"]["name"] == "command"
