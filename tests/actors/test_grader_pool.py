"""The pool's order, sharing, retries and help, without a cluster and in simulated time."""

import asyncio
from pathlib import Path

import pytest

from actors import grader_pool
from actors.grader_pool import GraderPool
from actors.grader_roster import Demand
from actors.shared_requests import NOTHING, Offer
from benchmarks.simulated_time import run_simulated, simulated_s
from rl_bench.config import GraderConfig
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from tests.actors.grading_jobs import make_job


def job(run_id: str, submission_id: int | None, content: str) -> GradeJob:
    return make_job(content, run_id=run_id, submission_id=submission_id, snapshot=Path(content))


class Link:
    """A grader that takes ``seconds`` a job; keeps who came when."""

    def __init__(self, name: str = "g0", *, seconds: float = 1.0) -> None:
        self.name = name
        self.seconds = seconds
        self.seen: list[tuple[str, int | None]] = []
        self.failures = 0
        self.error: Exception = GraderError("engine died")
        self.score: float | None = 50.0
        self.recovery_s = 0.0
        self.left = NOTHING
        self.helped: list[str] = []
        self.recalled_at: list[float] = []
        self.stop = asyncio.Event()

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        self.seen.append((job.run_id, job.submission_id))
        await asyncio.sleep(self.seconds)
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        return (
            Evaluation(
                task="t", score=self.score, num_items=2, num_errors=0, evaluator_version="1"
            ),
        )

    async def recover(self) -> None:
        await asyncio.sleep(self.recovery_s)

    async def offer(self) -> Offer:
        return self.left

    async def help(self, job: GradeJob, owner: str) -> None:
        self.helped.append(owner)
        self.stop.clear()
        await self.stop.wait()
        await asyncio.sleep(5.0)  # the part that it has

    async def recall(self) -> None:
        self.recalled_at.append(simulated_s())
        self.stop.set()


def make_pool(*links: Link, num_retries: int = 0, max_graders: int | None = None) -> GraderPool:
    known = {link.name: link for link in links}
    config = GraderConfig(
        name="g",
        num_graders=len(links),
        max_graders=max_graders,
        num_retries=num_retries,
        grow_after_s=60.0,
        shrink_after_s=600.0,
    )
    return GraderPool(tuple(known), connect=known.__getitem__, config=config, clock=simulated_s)


def test_baselines_first_then_the_run_that_has_had_least() -> None:
    async def scene() -> None:
        link = Link()
        pool = make_pool(link)
        jobs = [job("first", 0, "warm")]
        jobs += [job("greedy", i, f"g{i}") for i in range(3)] + [job("modest", 0, "m0")]
        jobs += [job("late", None, "base")]
        await asyncio.gather(*map(pool.grade, jobs))
        assert link.seen == [
            ("first", 0),
            ("late", None),
            ("greedy", 0),
            ("modest", 0),
            ("greedy", 1),
            ("greedy", 2),
        ]

    run_simulated(scene())


def test_identical_content_is_graded_once_while_it_waits_is_graded_and_is_done() -> None:
    async def scene() -> None:
        link = Link()
        pool = make_pool(link)
        busy = asyncio.create_task(pool.grade(job("other", 0, "else")))
        queued = [asyncio.create_task(pool.grade(job(f"r{i}", 0, "same"))) for i in range(5)]
        await asyncio.sleep(1.5)
        assert link.seen == [("other", 0), ("r0", 0)]
        in_flight = await pool.grade(job("r5", 0, "same"))
        verdicts = [await each for each in queued]
        finished = await pool.grade(job("r6", 0, "same"))
        await busy
        assert len(link.seen) == 2
        assert [v[0].reused for v in verdicts] == [False, True, True, True, True]
        assert (in_flight[0].reused, in_flight[0].queue_s) == (True, 0.5)
        assert (finished[0].reused, finished[0].queue_s, finished[0].score) == (True, 0.0, 50.0)

    run_simulated(scene())


def test_verdicts_that_were_not_asked_for_longest_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        link = Link()
        pool = make_pool(link)
        await pool.grade(job("r", 1, "c1"))
        monkeypatch.setattr(grader_pool, "MAX_REMEMBERED_BYTES", 2 * pool.remembered_bytes)
        for content in ("c2", "c1", "c3"):
            await pool.grade(job("r", 2, content))
        again = [(await pool.grade(job("r", 3, content)))[0].reused for content in ("c1", "c3")]
        assert again == [True, True]
        assert not (await pool.grade(job("r", 3, "c2")))[0].reused

    run_simulated(scene())


def test_a_failure_is_retried_and_never_remembered() -> None:
    async def scene() -> None:
        link = Link()
        link.failures = 1
        pool = make_pool(link, num_retries=1)
        assert (await pool.grade(job("r", 0, "c")))[0].score == 50.0
        assert len(link.seen) == 2

        dead = Link()
        dead.failures = 2
        pool = make_pool(dead, num_retries=1)
        with pytest.raises(GraderError):
            await pool.grade(job("r", 0, "c"))
        assert (await pool.grade(job("r", 0, "c")))[0].score == 50.0

        void = Link()
        void.score = None
        pool = make_pool(void)
        await pool.grade(job("r", 0, "c"))
        void.score = 50.0
        assert (await pool.grade(job("r", 0, "c")))[0].score == 50.0

    run_simulated(scene())


