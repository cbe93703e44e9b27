"""ALFWorld's games, from the two archives of its public home to the folders that the task reads.

One archive holds the games, the other ALFRED's trajectories. A trial of a split is kept when both
have it; of a trajectory, which also lists pictures and planner actions, only what the task reads.
Layout, here and there: ``json_2.1.1/<split>/<task>/<trial>/{game.tw-pddl,traj_data.json}``.
"""

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from rl_bench.counts import plural

TRAJECTORIES = "json_2.1.1_json.zip"
GAME_FILE = "game.tw-pddl"
TRAJ_FILE = "traj_data.json"
_MIN_GAMES = {"train": 3553, "valid_unseen": 134}
"""As published (Shridhar et al. 2021, table 1)."""
_NAME = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
_KEPT = ("task_id", "task_type", "pddl_params")


def unpack_split(downloads: Mapping[str, Path], target: Path, *, min_games: int = -1) -> None:
    """Writes the trials of the split that ``target`` is named for.

    Args:
        downloads: The archive of trajectories, and one of games, by name.
        target: The split's folder, e.g. ``.../json_2.1.1/train``.
        min_games: Fewer games are an error; by default the published number.

    Raises:
        zipfile.BadZipFile, KeyError, ValueError: An archive is damaged, or is another one.
    """
    split = target.name
    wanted = _MIN_GAMES[split] if min_games < 0 else min_games
    [archive] = (path for name, path in downloads.items() if name != TRAJECTORIES)
    with (
        zipfile.ZipFile(archive) as games,
        zipfile.ZipFile(downloads[TRAJECTORIES]) as trajectories,
    ):
        told = set(trajectories.namelist())
        trials = [
            trial
            for name in games.namelist()
            if (trial := _trial(name, split)) and f"{trial}/{TRAJ_FILE}" in told
        ]
        if len(trials) < wanted:
            raise ValueError(f"{plural(len(trials), 'game')} of {split} found, {wanted} wanted")
        for trial in trials:
            folder = target / trial.parent.name / trial.name
            folder.mkdir(parents=True)
            (folder / GAME_FILE).write_bytes(games.read(f"{trial}/{GAME_FILE}"))
            told_of = trajectories.read(f"{trial}/{TRAJ_FILE}")
            (folder / TRAJ_FILE).write_text(_slim(told_of), encoding="utf-8")


def _trial(name: str, split: str) -> PurePosixPath | None:
    """The trial's folder if ``name`` is a game of ``split``, and nothing that leads elsewhere."""
    path = PurePosixPath(name)
    fits = len(path.parts) == 5 and path.parts[1] == split and path.name == GAME_FILE
    return path.parent if fits and all(_NAME.fullmatch(part) for part in path.parts) else None


def _slim(content: bytes) -> str:
    full = json.loads(content)
    scene = {key: full["scene"][key] for key in ("floor_plan", "scene_num")}
    told = [{"task_desc": each["task_desc"]} for each in full["turk_annotations"]["anns"]]
    slim = {key: full[key] for key in _KEPT}
    return json.dumps(slim | {"scene": scene, "turk_annotations": {"anns": told}})
