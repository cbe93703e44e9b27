"""Train data as the workspace lays them out, turned into demonstrations and worlds."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from envs.alfworld_games import GAME_FILE
from envs.protocol import ChatMessage, Turn
from envs.protocols import get_protocol
from rl_bench.agents.reference.rollouts import HouseholdWorld, WordProblemWorld, World
from rl_bench.agents.reference.settings import SettingsError, TaskMeta, TrainSettings

Demo = list[ChatMessage]


@dataclass(frozen=True, slots=True)
class WordProblemData:
    """GSM8K's train rows and its prompt template."""

    prompts: tuple[str, ...]
    answers: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> "WordProblemData":
        """Reads ``train.jsonl`` and ``prompt.txt``."""
        template = (folder / "prompt.txt").read_text(encoding="utf-8")
        lines = (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        return cls(
            tuple(template.replace("{question}", row["question"]) for row in rows),
            tuple(str(row["answer"]) for row in rows),
        )

    def demos(self) -> list[Demo]:
        """Question and worked answer, as chat."""
        return [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
            for prompt, answer in zip(self.prompts, self.answers, strict=True)
        ]


def household_demos(folder: Path, *, protocol: str) -> list[Demo]:
    """Expert episodes as chats, from ``train.jsonl``."""
    speak = get_protocol(protocol)
    demos: list[Demo] = []
    for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines():
        turns = [Turn(t["observation"], t["action"]) for t in json.loads(line)["turns"]]
        *before, last = turns
        messages = speak.prompt(before, last.observation).messages
        if messages is None:
            raise SettingsError(f"protocol {protocol} has no chat messages")
        demos.append([*messages, {"role": "assistant", "content": last.action}])
    return demos


def household_games(folder: Path) -> list[Path]:
    """The train games, sorted."""
    return sorted(folder.rglob(GAME_FILE))


def load_demos(task: TaskMeta) -> list[Demo]:
    """All demonstrations of a task, in a fixed order.

    Raises:
        SettingsError: The agent does not know the kind of task.
    """
    if task.kind == "gsm8k":
        return WordProblemData.read(task.data).demos()
    if task.kind == "alfworld":
        return household_demos(task.data, protocol=task.protocol)
    raise SettingsError(f"the reference agent does not know tasks of kind '{task.kind}'")


def load_world(
    task: TaskMeta, settings: TrainSettings, *, tokenizer: PreTrainedTokenizerBase
) -> World:
    """The world that a task's rollouts take place in."""
    pool = settings.grpo_pool or None
    if task.kind == "gsm8k":
        data = WordProblemData.read(task.data)
        return WordProblemWorld(
            tokenizer=tokenizer,
            prompts=data.prompts[:pool],
            answers=data.answers[:pool],
            max_tokens=task.max_tokens,
            temperature=settings.grpo_temperature,
        )
    if task.kind == "alfworld":
        return HouseholdWorld(
            tokenizer=tokenizer,
            games=household_games(task.data)[:pool],
            protocol=task.protocol,
            max_steps=task.max_steps,
            max_tokens=task.max_tokens,
            temperature=settings.grpo_temperature,
            step_penalty=settings.step_penalty,
        )
    raise SettingsError(f"the reference agent does not know tasks of kind '{task.kind}'")


def choose(demos: Sequence[Demo], *, num: int, seed: int) -> list[Demo]:
    """``num`` of ``demos`` at random; all of them when ``num`` is 0."""
    if num == 0 or num >= len(demos):
        return list(demos)
    return random.Random(seed).sample(list(demos), num)  # noqa: S311  not for secrets
