"""What crosses between Ray actors: errors unwrapped, and handles behind the domain's Protocols."""

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from actors.exchange import Answered, Asked, Asker
from actors.rollout_worker import WorkerLost
from rl_bench.engine.base import Completion, GenerationRequest
from rl_bench.errors import GraderError, RlBenchError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.rollout import RolloutSpec
from rl_bench.tasks.base import Episode, ItemOutcome

RESTART_LIMIT_S = 60.0
RESTART_POLL_S = 0.2
T = TypeVar("T")
Handle: TypeAlias = Any
"""An actor's handle. Ray types none of an actor's methods."""


async def result_of(reference: Awaitable[T]) -> T:
    """Awaits an actor's answer and raises the project's own error in place of Ray's wrapper.

    Raises:
        RlBenchError: As the actor's method raised it.
        RayError: The actor died, or raised something of another kind.
    """
    try:
        return await reference
    except RayTaskError as error:
        if isinstance(error.cause, RlBenchError):
            raise error.cause from None
        raise


@dataclass(frozen=True, slots=True)
class RemoteGrade:
    """A `rl_bench.grading.Grade` over an actor with a ``grade`` method: a grader or the pool.

    ``actor``: its handle, or its name where that outlives handles, see `RemotePlay`.
    """

    actor: Handle | str

    async def __call__(self, job: GradeJob) -> tuple[Evaluation, ...]:
        actor: Handle = ray.get_actor(self.actor) if isinstance(self.actor, str) else self.actor
        try:
            return await result_of(actor.grade.remote(job))
        except RayError as error:
            # Whoever tries again at once would only meet an actor that is still being started.
            if isinstance(error, RayActorError):
                await _until_restarted(actor)
            raise GraderError(f"the grader was lost: {type(error).__name__}: {error}") from error


async def _until_restarted(actor: Handle) -> None:
    """Returns when the actor answers again, will never do so, or `RESTART_LIMIT_S` is over."""
    deadline = time.monotonic() + RESTART_LIMIT_S
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            try:
                async with asyncio.timeout(RESTART_LIMIT_S):
                    await actor.__ray_ready__.remote()
            except ActorUnavailableError:
                await asyncio.sleep(RESTART_POLL_S)
                continue
            except RayError:
                pass
        return


@dataclass(frozen=True, slots=True)
class RemotePolicy:
    """A `rl_bench.rollout.Policy` that asks a grader under a lease.

    All that a process holds for one lease ask together.
    """

    grader: Handle
    lease: int

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return await _asker(self.grader, self.lease).generate(requests)


_ASKERS: dict[str, tuple[int, Asker]] = {}
"""Each grader's latest lease and who asks under it, in this process."""


def _asker(grader: Handle, lease: int) -> Asker:
    key: str = grader._actor_id.hex()
    if key not in _ASKERS or _ASKERS[key][0] != lease:
        name = f"{os.getpid()}-{uuid.uuid4().hex}"
        _ASKERS[key] = lease, Asker(partial(_exchange, grader, lease, name))
    return _ASKERS[key][1]


async def _exchange(grader: Handle, lease: int, name: str, asked: Asked) -> Answered:
    try:
        return await result_of(grader.exchange.remote(lease, name, asked))
    except RayError as error:
        raise GraderError(f"the grader was lost: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class RemotePlay:
    """Plays an episode on one of the worker actors, for the grader actor that this runs in.

    Workers are found by name: a handle among an actor's constructor arguments would be lost with
    its owner, and the grader could not be started again.
    """

    workers: tuple[str, ...]

    async def __call__(
        self, worker: int, episode: Episode, spec: RolloutSpec, lease: int
    ) -> ItemOutcome:
        policy = RemotePolicy(ray.get_runtime_context().current_actor, lease)
        actor: Handle = ray.get_actor(self.workers[worker])
        try:
            reference = actor.play.remote(episode, spec=spec, policy=policy)
            outcome: ItemOutcome = await result_of(reference)
        except RayActorError as error:
            await _until_restarted(actor)
            raise WorkerLost(str(error)) from error
        return outcome
