"""Rollout workers: CPU processes that step environments, and the client that spreads episodes.

`RolloutWorker` is a plain class; `actors.factory` makes it a Ray actor. One worker interleaves many
episodes in one event loop, each with an environment of its own, reused from a free list (a new
TextWorld environment a game leaks memory). A step that hangs cannot be interrupted from inside, so
a watchdog ends the whole process; Ray starts it again, and `ShardedRollouts` plays the lost
episodes again, one at a time, so that only the culprit is lost. Workers serve several evaluations
at once, so an episode may be lost more than once by no fault of its own.
"""

import asyncio
import contextlib
import faulthandler
import hashlib
import itertools
import json
import logging
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import gymnasium

import envs  # noqa: F401  registers the environments
from envs.protocols import get_protocol
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.grading_status import OnItem
from rl_bench.rollout import Policy, RolloutSpec, TextEnv, play_episode
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus

LOG = logging.getLogger(__name__)

HUNG_EXIT_CODE = 70
MAX_ATTEMPTS = 4
"""How often an episode is begun before it is lost; one that hung twice is not begun again."""
MAX_OPEN_FILES = 256
_MAX_HANGS = 2
_GRACE_S = 2.0


class RolloutWorker:
    """Plays episodes in this process.

    Args:
        env_step_timeout_s: A reset or step longer than this ends the process.
        hung_dir: Where the watchdog leaves the name of the episode that hung.
    """

    def __init__(self, name: str, *, env_step_timeout_s: float, hung_dir: Path) -> None:
        self.name = name
        self._free: defaultdict[str, list[TextEnv]] = defaultdict(list)
        self._watchdog = _Watchdog(env_step_timeout_s, hung_dir)

    def __repr__(self) -> str:
        return f"RolloutWorker({self.name})"

    async def pid(self) -> int:
        """This process's id."""
        return os.getpid()

    async def play(self, episode: Episode, *, spec: RolloutSpec, policy: Policy) -> ItemOutcome:
        """Plays one episode; many calls run concurrently.

        Raises:
            GraderError: The policy failed.
        """
        kind = _env_key(episode)
        env = self._free[kind].pop() if self._free[kind] else _make_env(episode)
        is_broken = False
        try:
            outcome = await play_episode(
                env,
                episode,
                policy=policy,
                protocol=get_protocol(spec.protocol),
                spec=spec,
                guard=self._watchdog.guard,
            )
            is_broken = outcome.status is not ItemStatus.OK
            return outcome
        finally:
            if is_broken:
                with contextlib.suppress(Exception):  # it may not even close
                    env.close()
            else:  # also when the policy failed: that says nothing about the environment
                self._free[kind].append(env)


def _env_key(episode: Episode) -> str:
    return f"{episode.env_id} {json.dumps(dict(episode.env_kwargs), sort_keys=True, default=str)}"


def _make_env(episode: Episode) -> TextEnv:
    arguments: dict[str, Any] = dict(episode.env_kwargs)
    env: TextEnv = gymnasium.make(episode.env_id, disable_env_checker=True, **arguments).unwrapped
    return env


class _Watchdog:
    """Ends this process when a guarded call takes too long, after naming the episode.

    A thread of ours cannot run while a call keeps the interpreter to itself, as a regular
    expression may. So the thread also winds up the interpreter's own timer, which needs no
    interpreter, again and again: if the thread cannot, the timer ends the process. What it writes
    goes to the file of the episode whose call is running in the event loop.
    """

    def __init__(self, timeout_s: float, hung_dir: Path) -> None:
        self._timeout_s = timeout_s
        self._hung_dir = hung_dir
        self._tickets = itertools.count()
        self._started: dict[int, tuple[str, float]] = {}
        # Kept open: an episode is guarded at every step, and opening a file takes longer than one.
        self._open_file = lru_cache(maxsize=MAX_OPEN_FILES)(partial(Path.open, mode="ab"))
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        self._written_to = os.dup(self._nowhere)
        self._winding = threading.Lock()
        self._is_wound = False
        threading.Thread(target=self._watch, name="env-watchdog", daemon=True).start()

    @contextlib.contextmanager
    def guard(self, episode_id: str) -> Iterator[None]:
        ticket = next(self._tickets)  # two evaluations may be playing the same episode
        self._started[ticket] = (episode_id, time.monotonic())
        try:
            if _in_event_loop():
                with self._timer(episode_id):
                    yield
            else:
                yield
        finally:
            del self._started[ticket]

    @contextlib.contextmanager
    def _timer(self, episode_id: str) -> Iterator[None]:
        """Lets the interpreter's timer do what `_watch` would have done a little earlier."""
        file = self._open_file(_hung_file(self._hung_dir, episode_id))
        os.dup2(file.fileno(), self._written_to, inheritable=False)
        if not self._is_wound:
            with self._winding:
                self._wind()
        try:
            yield
        finally:
            os.dup2(self._nowhere, self._written_to, inheritable=False)

    def _wind(self) -> None:
        """The process ends this long after the last call of this method."""
        faulthandler.dump_traceback_later(
            self._timeout_s + _GRACE_S, exit=True, file=self._written_to
        )
        self._is_wound = True

    def _unwind(self) -> None:
        self._is_wound = False
        faulthandler.cancel_dump_traceback_later()
        if self._started:  # a call that began meanwhile may have found the timer wound
            self._wind()

    def _watch(self) -> None:
        seen = 0
        while True:
            time.sleep(min(1.0, self._timeout_s / 4))
            now = time.monotonic()
            for episode_id, started in tuple(self._started.values()):
                if now - started > self._timeout_s:
                    mark_hung(self._hung_dir, episode_id)
                    os._exit(HUNG_EXIT_CODE)
            before, seen = seen, next(self._tickets)
            if self._is_wound:
                with self._winding:
                    # Unwound when idle: a process that is stopped for a while does no wrong.
                    if self._started or seen > before + 1:
                        self._wind()
                    else:
                        self._unwind()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def mark_hung(hung_dir: Path, episode_id: str) -> None:
    """Notes that the episode hung, for whoever plays it: its file grows."""
    with _hung_file(hung_dir, episode_id).open("ab") as file:
        file.write(b".")


