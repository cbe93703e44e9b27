"""ALFWorld as a `gymnasium.Env`: household tasks in text, over the real engine.

Observations are the engine's own words; only its welcome banner is dropped. An action that the
engine does not know changes nothing and is answered "Nothing happens.", one that begins with
"think:" is answered "OK.", and both use up a step. Deterministic: the same game and actions give
the same observations. One environment plays one game at a time and is reused for the next; it must
not be shared between threads.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypedDict

import gymnasium

from envs.agent_data import VARIABLE, find_agent_data
from envs.alfworld_dialect import Dialect
from envs.alfworld_engine import Engine, EngineKind, Observed, make_engine
from envs.alfworld_games import ROOT, collect_games, task_type_of
from envs.errors import EnvironmentBroken
from envs.text_space import AnyText

BANNER: Final = "-= Welcome to TextWorld, ALFRED! =-\n\n"
THINK_PREFIX: Final = "think:"
THINK_ANSWER: Final = "OK."
_GOAL = re.compile(r"Your task is to: (.*)")
_MAX_OBSERVATION_CHARS = 20_000
_MAX_ACTION_CHARS = 2_000


class ALFWorldInfo(TypedDict):
    """What `reset` and `step` tell beside the observation.

    Attributes:
        available_actions: Commands that do something now, sorted.
        dialect: How the game wants an object put down, a `envs.alfworld_dialect.Dialect`.
        won: Whether the goal holds.
        task_type: One of `envs.alfworld_layout.TaskType`; empty if the game has no ``traj_data``.
        goal: The task in words.
        game: Path of the game file.
        num_steps: Steps taken in this episode.
    """

    available_actions: list[str]
    dialect: str
    won: bool
    task_type: str
    goal: str
    game: str
    num_steps: int


class ALFWorldEnv(gymnasium.Env[str, str]):
    """A household game. Registered as ``rl_bench/ALFWorld-v0``.

    Reward 1.0 on the step that wins, else 0.0. ``terminated`` on the win, ``truncated`` after
    ``max_steps``. Actions of any script and length are taken.

    `reset` options, one of them:
        ``{"game": "<path of a game.tw-pddl>"}`` plays that file;
        ``{"episode": <index>}`` plays that game of ``games_dir/split``, in sorted order.
    Without options the seeded generator draws a game of ``games_dir/split``.

    Args:
        games_dir: Root of the ``json_2.1.1`` layout; default: the one in an agent's data folder
            (`envs.agent_data`). Not needed when every reset names its game.
        split: Folder below ``games_dir``. Agents have ``train`` only.
        max_steps: Steps until truncation.
        engine: ``auto``, ``fast`` or ``stock``; see `envs.alfworld_engine.make_engine`.
        cache_dir: Folder where translated games are shared between processes; ``None``: memory.

    Raises:
        ValueError: ``max_steps`` is not positive.
        EnvironmentBroken: The engine is not installed.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's own declaration

    def __init__(
        self,
        *,
        games_dir: str | None = None,
        split: str = "train",
        max_steps: int = 50,
        engine: EngineKind = "auto",
        cache_dir: str | None = None,
    ) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}, must be positive")
        self.max_steps = max_steps
        self.observation_space = AnyText(_MAX_OBSERVATION_CHARS)
        self.action_space = AnyText(_MAX_ACTION_CHARS)
        self._games_dir = find_agent_data(ROOT) if games_dir is None else Path(games_dir)
        self._split = split
        self._engine_key = (engine, cache_dir)
        self._engine: Engine | None = _take_engine(engine, cache_dir)
        self._game: Path | None = None
        self._dialect = Dialect.MOVE
        self._task_type = self._goal = ""
        self._num_steps = 0
        self._over = True
        self._seen = Observed("", (), won=False)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts a game; see the class for ``options``.

        Returns:
            The first observation (the room, then the task) and an `ALFWorldInfo`.

        Raises:
            EnvironmentBroken: There is no such game, or its file is broken.
        """
        super().reset(seed=seed)
        game = self._choose(options or {})
        engine = self._open_engine()
        try:
            if game != self._game:
                self._dialect = engine.load(game)
            self._seen = engine.reset()
        except EnvironmentBroken:
            self._forget()
            raise
        except Exception as error:
            self._forget()
            raise EnvironmentBroken(f"game {game} does not start: {_told(error)}") from error
        self._game, self._num_steps, self._over = game, 0, self._seen.won
        self._task_type = task_type_of(game)
        observation = self._seen.feedback.removeprefix(BANNER)
        found = _GOAL.search(observation)
        self._goal = found[1].strip() if found else ""
        return observation, self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Obeys a command.

        Raises:
            gymnasium.error.ResetNeeded: The episode is over, or none was begun.
            EnvironmentBroken: The engine failed on the command; reset before going on.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        command = str(action).strip()
        self._num_steps += 1
        if command.lower().startswith(THINK_PREFIX):
            observation = THINK_ANSWER
        else:
            observation = self._obey(command)
        won = self._seen.won
        truncated = not won and self._num_steps >= self.max_steps
        self._over = won or truncated
        return observation, float(won), won, truncated, self._info()

    def close(self) -> None:
        """Hands the engine back, to be used by the next environment of this process."""
        if self._engine is not None:
            _FREE_ENGINES.setdefault(self._engine_key, []).append(self._engine)
            self._engine = None
        self._game, self._over = None, True

    def _obey(self, command: str) -> str:
        try:
            self._seen = self._open_engine().step(command)
        except Exception as error:
            game = self._game
            self._forget()
            raise EnvironmentBroken(
                f"game {game} broke on {command[:200]!r}: {_told(error)}"
            ) from error
        return self._seen.feedback

    def _open_engine(self) -> Engine:
        if self._engine is None:
            raise EnvironmentBroken("the environment is closed")
        return self._engine

    def _forget(self) -> None:
        """After a failure nothing is known of the engine's state, so the game is loaded anew."""
        self._game, self._over = None, True

    def _choose(self, options: Mapping[str, Any]) -> Path:
        if "game" in options:
            return Path(options["game"])
        if self._games_dir is None:
            raise EnvironmentBroken(
                "no game: give reset options a 'game', make with games_dir, or set "
                f"{VARIABLE} to a folder that holds {ROOT}/train"
            )
        games = _collected(self._games_dir, self._split)
        if not games:
            raise EnvironmentBroken(f"no solvable games in {self._games_dir / self._split}")
        if "episode" not in options:
            return games[int(self.np_random.integers(len(games)))]
        index = int(options["episode"])
        if not 0 <= index < len(games):
            raise EnvironmentBroken(f"episode {index}: {self._split} has 0 to {len(games) - 1}")
        return games[index]

    def _info(self) -> dict[str, Any]:
        info = ALFWorldInfo(
            available_actions=list(self._seen.admissible),
            dialect=self._dialect.value,
            won=self._seen.won,
            task_type=self._task_type,
            goal=self._goal,
            game=str(self._game),
            num_steps=self._num_steps,
        )
        return dict(info)


_FREE_ENGINES: dict[tuple[EngineKind, str | None], list[Engine]] = {}
"""Engines of closed environments: their libraries cannot be unmapped, so they are used again."""


def _take_engine(kind: EngineKind, cache_dir: str | None) -> Engine:
    free = _FREE_ENGINES.get((kind, cache_dir))
    if free:
        return free.pop()
    return make_engine(kind, cache_dir=None if cache_dir is None else Path(cache_dir))


@lru_cache(maxsize=16)
def _collected(folder: Path, split: str) -> Sequence[Path]:
    return collect_games(folder, split)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
