"""What crosses between Ray actors: errors unwrapped, and handles behind the domain's Protocols."""

import asyncio
import math
import os
import time
import uuid
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from actors.exchange import Answered, Asked, Asker
from actors.shared_requests import Offer, Part
from rl_bench.engine.base import Completion, GenerationRequest
from rl_bench.errors import GraderError, RlBenchError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.tasks.base import Episode, ItemOutcome

if TYPE_CHECKING:
    from rl_bench.rollout import RolloutSpec

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


def last_line(error: RayError) -> str:
    """What a remote failure says in the end; its trace stands before."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


@dataclass(frozen=True, slots=True)
class RemoteGrade:
    """A `rl_bench.grading.Grade` over the pool's actor."""

    pool: Handle

    async def __call__(self, job: GradeJob) -> tuple[Evaluation, ...]:
        try:
            return await result_of(self.pool.grade.remote(job))
        except RayError as error:
            # Whoever tries again at once would only meet an actor that is still being started.
            if isinstance(error, RayActorError):
                await _until_restarted(self.pool)
            raise _lost("the pool of graders", error) from error


@dataclass(frozen=True, slots=True)
class RemoteGrader:
    """A grader actor by its name, as the pool and other graders reach it.

    A `actors.grader_pool.GraderLink` and a `actors.grader.Owner`. By name, since a handle among an
    actor's constructor arguments would be lost with its owner.
    """

    name: str

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        verdict: tuple[Evaluation, ...] = await self._result("grade", job)
        return verdict

    async def recover(self) -> None:
        with suppress(GraderError):  # it is gone for good
            await _until_restarted(self._actor(), limit_s=None)

    async def offer(self) -> Offer:
        offer: Offer = await self._result("offer")
        return offer

    async def help(self, job: GradeJob, owner: str) -> None:
        await self._result("help", job, RemoteGrader(owner))

    async def recall(self) -> None:
        await self._result("recall")

    async def claim(self) -> Part | None:
        part: Part | None = await self._result("claim")
        return part

    async def answer(self, part: Part, completions: list[Completion], *, helper: str) -> None:
        # The requests would only go back to where they came from.
        await self._result("answer", replace(part, requests=()), completions, helper=helper)

    async def settled(self, part: Part) -> None:
        await self._result("settled", replace(part, requests=()))

    async def _result(self, method: str, *args: object, **kwargs: object) -> Any:  # noqa: ANN401  as Ray types it
        """What the actor's method returns.

        Raises:
            RlBenchError: As the method raised it.
            GraderError: The grader is lost.
        """
        try:
            return await result_of(getattr(self._actor(), method).remote(*args, **kwargs))
        except RayError as error:
            raise _lost(self.name, error) from error

    def _actor(self) -> Handle:
        try:
            return ray.get_actor(self.name)
        except ValueError as error:  # Ray's word for a name that nobody has
            raise GraderError(f"{self.name} is gone") from error


def _lost(what: str, error: RayError) -> GraderError:
    return GraderError(f"{what} was lost: {type(error).__name__}: {error}")


async def _until_restarted(actor: Handle, *, limit_s: float | None = RESTART_LIMIT_S) -> None:
    """Returns when the actor answers again, will never do so, or ``limit_s`` is over."""
    deadline = math.inf if limit_s is None else time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            try:
                async with asyncio.timeout(limit_s):
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

    All that a process holds for one lease ask together. ``conversation``: the episode, by a name
    that no other has.
    """

    grader: Handle
    lease: int
    conversation: str

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        asker = _asker(self.grader, self.lease)
        return await asker.generate(requests, conversation=self.conversation)


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
        raise _lost("the grader", error) from error


@dataclass(frozen=True, slots=True)
class RemotePlay:
    """Plays an episode on one of the worker actors, for the grader actor that this runs in.

    Workers are found by name: a handle among an actor's constructor arguments would be lost with
    its owner, and the grader could not be started again.
    """

    workers: tuple[str, ...]

    async def __call__(
        self, worker: int, episode: Episode, spec: "RolloutSpec", lease: int
    ) -> ItemOutcome:
        policy = RemotePolicy(
            ray.get_runtime_context().current_actor, lease, conversation=uuid.uuid4().hex
        )
        actor: Handle = ray.get_actor(self.workers[worker])
        try:
            reference = actor.play.remote(episode, spec=spec, policy=policy)
            outcome: ItemOutcome = await result_of(reference)
        except RayActorError as error:
            await _until_restarted(actor)
            # Imported here: it loads Gymnasium, which a run's process does without.
            from actors.rollout_worker import WorkerLost

            raise WorkerLost(str(error)) from error
        return outcome
