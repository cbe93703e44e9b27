"""Episodes lost with their worker are played once more; the culprit alone is lost."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.rollout_worker import (
    MAX_ATTEMPTS,
    RolloutWorker,
    ShardedRollouts,
    WorkerLost,
    _Watchdog,
    mark_hung,
)
from rl_bench.engine.base import Completion, GenerationRequest, Sampling
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus
from tests.actors.hanging_env import HangingEnv

SPEC = RolloutSpec(protocol="chat", sampling=Sampling(max_tokens=4), max_steps=2)
EPISODES = [Episode(episode_id=f"e{i}", env_id="x", env_kwargs={}, options={}) for i in range(12)]


class FlakyWorkers:
    """Two workers in one; a killer episode takes down all that is in flight on its worker."""

    def __init__(
        self,
        killers: set[str],
        *,
        recover_after: int | None = None,
        hung_dir: Path | None = None,
    ) -> None:
        self.killers = killers
        self.hung_dir = hung_dir
        self.recover_after = recover_after
        self.played: list[str] = []
        self.generation = [0, 0]

    async def __call__(
        self, worker: int, episode: Episode, spec: RolloutSpec, lease: int
    ) -> ItemOutcome:
        generation = self.generation[worker]
        self.played.append(episode.episode_id)
        await asyncio.sleep(0.001)
        if episode.episode_id in self.killers:
            self.generation[worker] += 1
            if self.hung_dir is not None:
                mark_hung(self.hung_dir, episode.episode_id)
            if self.recover_after is not None and sum(self.generation) >= self.recover_after:
                self.killers = set()
        await asyncio.sleep(0.002)
        if self.generation[worker] != generation:
            raise WorkerLost("gone")
        return ItemOutcome(item_id=episode.episode_id, status=ItemStatus.OK, score=1.0)


async def test_results_come_in_order(tmp_path: Path) -> None:
    workers = FlakyWorkers(set())
    rollouts = ShardedRollouts(workers, num_workers=2, episodes_in_flight=3, hung_dir=tmp_path)
    outcomes = await rollouts.play(EPISODES, spec=SPEC, lease=1)
    assert [o.item_id for o in outcomes] == [e.episode_id for e in EPISODES]
    assert sorted(workers.played) == sorted(e.episode_id for e in EPISODES)


async def test_a_killer_episode_is_lost_alone(tmp_path: Path) -> None:
    rollouts = ShardedRollouts(
        FlakyWorkers({"e5"}), num_workers=2, episodes_in_flight=4, hung_dir=tmp_path
    )
    played: list[None] = []
    outcomes = await rollouts.play(
        EPISODES, spec=SPEC, lease=1, on_episode=lambda: played.append(None)
    )
    assert len(played) == len(EPISODES) - 1
    assert [o.item_id for o in outcomes if o.status is ItemStatus.LOST] == ["e5"]
    assert all(o.score is None for o in outcomes if o.status is not ItemStatus.OK)


async def test_an_episode_that_hangs_twice_timed_out_and_is_not_tried_again(tmp_path: Path) -> None:
    workers = FlakyWorkers({"e5"}, hung_dir=tmp_path)
    rollouts = ShardedRollouts(workers, num_workers=2, episodes_in_flight=4, hung_dir=tmp_path)
    outcomes = await rollouts.play(EPISODES, spec=SPEC, lease=1)
    bad = {o.item_id: o.status for o in outcomes if o.status is not ItemStatus.OK}
    assert bad == {"e5": ItemStatus.ENV_TIMEOUT}
    assert workers.played.count("e5") == 2


async def test_the_mark_of_an_earlier_evaluation_says_nothing(tmp_path: Path) -> None:
    hanging = FlakyWorkers({"e5"}, hung_dir=tmp_path)
    rollouts = ShardedRollouts(hanging, num_workers=2, episodes_in_flight=4, hung_dir=tmp_path)
    await rollouts.play(EPISODES, spec=SPEC, lease=1)
    dying = FlakyWorkers({"e5"})
    rollouts = ShardedRollouts(dying, num_workers=2, episodes_in_flight=4, hung_dir=tmp_path)
    outcomes = await rollouts.play(EPISODES, spec=SPEC, lease=2)
    assert outcomes[5].status is ItemStatus.LOST
    assert dying.played.count("e5") == MAX_ATTEMPTS


async def test_hangs_of_another_evaluation_cost_this_one_nothing(tmp_path: Path) -> None:
    workers = FlakyWorkers({"other"})

    async def play(worker: int, episode: Episode, spec: RolloutSpec, lease: int) -> ItemOutcome:
        if len(workers.played) in (3, 15):  # the other evaluation's culprit, in both its tries
            workers.generation = [n + 1 for n in workers.generation]
        return await workers(worker, episode, spec, lease)

    rollouts = ShardedRollouts(play, num_workers=2, episodes_in_flight=4, hung_dir=tmp_path)
    outcomes = await rollouts.play(EPISODES, spec=SPEC, lease=1)
    assert len(workers.played) > len(EPISODES)
    assert [o.status for o in outcomes] == [ItemStatus.OK] * len(EPISODES)


async def test_the_same_episode_of_two_evaluations_is_guarded_apart(tmp_path: Path) -> None:
    watchdog = _Watchdog(30.0, tmp_path)
    with watchdog.guard("e"), contextlib.ExitStack() as inner:
        inner.enter_context(watchdog.guard("e"))
        inner.close()
        assert [name for name, _ in watchdog._started.values()] == ["e"]
    assert not watchdog._started


async def test_a_single_death_loses_nothing(tmp_path: Path) -> None:
    rollouts = ShardedRollouts(
        FlakyWorkers({"e3"}, recover_after=1),
        num_workers=2,
        episodes_in_flight=4,
        hung_dir=tmp_path,
    )
    outcomes = await rollouts.play(EPISODES, spec=SPEC, lease=1)
    assert all(o.status is ItemStatus.OK for o in outcomes)


async def test_a_checkpoint_at_fault_stays_the_checkpoints_fault(tmp_path: Path) -> None:
    async def bad_template(*_: object) -> ItemOutcome:
        raise SubmissionError("template", reason="chat_template")

    rollouts = ShardedRollouts(bad_template, num_workers=1, episodes_in_flight=4, hung_dir=tmp_path)
    with pytest.raises(SubmissionError, match="template"):
        await rollouts.play(EPISODES, spec=SPEC, lease=1)


async def test_a_dead_grader_fails_the_evaluation_not_the_episode(tmp_path: Path) -> None:
    async def dead(*_: object) -> ItemOutcome:
        raise GraderError("engine died")

    rollouts = ShardedRollouts(dead, num_workers=1, episodes_in_flight=4, hung_dir=tmp_path)
    with pytest.raises(GraderError, match="engine died"):
        await rollouts.play(EPISODES, spec=SPEC, lease=1)


async def test_a_failed_policy_does_not_cost_an_environment(tmp_path: Path) -> None:
    class Dead:
        async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
            raise GraderError("engine died")

    HangingEnv.num_made = 0
    worker = RolloutWorker("w", env_step_timeout_s=30.0, hung_dir=tmp_path)
    episode = Episode(
        episode_id="e", env_id="tests.actors.hanging_env:Hanging-v0", env_kwargs={}, options={}
    )
    for _ in range(3):
        with pytest.raises(GraderError):
            await worker.play(episode, spec=SPEC, policy=Dead())
    assert HangingEnv.num_made == 1
