"""Demonstrations for ALFWorld: an expert plays train games, its turns become ``train.jsonl``.

A line holds ``game`` (path below the data folder), ``task_type``, ``goal`` and ``turns``, a list of
``{"observation", "action"}``; every episode was won in the real engine. Made once for the same
games, expert and step limit.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from envs.alfworld_games import ROOT, task_type_of
from envs.errors import EnvironmentBroken
from envs.protocol import Turn
from rl_bench.errors import PreflightError
from rl_bench.tasks.alfworld.data import AlfworldSettings
from rl_bench.tasks.made_once import make_once

LOG = logging.getLogger(__name__)
TRAIN_FILE = "train.jsonl"
_FORMAT = "1"
_MAX_SHOWN = 3


def make_demonstrations(
    games: Sequence[Path], *, settings: AlfworldSettings, max_steps: int, cache: Path
) -> Path:
    """The demonstrations' file for ``games``, from the cache or played now.

    Args:
        games: Train games.
        settings: Names the expert, and how many games (spread evenly) get a demonstration.
        max_steps: Games that the expert does not win within this many steps are left out.
        cache: Folder for the file and for translated games.

    Raises:
        PreflightError: Not one game was won.
    """
    chosen = _spread(games, settings.num_expert_games)
    key = hashlib.sha256(f"{_FORMAT}|{settings.expert}|{max_steps}".encode())
    for game in chosen:
        key.update(str(place_of(game)).encode())
        key.update(game.read_bytes())
    folder = cache / f"demonstrations-{key.hexdigest()[:16]}"

    def play_all(aside: Path) -> None:
        _play(
            chosen,
            file=aside / TRAIN_FILE,
            settings=settings,
            max_steps=max_steps,
            cache_dir=cache / "translations",
        )

    return make_once(folder, play_all) / TRAIN_FILE


def place_of(game: Path) -> Path:
    """Where a game lies below a data folder: ``json_2.1.1/<split>/<task>/<trial>/<file>``."""
    return Path(ROOT, *game.parts[-4:])


def _spread(games: Sequence[Path], number: int | None) -> Sequence[Path]:
    """``number`` games at even distances, so that every task type has its share."""
    if number is None or number >= len(games):
        return games
    return [games[index * len(games) // number] for index in range(number)]


def _play(
    games: Sequence[Path],
    *,
    file: Path,
    settings: AlfworldSettings,
    max_steps: int,
    cache_dir: Path,
) -> None:
    from envs.alfworld import ALFWorldEnv
    from envs.alfworld_expert import expert_trajectory

    env = ALFWorldEnv(max_steps=max_steps, cache_dir=str(cache_dir))
    failed: list[str] = []
    with file.open("w", encoding="utf-8") as out:
        for game in games:
            try:
                turns = expert_trajectory(env, game, expert=settings.expert)
            except (EnvironmentBroken, ValueError) as error:
                failed.append(str(error))
                continue
            out.write(json.dumps(_line(game, turns), ensure_ascii=False) + "\n")
    env.close()
    if failed and len(failed) == len(games):
        raise PreflightError(f"no demonstration could be played, e.g.: {failed[0]}")
    if failed:
        shown = "; ".join(failed[:_MAX_SHOWN])
        LOG.warning("%d of %d games have no demonstration: %s", len(failed), len(games), shown)


def _line(game: Path, turns: Sequence[Turn]) -> dict[str, object]:
    goal = turns[0].observation.rpartition("Your task is to: ")[2].strip() if turns else ""
    return {
        "game": place_of(game).as_posix(),
        "task_type": task_type_of(game),
        "goal": goal,
        "turns": [{"observation": t.observation, "action": t.action} for t in turns],
    }