def test_another_grader_takes_a_failed_job_without_waiting_for_the_first_to_recover() -> None:
    async def scene() -> None:
        bad, good = Link("bad"), Link("good")
        bad.failures, bad.recovery_s = 1, 100.0
        pool = make_pool(bad, good, num_retries=1)
        await pool.grade(job("r", 0, "c"))
        assert (bad.seen, good.seen) == ([("r", 0)], [("r", 0)])
        assert simulated_s() == 2.0
        for i in range(1, 4):
            await pool.grade(job("r", i, f"c{i}"))
        assert len(bad.seen) == 1, "it has not recovered"

    run_simulated(scene())


def test_a_bad_checkpoint_fails_alone_and_is_not_retried() -> None:
    async def scene() -> None:
        link = Link()
        link.failures, link.error = 1, SubmissionError("NaN", reason="non_finite")
        pool = make_pool(link, num_retries=3)
        with pytest.raises(SubmissionError):
            await pool.grade(job("r", 0, "bad"))
        assert (await pool.grade(job("r", 1, "good")))[0].score == 50.0
        assert len(link.seen) == 2

    run_simulated(scene())


def test_what_a_lost_run_waited_for_is_dropped_unless_another_waits_too() -> None:
    async def scene() -> None:
        link = Link(seconds=10.0)
        pool = make_pool(link)
        tasks = {
            name: asyncio.create_task(pool.grade(each))
            for name, each in {
                "in flight": job("gone", 0, "c0"),
                "alone": job("gone", 1, "c1"),
                "shared": job("gone", 2, "c2"),
                "other": job("alive", 0, "c2"),
            }.items()
        }
        await asyncio.sleep(1.0)
        await pool.withdraw("gone")
        assert (await tasks["other"])[0].score == 50.0
        assert link.seen == [("gone", 0), ("alive", 0)], "from the living run's own snapshot"
        with pytest.raises(GraderError, match="nobody waits"):
            await tasks["alone"]
        assert (await pool.grade(job("late", 0, "c0")))[0].reused, "its grading was worth ending"
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    run_simulated(scene())


def test_a_caller_that_is_cancelled_takes_its_waiting_job_along() -> None:
    async def scene() -> None:
        link = Link(seconds=10.0)
        pool = make_pool(link)
        first = asyncio.create_task(pool.grade(job("r", 0, "c0")))
        second = asyncio.create_task(pool.grade(job("r", 1, "c1")))
        await asyncio.sleep(1.0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await first
        await asyncio.sleep(20.0)
        assert link.seen == [("r", 0)]

    run_simulated(scene())


def test_an_idle_grader_helps_until_a_job_comes() -> None:
    async def scene() -> None:
        owner, helper = Link("g0", seconds=100.0), Link("g1", seconds=1.0)
        owner.left = Offer(num_items=1000, left_s=90.0)
        pool = make_pool(owner, helper)
        warm = [pool.grade(job("r", i, f"w{i}")) for i in range(2)]
        await asyncio.gather(*warm)
        big = asyncio.create_task(pool.grade(job("big", 0, "c")))
        await asyncio.sleep(10.0)
        assert helper.helped == ["g0"]
        began = simulated_s()
        await pool.grade(job("small", 0, "d"))
        assert helper.recalled_at == [began]
        assert simulated_s() - began == 6.0, "the rest of a part, and itself"
        await asyncio.sleep(5.0)
        assert helper.helped == ["g0", "g0"]
        await big

    run_simulated(scene())


def test_a_pool_that_was_started_again_learns_of_later_graders_and_lets_them_go() -> None:
    async def scene() -> None:
        links = {name: Link(name, seconds=100.0) for name in ("g0", "g1")}
        config = GraderConfig(name="g", num_graders=1, max_graders=2)
        pool = GraderPool(["g0"], connect=links.__getitem__, config=config, clock=simulated_s)
        jobs = [asyncio.create_task(pool.grade(job("r", i, f"c{i}"))) for i in range(3)]
        await asyncio.sleep(61.0)
        assert await pool.tend(["g0"]) == Demand(wants_more=True, released=(), notes=())
        assert (await pool.tend(["g0", "g1"])).wants_more is False
        await asyncio.gather(*jobs)
        assert (len(links["g0"].seen), len(links["g1"].seen)) == (2, 1)
        await asyncio.sleep(600.0)
        assert (await pool.tend(["g0", "g1"])).released == ("g1",)
        await pool.tend(["g0"])
        await asyncio.gather(pool.grade(job("r", 8, "c8")), pool.grade(job("r", 9, "c9")))
        assert len(links["g1"].seen) == 1

    run_simulated(scene())
