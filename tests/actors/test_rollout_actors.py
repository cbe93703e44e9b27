"""Rollout workers as real Ray actors: one that hangs or dies costs at most one episode."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.exchange import AnswerDesk, Answered, Asked
from actors.remote import RemotePlay
from actors.rollout_worker import RolloutWorker, ShardedRollouts
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, OnCompletion, Sampling
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_session"), pytest.mark.slow]
SPEC = RolloutSpec(protocol="chat", sampling=Sampling(max_tokens=4), max_steps=2)


class StandInGrader:
    """Answers every request, as a grader's lease would, and plays episodes on the workers."""

    def __init__(self, workers: tuple[str, ...], hung_dir: Path) -> None:
        self._rollouts = ShardedRollouts(
            RemotePlay(workers),
            num_workers=len(workers),
            episodes_in_flight=4,
            hung_dir=hung_dir,
        )
        self._desk = AnswerDesk(self._generate)

    async def exchange(self, lease: int, asker: str, asked: Asked) -> Answered:
        return await self._desk.exchange(asker, asked)

    async def _generate(
        self, requests: Sequence[GenerationRequest], *, on_completion: OnCompletion
    ) -> list[Completion]:
        await asyncio.sleep(0.05)
        return [
            Completion(
                text="go", num_prompt_tokens=1, num_tokens=1, finish_reason=FinishReason.STOP
            )
            for _ in requests
        ]

    async def play(self, episodes: list[Episode]) -> list[ItemOutcome]:
        return await self._rollouts.play(episodes, spec=SPEC, lease=1)


def start(tmp_path: Path, *, prefix: str) -> tuple[Any, list[Any]]:
    names = tuple(f"{prefix}-{i}" for i in range(2))
    workers = [
        ray.remote(RolloutWorker)
        .options(name=name, num_cpus=0, max_restarts=-1, max_concurrency=100)
        .remote(name, env_step_timeout_s=2.0, hung_dir=tmp_path)
        for name in names
    ]
    grader = (
        ray.remote(StandInGrader).options(num_cpus=0, max_concurrency=1000).remote(names, tmp_path)
    )
    return grader, workers


def episodes(num: int, *, hang: int | None = None) -> list[Episode]:
    return [
        Episode(
            episode_id=f"e{i}",
            env_id="tests.actors.hanging_env:Hanging-v0",
            env_kwargs={},
            options={"hang": i == hang},
        )
        for i in range(num)
    ]


def test_a_step_that_hangs_is_a_timeout_and_the_others_are_played(tmp_path: Path) -> None:
    grader, _workers = start(tmp_path, prefix="hang")
    outcomes = ray.get(grader.play.remote(episodes(20, hang=7)), timeout=90)
    assert [o.item_id for o in outcomes] == [f"e{i}" for i in range(20)]
    bad = {o.item_id: (o.status, o.score) for o in outcomes if o.status is not ItemStatus.OK}
    assert bad == {"e7": (ItemStatus.ENV_TIMEOUT, None)}


def test_a_step_that_keeps_the_interpreter_to_itself_is_a_timeout_too(tmp_path: Path) -> None:
    grader, _workers = start(tmp_path, prefix="stuck")
    played = episodes(8)
    played[3] = replace(played[3], options={"stuck": True})
    outcomes = ray.get(grader.play.remote(played), timeout=90)
    bad = {o.item_id: o.status for o in outcomes if o.status is not ItemStatus.OK}
    assert bad == {"e3": ItemStatus.ENV_TIMEOUT}
    assert any(b"hanging_env.py" in file.read_bytes() for file in tmp_path.iterdir())


def test_a_killed_worker_loses_no_episode(tmp_path: Path) -> None:
    grader, workers = start(tmp_path, prefix="kill")
    ray.get(grader.play.remote(episodes(4)), timeout=60)
    pid = ray.get(workers[0].pid.remote())
    playing = grader.play.remote(episodes(200))
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    outcomes = ray.get(playing, timeout=90)
    assert [o.status for o in outcomes] == [ItemStatus.OK] * 200


def test_two_steps_that_hang_in_threads_are_timeouts_and_nothing_else(tmp_path: Path) -> None:
    grader, _workers = start(tmp_path, prefix="wait")
    waiting = [replace(e, waits=True) for e in episodes(20, hang=7)]
    waiting[12] = replace(waiting[12], options={"hang": True})
    outcomes = ray.get(grader.play.remote(waiting), timeout=90)
    bad = {o.item_id: o.status for o in outcomes if o.status is not ItemStatus.OK}
    assert bad == {"e7": ItemStatus.ENV_TIMEOUT, "e12": ItemStatus.ENV_TIMEOUT}
