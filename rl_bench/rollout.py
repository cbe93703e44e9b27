"""Plays one episode: environment and policy take turns until the episode ends.

Plain and single-threaded; concurrency comes from playing many episodes in one event loop. Owns the
turn-taking, the step budget and the context window; leaves prompts to the protocol, actions to the
policy, and process boundaries to `actors.rollout_worker`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import gymnasium

from envs.protocol import Prompt, PromptProtocol, Turn
from rl_bench.config import TaskConfig
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    Sampling,
    num_chars,
)
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus, Scalar

T = TypeVar("T")
TextEnv = gymnasium.Env[str, str]
StepGuard = Callable[[str], AbstractContextManager[None]]
"""Wraps each call into an environment, given the episode's id; see `actors.rollout_worker`."""

ACTIONS_KEPT = 2000
"""Characters of the action sequence kept in an outcome's detail."""


class Policy(Protocol):
    """What chooses actions: the checkpoint under evaluation."""

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Completions in order; see `rl_bench.engine.base.Engine.generate`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """How episodes of one evaluation are played.

    ``sampling.max_tokens`` bounds a step, ``max_episode_tokens`` an episode; what ends a completion
    is the protocol's to say.
    """

    protocol: str
    sampling: Sampling
    max_steps: int
    max_episode_tokens: int | None = None

    @classmethod
    def of(cls, task: TaskConfig, *, protocol: str) -> "RolloutSpec":
        """As ``task`` says; ``protocol`` is its protocol with the protocol's settings."""
        return cls(
            protocol=protocol,
            sampling=Sampling(max_tokens=task.max_tokens),
            max_steps=task.max_steps,
            max_episode_tokens=task.max_episode_tokens,
        )


def _no_guard(_episode_id: str) -> AbstractContextManager[None]:
    return nullcontext()


async def play_episode(
    env: TextEnv,
    episode: Episode,
    *,
    policy: Policy,
    protocol: PromptProtocol,
    spec: RolloutSpec,
    guard: StepGuard = _no_guard,
) -> ItemOutcome:
    """Plays ``episode`` to its end or to ``spec.max_steps``.

    Returns:
        The outcome: its score is the episode's summed reward, clipped to [0, 1]; ``env_error`` with
        the message when the environment raised. ``detail`` holds the scalar entries of the infos,
        the latest of each, and ``ended_by`` when not the environment ended it.

    Raises:
        GraderError: The policy failed; nothing can be said of the episode.
    """
    started = time.monotonic()
    game = _Game(env, episode, guard)
    try:
        await game.reset()
        while not game.is_over and len(game.turns) < spec.max_steps:
            action = await _choose(game, policy=policy, protocol=protocol, spec=spec)
            if action is None:
                break
            await game.step(action)
    except _EnvironmentFault as fault:
        return game.broken(fault, duration_s=time.monotonic() - started)
    return game.outcome(duration_s=time.monotonic() - started)


class _EnvironmentFault(Exception):  # noqa: N818  a signal within this module
    """The environment raised; the cause says what."""


class _Game:
    """An episode under way: what was seen, done and earned."""

    def __init__(self, env: TextEnv, episode: Episode, guard: StepGuard) -> None:
        self._env = env
        self._episode = episode
        self._guard = guard
        self.turns: list[Turn] = []
        self.observation = ""
        self.info: Mapping[str, Any] = {}
        self.is_over = False
        self.num_tokens = 0
        self.window = _Window()
        self._reward = 0.0
        self._detail: dict[str, Scalar] = {}

    async def reset(self) -> None:
        episode = self._episode
        self.observation, self.info = await self._call(
            self._env.reset, seed=episode.seed, options=dict(episode.options)
        )
        self._detail |= _flat(self.info)

    async def step(self, action: str) -> None:
        self.turns.append(Turn(self.observation, action))
        answer = await self._call(self._env.step, action)
        self.observation, reward, terminated, truncated, self.info = answer
        self._reward += float(reward)
        self._detail |= _flat(self.info)
        self.is_over = terminated or truncated

    def end(self, reason: str) -> None:
        """The episode ends here, and not by its environment."""
        self.is_over = True
        self._detail["ended_by"] = reason

    async def _call(self, method: Callable[..., T], *args: object, **kwargs: object) -> T:
        def guarded() -> T:
            with self._guard(self._episode.episode_id):
                return method(*args, **kwargs)

        try:
            # A thread only where the environment waits for others: most are not thread-safe.
            return await asyncio.to_thread(guarded) if self._episode.waits else guarded()
        except Exception as error:  # third-party engines raise anything
            raise _EnvironmentFault from error

    def outcome(self, *, duration_s: float) -> ItemOutcome:
        score = min(1.0, max(0.0, self._reward))
        return self._outcome(ItemStatus.OK, score, self._detail, duration_s)

    def broken(self, fault: _EnvironmentFault, *, duration_s: float) -> ItemOutcome:
        error = fault.__cause__
        detail = {"error": f"{type(error).__name__}: {error}"[:500]}
        return self._outcome(ItemStatus.ENV_ERROR, None, detail, duration_s)

    def _outcome(
        self,
        status: ItemStatus,
        score: float | None,
        detail: Mapping[str, Scalar],
        duration_s: float,
    ) -> ItemOutcome:
        return ItemOutcome(
            item_id=self._episode.episode_id,
            status=status,
            score=score,
            num_steps=len(self.turns),
            num_tokens=self.num_tokens,
            duration_s=duration_s,
            detail={**detail, "actions": _actions(self.turns)},
        )


