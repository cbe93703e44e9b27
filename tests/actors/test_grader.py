"""A grader's leases, time limit and engine changes, with an engine of the tests' own."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from actors.grader import Grader
from rl_bench.config import GraderConfig, JudgeConfig, ModelConfig, TaskConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    LoadKind,
    LoadReport,
    OnCompletion,
    Sampling,
    ignore_completion,
)
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.events import Evaluation
from rl_bench.grading_status import OnItem
from rl_bench.judges.base import Judge
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import (
    Episode,
    EvalContext,
    EvalResult,
    ItemOutcome,
    ItemStatus,
    aggregate,
)
from tests.actors.grading_jobs import MODEL, TASK, make_job

ASK = GenerationRequest(sampling=Sampling(max_tokens=4), text="hello")


class EchoEngine:
    """Answers with the content it holds; can be told to fail or to hang."""

    made = 0

    def __init__(self) -> None:
        EchoEngine.made += 1
        self.content = ""
        self.error: Exception | None = None
        self.delay_s = 0.0
        self.is_closed = False

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        if self.error is not None:
            raise self.error
        self.content = content_hash
        return LoadReport(kind=LoadKind.WARM, seconds=0.5)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        await asyncio.sleep(self.delay_s)
        said = Completion(
            text=self.content, num_prompt_tokens=1, num_tokens=1, finish_reason=FinishReason.STOP
        )
        for index, _ in enumerate(requests):
            on_completion(index, said)
        return [said for _ in requests]

    async def close(self) -> None:
        self.is_closed = True


class AskTask:
    """Solved when the model answers "good"."""

    name = "t"
    evaluator_version = "1"

    def description(self) -> str:
        return ""

    def write_train_data(self, folder: Path) -> None: ...
    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        yield from ()

    def check_data(self) -> None: ...

    async def evaluate(self, context: EvalContext) -> EvalResult:
        [completion] = await context.generate([ASK])
        is_good = completion.text == "good" or completion.text == f"good at {context.repeat}"
        outcome = ItemOutcome(item_id="q", status=ItemStatus.OK, score=float(is_good))
        return aggregate("t", [outcome], evaluator_version="1")


class BrokenTask(AskTask):
    """Has a mistake in its code."""

    async def evaluate(self, context: EvalContext) -> EvalResult:
        raise KeyError("oops")


class NoRollouts:
    """Plays nothing."""

    async def play(
        self, episodes: Sequence[Episode], *, spec: RolloutSpec, lease: int, on_episode: OnItem
    ) -> list[ItemOutcome]:
        raise AssertionError("not asked for")


class Bench:
    """A grader and the engines that it made."""

    def __init__(self, *, timeout_s: float = 5.0) -> None:
        self.engines: list[EchoEngine] = []
        self.task = AskTask()
        self.grader = Grader(
            "g",
            GraderConfig(name="g", evaluation_timeout_s=timeout_s),
            make_engine=self._make_engine,
            make_task=lambda config: self.task,
            make_judge=self._make_judge,
            rollouts=NoRollouts(),
        )
        self.next_error: Exception | None = None
        self.next_delay_s = 0.0

    def _make_engine(self, model: ModelConfig) -> EchoEngine:
        engine = EchoEngine()
        engine.error, engine.delay_s = self.next_error, self.next_delay_s
        self.engines.append(engine)
        return engine

    def _make_judge(self, config: JudgeConfig) -> Judge:
        raise AssertionError("not asked for")

    async def grade(
        self,
        content: str,
        *,
        model: ModelConfig = MODEL,
        task: TaskConfig = TASK,
        submission_id: int | None = 1,
    ) -> Evaluation:
        job = make_job(content, submission_id=submission_id, task=task, model=model)
        [evaluation] = await self.grader.grade(job)
        return evaluation

    async def score(self, content: str, *, model: ModelConfig = MODEL) -> float | None:
        return (await self.grade(content, model=model)).score


async def test_one_engine_serves_many_checkpoints_of_a_model() -> None:
    bench = Bench()
    assert [await bench.score(c) for c in ("good", "bad", "good")] == [100.0, 0.0, 100.0]
    assert len(bench.engines) == 1


async def test_another_base_model_gets_another_engine() -> None:
    bench = Bench()
    await bench.score("good")
    await bench.score("good", model=MODEL.model_copy(update={"max_model_len": 64}))
    assert [engine.is_closed for engine in bench.engines] == [True, False]


async def test_a_lease_ends_with_its_evaluation() -> None:
    bench = Bench()
    await bench.score("good")
    for lease in (0, 1, 2):
        with pytest.raises(GraderError, match="lease"):
            await bench.grader.generate(lease, [ASK])


async def test_a_failed_engine_is_replaced() -> None:
    bench = Bench()
    bench.next_error = GraderError("died")
    with pytest.raises(GraderError, match="died"):
        await bench.score("good")
    bench.next_error = None
    assert await bench.score("good") == 100.0
    assert [engine.is_closed for engine in bench.engines] == [True, False]


async def test_a_bad_checkpoint_leaves_the_engine_alone() -> None:
    bench = Bench()
    await bench.score("good")
    bench.engines[0].error = SubmissionError("NaN", reason="non_finite")
    with pytest.raises(SubmissionError):
        await bench.score("nan")
    bench.engines[0].error = None
    assert await bench.score("good") == 100.0
    assert len(bench.engines) == 1


async def test_a_fault_of_the_tasks_code_is_told_with_its_place_and_is_no_score() -> None:
    bench = Bench()
    bench.task = BrokenTask()
    place = r"task t: its evaluation broke: KeyError: 'oops' at .*test_grader\.py:\d+"
    with pytest.raises(GraderError, match=place):
        await bench.score("good")
    bench.task = AskTask()
    assert await bench.score("good") == 100.0


async def test_an_evaluation_that_takes_too_long_is_infrastructure() -> None:
    bench = Bench(timeout_s=0.05)
    bench.next_delay_s = 5.0
    with pytest.raises(GraderError, match="evaluation_timeout_s"):
        await bench.score("good")
    assert bench.engines[0].is_closed


async def test_a_baseline_is_graded_as_often_as_the_task_says() -> None:
    bench = Bench()
    task = TASK.model_copy(update={"num_repeats": 4})
    verdict = await bench.grade("good at 2", task=task, submission_id=None)
    assert verdict.repeat_scores == (0.0, 0.0, 100.0, 0.0)
    assert verdict.score == 25.0
    assert verdict.noise_floor == pytest.approx(1.96 * 2**0.5 * 50.0)
    submission = await bench.grade("good", task=task)
    assert (submission.score, submission.repeat_scores, submission.noise_floor) == (100.0, (), None)
