"""A grader tells how far its evaluation is, phase after phase."""

import asyncio
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from actors.grader import Grader
from rl_bench.config import GraderConfig, JudgeConfig
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
from rl_bench.errors import GraderError
from rl_bench.grading import GradeJob
from rl_bench.grading_status import OnItem
from rl_bench.judges.base import Judged, JudgeReply, JudgeRequest, Votes
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import (
    Episode,
    EvalContext,
    EvalResult,
    ItemOutcome,
    ItemStatus,
    aggregate,
)
from tests.actors.grading_jobs import TASK, make_job

T = TypeVar("T")
JUDGE = JudgeConfig(
    name="j",
    kind="openai",
    base_url="http://127.0.0.1:9",
    model_id="m",
    annotator="a",
    num_votes=2,
)
ASK = GenerationRequest(sampling=Sampling(max_tokens=4), text="hello")
QUESTION = JudgeRequest(item_id="q", messages=(), max_tokens=4)
EPISODES = [Episode(episode_id=f"e{i}", env_id="x", env_kwargs={}, options={}) for i in range(3)]
JOB = make_job(submission_id=None, task=TASK.model_copy(update={"num_repeats": 2}))


class Scene:
    """Engine, rollouts, judge and task in one; notes the status before and after each item."""

    name = "t"
    evaluator_version = "1"

    def __init__(self, job: GradeJob = JOB) -> None:
        self.job = job
        self.told: list[str] = []
        self.error: Exception | None = None
        self.grader = Grader(
            "g",
            GraderConfig(name="g"),
            make_engine=lambda model: _Engine(self),
            make_task=lambda config: self,
            make_judge=lambda config: _Judge(self),
            rollouts=_Rollouts(self),
        )

    def description(self) -> str:
        return ""

    def write_train_data(self, folder: Path) -> None: ...
    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        yield from ()

    def check_data(self) -> None: ...

    async def evaluate(self, context: EvalContext) -> EvalResult:
        await context.generate([ASK, ASK])
        await self.note()
        await context.play(EPISODES, protocol="chat")
        judge = context.judge(JUDGE)
        await asyncio.gather(*(judge.ask([QUESTION], parse=str) for _ in range(2)))
        await self.note()
        outcome = ItemOutcome(item_id="q", status=ItemStatus.OK, score=1.0)
        return aggregate("t", [outcome], evaluator_version="1")

    async def note(self) -> None:
        status = await self.grader.status()
        assert status is not None
        assert pickle.loads(pickle.dumps(status)) == status  # noqa: S301  as Ray hands it over
        assert (status.run_id, status.submission_id, status.task) == (
            "r",
            self.job.submission_id,
            "t",
        )
        self.told.append(str(status))


class _Engine:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def load(self, snapshot: Path, *, content_hash: str) -> LoadReport:
        await self._scene.note()
        if self._scene.error is not None:
            raise self._scene.error
        return LoadReport(kind=LoadKind.COLD, seconds=0.0)

    async def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        on_completion: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        said = Completion(
            text="", num_prompt_tokens=1, num_tokens=1, finish_reason=FinishReason.STOP
        )
        for index, _ in enumerate(requests):
            on_completion(index, said)
            await self._scene.note()
        return [said for _ in requests]

    async def close(self) -> None: ...


class _Rollouts:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def play(
        self, episodes: Sequence[Episode], *, spec: RolloutSpec, lease: int, on_episode: OnItem
    ) -> list[ItemOutcome]:
        await self._scene.grader.generate(lease, [ASK])  # a step
        for _ in episodes[1:]:  # the first is lost
            on_episode()
            await self._scene.note()
        return []


class _Judge:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def ask(
        self,
        requests: Sequence[JudgeRequest],
        *,
        parse: Callable[[JudgeReply], T],
        repeat: int = 0,
    ) -> Judged[T]:
        await asyncio.sleep(0)  # the other question is asked, too
        votes = [Votes(values=(parse(JudgeReply(text="x")),)) for _ in requests]
        await self._scene.note()
        return Judged(votes=tuple(votes))

    async def close(self) -> None: ...


async def test_each_phase_is_counted_and_a_repeat_begins_anew() -> None:
    scene = Scene()
    assert await scene.grader.status() is None
    await scene.grader.grade(scene.job)
    assert await scene.grader.status() is None
    counted = [
        "generating 1 of 2",
        "generating 2 of 2",
        "scoring",
        "0 of 3 episodes",  # a step is no episode
        "1 of 3 episodes",
        "2 of 3 episodes",
        "judging 1 of 4",
        "judging 2 of 4",
        "scoring",
    ]
    assert scene.told == [
        "loading",
        *(f"{words}, time {n} of 2" for n in (1, 2) for words in counted),
    ]


async def test_an_evaluation_that_broke_is_not_told_any_more() -> None:
    scene = Scene(replace(JOB, submission_id=7))
    scene.error = GraderError("the engine died")
    with pytest.raises(GraderError, match="died"):
        await scene.grader.grade(scene.job)
    assert scene.told == ["loading"]
    assert await scene.grader.status() is None
