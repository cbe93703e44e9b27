"""Online rollouts: what a policy does in a task's world, and what it earns.

`WordProblemWorld` is one turn long: the reward says whether the number is right. `HouseholdWorld`
plays many households at once, turn by turn, in the real environment; the environment's words enter
the sequence masked. Both give the tokens and log-probabilities that the policy gradient needs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from envs.alfworld import ALFWorldEnv
from envs.protocol import Prompt, PromptProtocol, Turn
from rl_bench.agents.reference.sampler import BatchSampler, Conversation
from rl_bench.agents.reference.tokens import decode, encode, encode_prompt, end_of_turn

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(slots=True)
class Rollout:
    """A finished conversation and its reward."""

    conversation: Conversation
    reward: float
    solved: bool


class World(Protocol):
    """A pool of problems or games to learn from."""

    def __len__(self) -> int:
        """Problems or games in the pool."""
        ...

    def play(self, indices: Sequence[int], *, model: PreTrainedModel) -> list[Rollout]:
        """One rollout for each of ``indices`` (repeated ones are separate rollouts)."""
        ...


def final_number(text: str) -> float | None:
    """The number after ``####``, else the last one."""
    _, mark, tail = text.rpartition("####")
    numbers = _NUMBER.findall(tail)
    if not numbers:
        return None
    return float((numbers[0] if mark else numbers[-1]).replace(",", ""))


@dataclass(slots=True, kw_only=True)
class WordProblemWorld:
    """Word problems: ``prompts`` are the evaluation's, ``answers`` reference solutions."""

    tokenizer: PreTrainedTokenizerBase
    prompts: Sequence[Prompt]
    answers: Sequence[str]
    max_tokens: int
    temperature: float = 1.0

    def __len__(self) -> int:
        return len(self.prompts)

    def play(self, indices: Sequence[int], *, model: PreTrainedModel) -> list[Rollout]:
        """See `World.play`."""
        end = end_of_turn(self.tokenizer)
        sampler = BatchSampler(model, end_id=end, temperature=self.temperature)
        rows = sampler.start(
            [encode_prompt(self.tokenizer, self.prompts[index]) for index in indices]
        )
        turns = sampler.turn(max_tokens=self.max_tokens, is_last=True)
        texts = [decode(self.tokenizer, turn) for turn in turns]
        rollouts = []
        for index, row, text in zip(indices, rows, texts, strict=True):
            said = final_number(text)
            right = said is not None and said == final_number(self.answers[index])
            rollouts.append(Rollout(row, float(right), right))
        return rollouts


@dataclass(slots=True)
class _Play:
    """One game in progress."""

    env: ALFWorldEnv
    row: Conversation
    observation: str
    turns: list[Turn] = field(default_factory=list)
    won: bool = False
    over: bool = False


@dataclass(slots=True, kw_only=True)
class HouseholdWorld:
    """ALFWorld games, several in one thread, each in an environment of its own.

    Args:
        tokenizer: With a chat template under which a prompt is a prefix of the one after it.
        games: Game files.
        protocol: A chat protocol.
        max_steps: Steps an episode.
        max_tokens: Tokens a step.
        step_penalty: Taken from a won episode's reward for each step.
    """

    tokenizer: PreTrainedTokenizerBase
    games: Sequence[Path]
    protocol: PromptProtocol
    max_steps: int
    max_tokens: int
    temperature: float = 1.0
    step_penalty: float = 0.0
    _envs: list[ALFWorldEnv] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.games)

    def play(self, indices: Sequence[int], *, model: PreTrainedModel) -> list[Rollout]:
        """See `World.play`."""
        while len(self._envs) < len(indices):
            self._envs.append(ALFWorldEnv(max_steps=self.max_steps))
        sampler = BatchSampler(model, end_id=self._end, temperature=self.temperature)
        plays = self._begin(indices, sampler)
        active = list(plays)
        while active:
            sampler.keep([play.row for play in active])
            turns = sampler.turn(max_tokens=self.max_tokens)
            texts = [decode(self.tokenizer, turn) for turn in turns]
            for play, text in zip(active, texts, strict=True):
                self._advance(play, text)
            active = [play for play in active if not play.over]
        return [self._finish(play) for play in plays]

    @property
    def _end(self) -> int:
        return end_of_turn(self.tokenizer)

    def _begin(self, indices: Sequence[int], sampler: BatchSampler) -> list[_Play]:
        seen = [
            env.reset(options={"game": str(self.games[index])})
            for env, index in zip(self._envs, indices, strict=False)
        ]
        prompts = [self.protocol.prompt([], observation, info) for observation, info in seen]
        rows = sampler.start([encode_prompt(self.tokenizer, prompt) for prompt in prompts])
        return [
            _Play(env, row, observation)
            for env, row, (observation, _) in zip(self._envs, rows, seen, strict=False)
        ]

    def _advance(self, play: _Play, text: str) -> None:
        """Obeys ``text`` and lets the row read what comes of it, unless the episode is over."""
        action = self.protocol.action(text)
        play.turns.append(Turn(play.observation, action))
        play.observation, _, won, truncated, _ = play.env.step(action)
        play.won, play.over = won, won or truncated
        if play.over:
            return
        if play.row.completion_ids[-1] != self._end:  # cut at max_tokens: the turn still ends
            play.row.observe([self._end])
        play.row.observe(self._heard(play.observation))

    def _heard(self, observation: str) -> list[int]:
        """Tokens that the template puts between a turn's end and the next turn's beginning."""
        return encode(self.tokenizer, [{"role": "user", "content": observation}])

    def _finish(self, play: _Play) -> Rollout:
        reward = 1.0 - self.step_penalty * len(play.turns) if play.won else 0.0
        return Rollout(play.row, reward, play.won)
