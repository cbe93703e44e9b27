"""Grading without an agent, on graders as a sweep has them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from actors.evaluation_loop import grade_each
from rl_bench.errors import GraderError
from rl_bench.evaluation import EvaluationRecord
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.grading_status import GradingStatus, Phase
from rl_bench.models.tiny import build_tiny
from tests.actors.grading_jobs import TASK, make_job

ROOT = Path(__file__).resolve().parents[2]


def job(task: str) -> GradeJob:
    config = TASK.model_copy(update={"name": task})
    return make_job(run_id=f"x/{task}", submission_id=None, task=config)


@dataclass
class Log:
    """Watches, and grades: task ``b`` cannot be graded."""

    told: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    num_running: int = 0
    most_running: int = 0

    def begin(self, job: GradeJob) -> None:
        self.told.append(f"{job.tasks[0].name} begins")

    def end(self, job: GradeJob, evaluation: Evaluation) -> None:
        self.told.append(f"{evaluation.task} {evaluation.score} {evaluation.failure}".strip())

    def tick(self, statuses: Sequence[GradingStatus]) -> None:
        self.seen += [str(status) for status in statuses]

    def look(self) -> list[GradingStatus]:
        done = len(self.told)
        return [GradingStatus(run_id="x", task="a", phase=Phase.PLAYING, done=done, total=9)]

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        await asyncio.sleep(0.01)
        self.num_running -= 1
        name = job.tasks[0].name
        if name == "b":
            raise GraderError("the engine died")
        return (Evaluation(task=name, score=50, num_items=1, num_errors=0, evaluator_version="1"),)


async def test_jobs_go_in_order_and_a_failure_is_a_verdict_without_a_score() -> None:
    log = Log()
    await grade_each(
        log.grade, [job(task) for task in "abc"], num_at_once=1, watcher=log, look=log.look
    )
    assert log.told == [
        "a begins",
        "a 50.0",
        "b begins",
        "b None GraderError: the engine died",
        "c begins",
        "c 50.0",
    ]
    assert log.most_running == 1
    assert log.seen[-1] == "6 of 9 episodes"


async def test_as_many_run_at_once_as_there_are_graders() -> None:
    log = Log()
    await grade_each(
        log.grade, [job(task) for task in "acde"], num_at_once=2, watcher=log, look=log.look
    )
    assert log.most_running == 2
    assert log.told[:2] == ["a begins", "c begins"]


@pytest.mark.ray
@pytest.mark.vllm
@pytest.mark.slow
def test_a_checkpoint_is_graded_from_the_command_line(tmp_path: Path) -> None:
    checkpoint = build_tiny(tmp_path / "checkpoint", seed=1)
    words = ["task=gsm8k_mini", "task.num_eval=8", "task.num_repeats=2", "name=mine"]
    words += [f"checkpoint={checkpoint}", f"paths.results={tmp_path}", f"paths.cache={tmp_path}"]

    done = subprocess.run(
        [sys.executable, "-m", "rl_bench.evaluate", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("gsm8k_mini  "))
    assert row.split()[1] == "8"
    assert "answered_percent" in row
    root = tmp_path / "evaluations" / "mine"
    (line,) = (root / "evaluations.jsonl").read_text().splitlines()
    record = EvaluationRecord.model_validate_json(line)
    assert record.checkpoint == str(checkpoint)
    assert len(record.evaluation.repeat_scores) == 2
    assert record.evaluation.noise_floor is not None
    items = pq.read_table(root / "items" / "gsm8k_mini.parquet")
    assert len(set(items["item_id"].to_pylist())) == items.num_rows == 8
    assert not _left_behind(str(tmp_path))

    again = subprocess.run(
        [sys.executable, "-m", "rl_bench.evaluate", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert again.returncode == 2
    assert f"error: {root} exists. Choose another name=" in again.stderr


def _left_behind(mark: str) -> list[str]:
    lines = (" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    return [line for line in lines if mark in line and str(os.getpid()) not in line]
