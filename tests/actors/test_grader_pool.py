"""The pool's order, sharing and retries, without a cluster."""

import asyncio
from pathlib import Path

import pytest

from actors.grader_pool import GraderPool
from rl_bench.config import DataSource, ModelConfig, TaskConfig
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob

MODEL = ModelConfig(name="m", kind="tiny")
TASK = TaskConfig(name="t", kind="gsm8k", level="L1", source=DataSource.BUILTIN, max_tokens=8)


def job(run_id: str, submission_id: int | None, content: str) -> GradeJob:
    return GradeJob(
        run_id=run_id,
        submission_id=submission_id,
        snapshot=Path(content),
        content_hash=content,
        tasks=(TASK,),
        model=MODEL,
    )


class RecordingGrader:
    """Grades in the order asked, one tick each; keeps who came when."""

    def __init__(self, *, failures: int = 0, error: Exception | None = None) -> None:
        self.seen: list[tuple[str, int | None]] = []
        self.failures = failures
        self.error = error or GraderError("engine died")
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, job: GradeJob) -> tuple[Evaluation, ...]:
        await self.gate.wait()
        self.seen.append((job.run_id, job.submission_id))
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        return (Evaluation(task="t", score=50.0, num_items=2, num_errors=0, evaluator_version="1"),)


async def test_baselines_first_then_runs_take_turns() -> None:
    grader = RecordingGrader()
    grader.gate.clear()
    pool = GraderPool([grader], num_retries=0)
    jobs = [job("first", 0, "warm")]
    jobs += [job("greedy", i, f"g{i}") for i in range(3)] + [job("modest", 0, "m0")]
    jobs += [job("late", None, "base")]
    waiting = []
    for each in jobs:
        waiting.append(asyncio.create_task(pool.grade(each)))
        await asyncio.sleep(0.01)
    grader.gate.set()
    await asyncio.gather(*waiting)
    assert grader.seen == [
        ("first", 0),
        ("late", None),
        ("greedy", 0),
        ("modest", 0),
        ("greedy", 1),
        ("greedy", 2),
    ]


async def test_identical_content_is_graded_once_across_runs() -> None:
    grader = RecordingGrader()
    pool = GraderPool([grader], num_retries=0)
    verdicts = await asyncio.gather(*(pool.grade(job(f"r{i}", 0, "same")) for i in range(10)))
    assert len(grader.seen) == 1
    assert [v[0].score for v in verdicts] == [50.0] * 10
    assert sum(v[0].reused for v in verdicts) == 9


async def test_infrastructure_failure_is_retried_and_never_remembered() -> None:
    grader = RecordingGrader(failures=1)
    pool = GraderPool([grader], num_retries=1)
    assert (await pool.grade(job("r", 0, "c")))[0].score == 50.0
    assert len(grader.seen) == 2

    dead = RecordingGrader(failures=2)
    pool = GraderPool([dead], num_retries=1)
    with pytest.raises(GraderError):
        await pool.grade(job("r", 0, "c"))
    assert (await pool.grade(job("r", 0, "c")))[0].score == 50.0


async def test_a_bad_checkpoint_fails_alone_and_is_not_retried() -> None:
    grader = RecordingGrader(failures=1, error=SubmissionError("NaN", reason="non_finite"))
    pool = GraderPool([grader], num_retries=3)
    with pytest.raises(SubmissionError):
        await pool.grade(job("r", 0, "bad"))
    assert (await pool.grade(job("r", 1, "good")))[0].score == 50.0
    assert len(grader.seen) == 2