@lru_cache(maxsize=MAX_OPEN_FILES)
def _hung_file(hung_dir: Path, episode_id: str) -> Path:
    return hung_dir / hashlib.sha256(episode_id.encode()).hexdigest()[:24]


class _HungSince:
    """Tells which episodes have hung since it was made, whatever earlier evaluations left."""

    def __init__(self, hung_dir: Path, episodes: Sequence[Episode]) -> None:
        self._hung_dir = hung_dir
        self._before = {e.episode_id: self._count(e.episode_id) for e in episodes}

    def names(self) -> set[str]:
        return {name for name, count in self._before.items() if self._count(name) > count}

    def _count(self, episode_id: str) -> int:
        try:
            return _hung_file(self._hung_dir, episode_id).stat().st_size
        except FileNotFoundError:
            return 0


PlayOn = Callable[[int, Episode, RolloutSpec, int], Awaitable[ItemOutcome]]
"""Plays an episode on worker i under a lease; raises `WorkerLost` when the worker died."""


class WorkerLost(Exception):  # noqa: N818  a signal between this module and the factory
    """The worker died with the episode."""


class ShardedRollouts:
    """Spreads episodes over workers; implements `actors.grader.Rollouts`.

    Workers pull from one queue, so the tail is stolen by whoever is idle.
    """

    def __init__(
        self, play_on: PlayOn, *, num_workers: int, episodes_in_flight: int, hung_dir: Path
    ) -> None:
        self._play_on = play_on
        self._num_workers = num_workers
        self._in_flight = episodes_in_flight
        self._hung_dir = hung_dir

    async def play(
        self,
        episodes: Sequence[Episode],
        *,
        spec: RolloutSpec,
        lease: int,
        on_episode: OnItem = lambda: None,
    ) -> list[ItemOutcome]:
        """Outcomes in the order of ``episodes``; ``on_episode`` is called for each that was played.

        Raises:
            SubmissionError: The checkpoint cannot be asked, through its own fault.
            GraderError: The policy failed.
        """
        outcomes: dict[str, ItemOutcome] = {}
        num_hangs: Counter[str] = Counter()
        in_flight, playing = self._in_flight, list(episodes)
        for _ in range(MAX_ATTEMPTS):
            hung_since = _HungSince(self._hung_dir, playing)
            played = await self._pass(playing, spec, lease, in_flight, on_episode)
            lost = [e for e in playing if e.episode_id not in played]
            hung = hung_since.names()
            num_hangs.update(e.episode_id for e in lost if e.episode_id in hung)
            outcomes |= played | {e.episode_id: _lost(e, e.episode_id in hung) for e in lost}
            playing = [e for e in lost if num_hangs[e.episode_id] < _MAX_HANGS]
            if not playing:
                break
            LOG.warning("%d episodes lost with their worker; playing them again", len(playing))
            in_flight = 1
        return [outcomes[e.episode_id] for e in episodes]

    async def _pass(
        self,
        episodes: Sequence[Episode],
        spec: RolloutSpec,
        lease: int,
        in_flight: int,
        on_episode: OnItem,
    ) -> dict[str, ItemOutcome]:
        queue = list(reversed(episodes))
        outcomes: dict[str, ItemOutcome] = {}

        async def pull(worker: int) -> None:
            while queue:
                episode = queue.pop()
                with contextlib.suppress(WorkerLost):
                    outcomes[episode.episode_id] = await self._play_on(worker, episode, spec, lease)
                    on_episode()

        pulls = [pull(i) for _ in range(in_flight) for i in range(self._num_workers)]
        try:
            async with asyncio.TaskGroup() as group:
                for each in pulls[: max(1, len(episodes))]:
                    group.create_task(each)
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            if isinstance(first, SubmissionError):  # e.g. a chat template that cannot be rendered
                raise first from errors
            raise GraderError(f"rollouts failed: {first}") from errors
        finally:
            for each in pulls:
                each.close()
        return outcomes


def _lost(episode: Episode, is_hung: bool) -> ItemOutcome:
    return ItemOutcome(
        item_id=episode.episode_id,
        status=ItemStatus.ENV_TIMEOUT if is_hung else ItemStatus.LOST,
        score=None,
        num_steps=0,
        detail={"error": "environment step timed out" if is_hung else "its worker was lost"},
    )
