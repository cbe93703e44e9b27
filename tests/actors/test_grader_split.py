"""One static set answered by several graders: the same items, whatever helpers do."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.grader import Grader
from actors.shared_requests import Part
from benchmarks.simulated_time import run_simulated, simulated_s
from rl_bench.config import GraderConfig, JudgeConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    ignore_completion,
)
from rl_bench.errors import GraderError
from rl_bench.events import Evaluation
from rl_bench.grading_status import OnItem
from rl_bench.judges.base import Judge
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import Episode, ItemOutcome
from rl_bench.tasks.registry import make_task
from tests.actors.grading_jobs import GENERATED, make_job

NUM_SEQS = 4
NUM_ITEMS = 104
JOB = make_job(task=GENERATED.model_copy(update={"num_eval": NUM_ITEMS}))


class SlotEngine:
    """Answers with a function of the prompt; `NUM_SEQS` at a time, each in ``item_s``."""

    def __init__(self) -> None:
        self.item_s = 1.0
        self.slots = asyncio.Semaphore(NUM_SEQS)
        self.num_waiting = 0
        self.most_waiting = 0
        self.num_answered = 0
        self.error: Exception | None = None

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        return LoadReport(kind=LoadKind.WARM, seconds=0.0)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        async def one(index: int, request: GenerationRequest) -> Completion:
            self.num_waiting += 1
            self.most_waiting = max(self.most_waiting, self.num_waiting)
            try:
                async with self.slots:
                    await asyncio.sleep(self.item_s)
            finally:
                self.num_waiting -= 1
            if self.error is not None:
                raise self.error
            self.num_answered += 1
            said = sum(map(ord, str(request.messages or request.text))) % 10
            completion = Completion(
                text=f"The answer is {said}",
                num_prompt_tokens=1,
                num_tokens=said,
                finish_reason=FinishReason.STOP,
            )
            on_completion(index, completion)
            return completion

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*pair)) for pair in enumerate(requests)]
        return [task.result() for task in tasks]

    async def close(self) -> None: ...


class NoRollouts:
    """Plays nothing."""

    async def play(
        self, episodes: Sequence[Episode], *, spec: RolloutSpec, lease: int, on_episode: OnItem
    ) -> list[ItemOutcome]:
        raise AssertionError("not asked for")


def no_judge(config: JudgeConfig) -> Judge:
    raise AssertionError("not asked for")


@dataclass
class Bench:
    """A grader on an engine of its own."""

    name: str
    num_graders: int = 2
    engine: SlotEngine = field(default_factory=SlotEngine)

    def __post_init__(self) -> None:
        self.grader = Grader(
            self.name,
            GraderConfig(
                name="g", num_graders=self.num_graders, max_num_seqs=NUM_SEQS, split_items=8
            ),
            make_engine=lambda model: self.engine,
            make_task=lambda config: make_task(config, cache=Path("unused")),
            make_judge=no_judge,
            rollouts=NoRollouts(),
            clock=simulated_s,
        )

    async def grade(self) -> Evaluation:
        [evaluation] = await self.grader.grade(JOB)
        return evaluation


def stripped(evaluation: Evaluation) -> tuple[object, ...]:
    """All of a verdict that does not depend on who answered when."""
    items = [item.model_copy(update={"duration_s": 0.0}) for item in evaluation.items]
    return evaluation.score, evaluation.num_items, evaluation.metrics, items


async def alone() -> tuple[Evaluation, float]:
    began = simulated_s()
    evaluation = await Bench("alone", num_graders=1).grade()
    return evaluation, simulated_s() - began


def run_with(
    *, prepare: Callable[[Bench, Bench], None], at_s: float = 2.0, num_helpers: int = 1
) -> tuple[Evaluation, Evaluation, float, float]:
    """A verdict reached alone and one with help from ``at_s`` on, and the seconds of both."""

    async def scene() -> tuple[Evaluation, Evaluation, float, float]:
        expected, alone_s = await alone()
        owner = Bench("owner")
        began = simulated_s()
        grading = asyncio.create_task(owner.grade())
        await asyncio.sleep(at_s)
        helping = []
        for number in range(num_helpers):
            helper = Bench(f"h{number}")
            prepare(owner, helper)
            helping.append(asyncio.create_task(helper.grader.help(JOB, owner.grader)))
        evaluation = await grading
        seconds = simulated_s() - began
        assert owner.engine.num_waiting == 0, "nothing goes on after the verdict"
        await asyncio.gather(*helping, return_exceptions=True)
        assert simulated_s() - began <= seconds + 1.0, "the loser is cancelled"
        return expected, evaluation, alone_s, seconds

    return run_simulated(scene())


def test_a_helper_halves_the_time_and_changes_nothing() -> None:
    expected, evaluation, alone_s, seconds = run_with(prepare=lambda owner, helper: None)
    assert stripped(evaluation) == stripped(expected)
    assert len({item.score for item in evaluation.items}) == 2, "some right, some wrong"
    assert (expected.num_graders, evaluation.num_graders) == (1, 2)
    assert alone_s == NUM_ITEMS / NUM_SEQS
    assert seconds <= 0.65 * alone_s


def test_three_helpers_share_what_is_left() -> None:
    expected, evaluation, alone_s, seconds = run_with(
        prepare=lambda owner, helper: None, num_helpers=3
    )
    assert stripped(evaluation) == stripped(expected)
    assert evaluation.num_graders == 4
    assert seconds <= 0.5 * alone_s


def test_a_slow_helper_delays_nothing() -> None:
    def slow(owner: Bench, helper: Bench) -> None:
        helper.engine.item_s = 1000.0

    expected, evaluation, alone_s, seconds = run_with(prepare=slow)
    assert stripped(evaluation) == stripped(expected)
    assert evaluation.num_graders == 1
    assert seconds == alone_s


def test_a_helper_that_fails_loses_nothing() -> None:
    def failing(owner: Bench, helper: Bench) -> None:
        helper.engine.error = GraderError("died")

    expected, evaluation, alone_s, seconds = run_with(prepare=failing)
    assert stripped(evaluation) == stripped(expected)
    assert evaluation.num_graders == 1
    assert seconds == alone_s


def test_a_helper_that_is_recalled_ends_its_part_first() -> None:
    async def scene() -> None:
        owner, helper = Bench("owner"), Bench("h")
        grading = asyncio.create_task(owner.grade())
        await asyncio.sleep(1.0)
        helping = asyncio.create_task(helper.grader.help(JOB, owner.grader))
        await asyncio.sleep(0.5)
        await helper.grader.recall()
        await helping
        assert simulated_s() == 3.0, "eight items at four a second"
        assert helper.engine.num_answered == 8
        assert (await grading).num_graders == 2

    run_simulated(scene())


def test_the_owner_keeps_its_engine_full_and_no_more() -> None:
    async def scene() -> None:
        owner = Bench("owner")
        await owner.grade()
        assert 2 * NUM_SEQS <= owner.engine.most_waiting < 2 * NUM_SEQS + 8
        assert owner.engine.num_answered == NUM_ITEMS

    run_simulated(scene())


def test_a_grader_that_is_alone_asks_its_engine_directly() -> None:
    async def scene() -> None:
        bench = Bench("alone", num_graders=1)
        grading = asyncio.create_task(bench.grade())
        await asyncio.sleep(1.0)
        assert bench.engine.most_waiting == NUM_ITEMS
        assert (await bench.grader.offer()).num_items == 0
        assert await bench.grader.claim() is None
        await grading

    run_simulated(scene())


def test_an_owner_that_is_lost_ends_the_help_without_an_error() -> None:
    class Lost:
        async def claim(self) -> Part | None:
            return Part(share=0, number=0, requests=())

        async def answer(self, part: Part, completions: list[Completion], *, helper: str) -> None:
            raise GraderError("lost")

        async def settled(self, part: Part) -> None:
            await asyncio.sleep(5.0)
            raise GraderError("lost")

    async def scene() -> None:
        helper = Bench("h")
        await helper.grader.help(JOB, Lost())
        helper.engine.item_s = 100.0
        assert (await helper.grade()).score is not None, "its engine is none the worse"

    run_simulated(scene())


def test_the_owners_own_failure_is_the_evaluations() -> None:
    async def scene() -> None:
        owner = Bench("owner")
        owner.engine.error = GraderError("the engine died")
        with pytest.raises((GraderError, ExceptionGroup)):
            await owner.grade()
        assert await owner.grader.claim() is None

    run_simulated(scene())
