"""What a task's evaluation is given in tests: scripted answers, or real episodes scripted."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import gymnasium

import envs  # noqa: F401  registers the environments
from envs.protocols import get_protocol
from rl_bench.config import JudgeConfig
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, Sampling
from rl_bench.grading_status import Tally
from rl_bench.judges.base import Judge
from rl_bench.rollout import Policy, RolloutSpec, play_episode
from rl_bench.tasks.base import Episode, ItemOutcome


def said(text: str) -> Completion:
    """A completion with some numbers of tokens, which no test here reads."""
    return Completion(text=text, num_prompt_tokens=5, num_tokens=7, finish_reason=FinishReason.STOP)


class ScriptedContext:
    """Answers each prompt's last message, or text, with what ``answer`` says; lends ``judge``."""

    def __init__(
        self,
        answer: Callable[[str], str],
        judge: Judge | None = None,
        *,
        repeat: int = 0,
        tally: Tally | None = None,
    ) -> None:
        self.answer = answer
        self.lent = judge
        self.repeat = repeat
        self.tally = tally or Tally("r", task="t")
        self.requests: list[GenerationRequest] = []

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.requests = list(requests)
        prompts = [r.messages[-1]["content"] if r.messages else r.text or "" for r in requests]
        return [said(self.answer(prompt)) for prompt in prompts]

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        raise AssertionError("a static task plays no episodes")

    def judge(self, config: JudgeConfig) -> Judge:
        assert self.lent is not None, "a task scored by rule asks no judge"
        return self.lent


class PlayingContext:
    """Plays real episodes with ``policy``, each in an environment of its own; lends ``judge``.

    Attributes:
        protocol: What the last episodes were asked for with.
        num_played: Episodes that were asked for.
    """

    def __init__(
        self,
        policy: Policy,
        judge: Judge | None = None,
        *,
        sampling: Sampling,
        max_steps: int,
        repeat: int = 0,
    ) -> None:
        self.policy = policy
        self.lent = judge
        self.repeat = repeat
        self.tally = Tally("r", task="t")
        self.protocol = ""
        self.num_played = 0
        self._sampling = sampling
        self._max_steps = max_steps

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        raise AssertionError("an interactive task asks for episodes")

    def judge(self, config: JudgeConfig) -> Judge:
        assert self.lent is not None, "the reward is the environment's"
        return self.lent

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        self.protocol = protocol
        self.num_played += len(episodes)
        return await self.play_all(episodes)

    async def play_all(self, episodes: Sequence[Episode]) -> list[ItemOutcome]:
        """Plays them at the same time."""
        return list(await asyncio.gather(*(self._play_alone(each) for each in episodes)))

    async def _play_alone(self, episode: Episode) -> ItemOutcome:
        env = gymnasium.make(episode.env_id, **cast("dict[str, Any]", episode.env_kwargs)).unwrapped
        try:
            return await self.play_in(env, episode)
        finally:
            env.close()

    async def play_in(self, env: gymnasium.Env[str, str], episode: Episode) -> ItemOutcome:
        """Plays one episode in ``env``, as a rollout worker does."""
        spec = RolloutSpec(
            protocol=self.protocol, sampling=self._sampling, max_steps=self._max_steps
        )
        return await play_episode(
            env, episode, policy=self.policy, protocol=get_protocol(self.protocol), spec=spec
        )
