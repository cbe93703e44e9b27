"""What a config says about AlpacaEval, checked and typed: choices, not data."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self, TypeVar

from rl_bench.config import DataSource, JudgeConfig, TaskConfig
from rl_bench.errors import ConfigError
from rl_bench.tasks.alpacaeval.annotators import annotator_name
from rl_bench.tasks.alpacaeval.data import best_length_control
from rl_bench.tasks.alpacaeval.winrate import LengthControl

E = TypeVar("E", bound=StrEnum)

_REVISION = "alpacaeval-1"
_KEYS = frozenset({"score", "empty_output", "length_control", "order_seed", "train_file"})


class PromptStyle(StrEnum):
    """How an instruction becomes a prompt: ``TaskConfig.protocol``."""

    CHAT = "chat"
    """The instruction is the user's message, as published."""
    BASE = "base"
    """Plain text under headings, for models without a chat template."""


class ScoreKind(StrEnum):
    """Which win rate is the score."""

    LC_WIN_RATE = "lc_win_rate"
    WIN_RATE = "win_rate"


class EmptyOutput(StrEnum):
    """What happens to an empty output."""

    LOSE = "lose"
    """It loses, and nobody is asked."""
    JUDGE = "judge"
    """It is judged like any other, as the package does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlpacaEvalSettings:
    """Choices of one AlpacaEval task.

    Attributes:
        folder: The data's; ``None`` for the built-in variant.
        length_control: ``settings.length_control``, or the most exact that the folder allows.
        order_seed: Draws the order in which the judge sees two outputs.
        train_file: In ``folder``; empty: the agent gets no train rows.
    """

    folder: Path | None
    judge: JudgeConfig
    annotator: str
    style: PromptStyle
    score: ScoreKind
    empty_output: EmptyOutput
    length_control: LengthControl
    order_seed: int
    train_file: str

    @classmethod
    def from_config(cls, config: TaskConfig) -> Self:
        """Reads a config.

        Raises:
            ConfigError: No judge or data folder, an unknown setting, or one outside its choices.
        """
        name, given = config.name, config.settings
        if config.judge is None:
            raise ConfigError(f"task {name}: there is no judge", cure="Set task.judge")
        if config.source is DataSource.PATH and config.data_path is None:
            raise ConfigError(
                f"task {name}: data_path is not set", cure="Set task.data_path to a folder"
            )
        if unknown := sorted(set(given) - _KEYS):
            raise ConfigError(
                f"task {name}: unknown setting {unknown[0]}",
                cure=f"Choices: {', '.join(sorted(_KEYS))}",
            )
        train_file = str(given.get("train_file", "alpaca_train.jsonl") or "")
        if not train_file and config.num_train is not None:
            raise ConfigError(
                f"task {name}: settings.train_file is empty, so there are no train rows",
                cure="Set task.num_train=null too",
            )
        seed = given.get("order_seed", 0)
        if not isinstance(seed, int):
            raise ConfigError(f"task {name}: settings.order_seed is no whole number: {seed!r}")
        best = best_length_control(config.data_path)
        control = given.get("length_control", "auto")
        return cls(
            folder=config.data_path,
            judge=config.judge,
            annotator=annotator_name(config.judge.annotator),
            style=_choice(PromptStyle, config.protocol, key=f"task {name}: protocol"),
            score=_choice(
                ScoreKind,
                given.get("score", ScoreKind.LC_WIN_RATE),
                key=f"task {name}: settings.score",
            ),
            empty_output=_choice(
                EmptyOutput,
                given.get("empty_output", EmptyOutput.LOSE),
                key=f"task {name}: settings.empty_output",
            ),
            length_control=best
            if control == "auto"
            else _choice(LengthControl, control, key=f"task {name}: settings.length_control"),
            order_seed=seed,
            train_file=train_file,
        )

    @property
    def evaluator_version(self) -> str:
        """Annotator, judge, score, and by which method lengths are controlled."""
        parts = [_REVISION, self.annotator, self.judge.model_id, self.score.value]
        if self.score is ScoreKind.LC_WIN_RATE:
            parts.append(self.length_control.value)
        if self.empty_output is EmptyOutput.JUDGE:
            parts.append("empty_judged")
        return "/".join(parts)


def _choice(kind: type[E], value: object, *, key: str) -> E:
    for member in kind:
        if member == value:
            return member
    raise ConfigError(f"{key} is {value!r}", cure=f"Choices: {', '.join(kind)}")