async def _choose(
    game: _Game, *, policy: Policy, protocol: PromptProtocol, spec: RolloutSpec
) -> str | None:
    """The next action, or None when the episode ends for want of tokens or of room."""
    max_tokens = spec.sampling.max_tokens
    if spec.max_episode_tokens is not None:
        max_tokens = min(max_tokens, spec.max_episode_tokens - game.num_tokens)
        if max_tokens <= 0:
            game.end("token_budget")
            return None
    sampling = replace(spec.sampling, max_tokens=max_tokens, stop=protocol.stop)
    completion = await _ask(game, policy=policy, protocol=protocol, sampling=sampling)
    game.num_tokens += completion.num_tokens
    if completion.finish_reason is FinishReason.PROMPT_TOO_LONG:
        game.end("context_window")
        return None
    return protocol.action(completion.text)


async def _ask(
    game: _Game, *, policy: Policy, protocol: PromptProtocol, sampling: Sampling
) -> Completion:
    """Asks for the next action with the longest history that fits; see `_shorter_and_shorter`."""
    shorter = _shorter_and_shorter(game, protocol)
    prompt: Prompt | None = next(shorter)
    while prompt is not None:
        request = GenerationRequest(sampling=sampling, messages=prompt.messages, text=prompt.text)
        if game.window.seems_too_small_for(request):
            prompt = next(shorter, None)
            if prompt is not None:
                continue
        [completion] = await policy.generate([request])
        game.window.learn(request, completion)
        if completion.finish_reason is not FinishReason.PROMPT_TOO_LONG:
            break
        prompt = next(shorter, None)
    return completion


def _shorter_and_shorter(game: _Game, protocol: PromptProtocol) -> Iterator[Prompt]:
    """The prompt with all turns, then with a quarter fewer of the oldest, and so on.

    The first turn states the task, so it stays. A protocol may show the last turns only: prompts
    that are equal count once.
    """
    kept = list(game.turns)
    shown: Prompt | None = None
    while True:
        prompt = protocol.prompt(kept, game.observation, game.info)
        if prompt != shown:
            yield prompt
        if len(kept) <= 1:
            return
        shown = prompt
        kept = [kept[0], *kept[1 + max(1, (len(kept) - 1) // 4) :]]


class _Window:
    """What an episode has learnt of the context window, to spare prompts that cannot fit."""

    MARGIN = 1.05
    """Prompts of one step differ in tokens a character by less."""

    def __init__(self) -> None:
        self._max_tokens = math.inf
        self._last: tuple[GenerationRequest, int] | None = None

    def learn(self, request: GenerationRequest, completion: Completion) -> None:
        self._last = request, completion.num_prompt_tokens
        if completion.max_prompt_tokens:
            self._max_tokens = completion.max_prompt_tokens

    def seems_too_small_for(self, request: GenerationRequest) -> bool:
        if self._last is None or self._max_tokens == math.inf:
            return False
        last, num_tokens = self._last
        tokens_per_char = num_tokens / max(1, num_chars(last))
        return num_chars(request) * tokens_per_char > self.MARGIN * self._max_tokens


def _flat(info: Mapping[str, object]) -> dict[str, Scalar]:
    """The scalar facts of an info, e.g. the task type and goal."""
    return {k: v for k, v in info.items() if isinstance(v, str | int | float | bool)}


def _actions(turns: Sequence[Turn]) -> str:
    return " | ".join(turn.action for turn in turns)[:ACTIONS_KEPT]
