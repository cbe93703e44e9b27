"""Pool, fleet and graders as Ray actors: growth, a pool that is lost, and two real engines."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import ray
from ray.exceptions import ActorUnavailableError

from actors.factory import start_grading
from actors.grader_fleet import GraderFleet
from actors.grader_pool import GraderPool
from actors.remote import Handle, RemoteGrade, RemoteGrader
from actors.shared_requests import NOTHING, Offer
from rl_bench.checkpoint import content_hash
from rl_bench.config import GraderConfig
from rl_bench.events import Evaluation, Item
from rl_bench.grading import GradeJob
from rl_bench.models.tiny import build_tiny
from tests.actors.grading_jobs import GENERATED, make_job

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_session")]

T = TypeVar("T")
TASK = GENERATED.model_copy(update={"num_eval": 1000})


class HeldGrader:
    """Grades until a file is there."""

    def __init__(self, name: str, gate: Path) -> None:
        self._name = name
        self._gate = gate

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        while not self._gate.exists():  # noqa: ASYNC110  the test is another process
            await asyncio.sleep(0.02)
        return (
            Evaluation(
                task=self._name, score=1.0, num_items=1, num_errors=0, evaluator_version="1"
            ),
        )

    async def offer(self) -> Offer:
        return NOTHING

    async def close(self) -> None:
        """Has no engine."""


class Scene:
    """A pool, one grader to begin with, and the fleet that follows the pool."""

    def __init__(self, gate: Path, *, num_gpus: int = 0) -> None:
        self.gate = gate
        self.num_gpus = num_gpus
        self.said: list[str] = []
        config = GraderConfig(
            name="g",
            num_graders=1,
            max_graders=2,
            grow_after_s=0.3,
            shrink_after_s=0.5,
            num_retries=3,
        )
        first = self.start("grader-0", num_gpus=0)
        self.pool: Handle = (
            ray.remote(GraderPool)
            .options(num_cpus=0, max_restarts=-1, max_concurrency=1000)
            .remote(("grader-0",), connect=RemoteGrader, config=config)
        )
        self.fleet = GraderFleet(
            self.pool,
            {"grader-0": first},
            start=lambda name: self.start(name, num_gpus=self.num_gpus),
            config=config,
            say=self.said.append,
            tend_s=0.1,
        )

    def start(self, name: str, *, num_gpus: int) -> Handle:
        handle: Handle = (
            ray.remote(HeldGrader)
            .options(name=name, num_cpus=0, num_gpus=num_gpus, max_concurrency=100)
            .remote(name, self.gate)
        )
        return handle

    def until(self, condition: Callable[[], bool]) -> None:
        """Tends the fleet until ``condition``; no step may wait."""
        deadline = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < deadline, self.said
            began = time.monotonic()
            self.fleet.tend()
            assert time.monotonic() - began < 40.0
            time.sleep(0.02)

    def submit(self, *contents: str) -> list[Handle]:
        return [self.pool.grade.remote(make_job(content, task=TASK)) for content in contents]

    def open(self, verdicts: list[Handle]) -> set[str]:
        """Lets all be graded; by whom they were."""
        self.gate.touch()
        self.until(lambda: len(ray.wait(verdicts, num_returns=len(verdicts), timeout=0)[1]) == 0)
        names = {ray.get(verdict)[0].task for verdict in verdicts}
        self.gate.unlink()
        return names

    def end(self) -> None:
        self.fleet.begin_close()
        self.fleet.close()
        for actor in (self.pool, ray.get_actor("grader-0")):
            ray.kill(actor)


@pytest.fixture
def make_scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Makes one `Scene`, which ends with the test: its actors' names are free again."""
    scenes = []

    def make(*, num_gpus: int = 0) -> Scene:
        scenes.append(Scene(tmp_path / "gate", num_gpus=num_gpus))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.end()


def test_a_fleet_grows_is_known_to_a_new_pool_and_shrinks(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    verdicts = scene.submit("a", "b")
    scene.until(lambda: len(scene.fleet.graders) == 2)
    assert scene.open(verdicts) == {"grader-0", "grader-1"}

    killed = _process_of(scene.pool)
    ray.kill(scene.pool, no_restart=False)
    scene.until(lambda: _process_of(scene.pool) not in (killed, None))
    verdicts = scene.submit("c", "d")
    scene.until(lambda: bool(ray.get(scene.pool.tend.remote(("grader-0", "grader-1")))))
    assert scene.open(verdicts) == {"grader-0", "grader-1"}

    scene.until(lambda: len(scene.fleet.graders) == 1)
    assert scene.said[-1] == "grader-1 had nothing to do and ends: 1 grader"
    assert scene.open(scene.submit("e")) == {"grader-0"}


def test_a_grader_without_room_blocks_nobody_and_is_withdrawn(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(num_gpus=1)  # this Ray has no GPU
    verdicts = scene.submit("a", "b")
    scene.until(lambda: scene.fleet.num_starting == 1)
    assert scene.open(verdicts) == {"grader-0"}
    scene.until(lambda: scene.fleet.num_starting == 0)
    assert "no longer needed" in scene.said[-1]
    with pytest.raises(ValueError, match="grader-1"):
        ray.get_actor("grader-1")


@pytest.mark.vllm
@pytest.mark.slow
def test_two_engines_give_the_items_that_one_gives(tmp_path: Path) -> None:
    config = GraderConfig(name="g", num_graders=2, max_num_seqs=8, split_items=16)
    grading = start_grading(config, cache=tmp_path, logs=tmp_path / "logs")
    grade = RemoteGrade(grading.pool)
    folders = [build_tiny(tmp_path / f"m{seed}", seed=seed) for seed in range(3)]
    jobs = [make_job(content_hash(each), snapshot=each, task=TASK) for each in folders]

    async def scene() -> tuple[Evaluation, Evaluation]:
        small = TASK.model_copy(update={"num_eval": 8})
        warm = [replace(each, submission_id=None, tasks=(small,)) for each in jobs[:2]]
        await asyncio.gather(*map(grade, warm))
        [split] = await grade(jobs[2])
        [whole] = await _answer(grading.graders["grader-0"].grade.remote(jobs[2]))
        return split, whole

    try:
        split, whole = asyncio.run(scene())
    finally:
        ray.get([grader.close.remote() for grader in grading.graders.values()], timeout=60)
        for actor in (*grading.graders.values(), *grading.workers, grading.pool):
            ray.kill(actor)
    assert (split.num_graders, whole.num_graders) == (2, 1)
    assert split.score == whole.score
    assert [_stripped(item) for item in split.items] == [_stripped(item) for item in whole.items]


def _process_of(actor: Handle) -> int | None:
    """Its process's id; None while it is being started again."""
    try:
        pid: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=60)
    except ActorUnavailableError:
        return None
    return pid


def _stripped(item: Item) -> Item:
    return item.model_copy(update={"duration_s": 0.0})


async def _answer(reference: Awaitable[T]) -> T:
    return await reference
