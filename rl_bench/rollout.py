"""Plays one episode: environment and policy take turns until the episode ends.

Plain and single-threaded; concurrency comes from playing many episodes in one event loop. Owns the
turn-taking, the step budget and the context window; leaves prompts to the protocol, actions to the
policy, and process boundaries to `actors.rollout_worker`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import gymnasium

from envs.protocol import PromptProtocol, Turn
from rl_bench.engine.base import (
    Completion,
    FinishReason,
    GenerationRequest,
    Sampling,
)
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus, Scalar

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
    """How episodes of one evaluation are played."""

    protocol: str
    sampling: Sampling
    max_steps: int


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
        The outcome: score 1 if the episode's summed reward reached 1, else that sum (clipped to
        [0, 1]); ``env_error`` with the message when the environment raised.

    Raises:
        GraderError: The policy failed; nothing can be said of the episode.
    """
    started = time.monotonic()
    turns: list[Turn] = []
    num_tokens = 0
    reward_sum = 0.0
    detail: dict[str, Scalar] = {}
    try:
        with guard(episode.episode_id):
            observation, info = env.reset(seed=episode.seed, options=dict(episode.options))
    except Exception as error:  # noqa: BLE001  third-party engines raise anything
        return _broken(episode, error, turns, num_tokens, started)
    detail |= _flat(info)
    for _ in range(spec.max_steps):
        completion = await _next(policy, protocol, turns, observation, spec.sampling)
        num_tokens += completion.num_tokens
        if completion.finish_reason is FinishReason.PROMPT_TOO_LONG:
            detail["ended_by"] = "context_window"
            break
        action = protocol.action(completion.text)
        turns.append(Turn(observation, action))
        try:
            with guard(episode.episode_id):
                observation, reward, terminated, truncated, info = env.step(action)
        except Exception as error:  # noqa: BLE001  third-party engines raise anything
            return _broken(episode, error, turns, num_tokens, started)
        reward_sum += float(reward)
        if terminated or truncated:
            break
    return ItemOutcome(
        item_id=episode.episode_id,
        status=ItemStatus.OK,
        score=min(1.0, max(0.0, reward_sum)),
        num_steps=len(turns),
        num_tokens=num_tokens,
        duration_s=time.monotonic() - started,
        detail=detail | {"actions": _actions(turns)},
    )


async def _next(
    policy: Policy,
    protocol: PromptProtocol,
    turns: Sequence[Turn],
    observation: str,
    sampling: Sampling,
) -> Completion:
    """Asks for the next action; drops the oldest turns but the first until the prompt fits.

    The first turn states the task, so it stays.
    """
    kept = list(turns)
    while True:
        prompt = protocol.prompt(kept, observation)
        request = GenerationRequest(sampling=sampling, messages=prompt.messages, text=prompt.text)
        [completion] = await policy.generate([request])
        if completion.finish_reason is not FinishReason.PROMPT_TOO_LONG or len(kept) <= 1:
            return completion
        num_dropped = max(1, (len(kept) - 1) // 4)
        kept = [kept[0], *kept[1 + num_dropped :]]


def _broken(
    episode: Episode, error: Exception, turns: Sequence[Turn], num_tokens: int, started: float
) -> ItemOutcome:
    return ItemOutcome(
        item_id=episode.episode_id,
        status=ItemStatus.ENV_ERROR,
        score=None,
        num_steps=len(turns),
        num_tokens=num_tokens,
        duration_s=time.monotonic() - started,
        detail={"error": f"{type(error).__name__}: {error}"[:500], "actions": _actions(turns)},
    )


def _flat(info: dict[str, object]) -> dict[str, Scalar]:
    """The scalar facts of a reset's info, e.g. the task type and goal."""
    return {k: v for k, v in info.items() if isinstance(v, str | int | float | bool)}


def _actions(turns: Sequence[Turn]) -> str:
    return " | ".join(turn.action for turn in turns)[:ACTIONS_KEPT]
