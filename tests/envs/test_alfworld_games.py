"""The generator of household games: deterministic, solvable, splits apart."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs.alfworld_engine import FastEngine, GameStore
from envs.alfworld_games import (
    Split,
    collect_games,
    game_digest,
    generate_games,
    load_game,
    sample_layouts,
    split_of,
    task_type_of,
)
from envs.alfworld_layout import LayoutSettings, TaskType
from envs.errors import EnvironmentBroken


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_equal_arguments_give_equal_bytes(tmp_path: Path) -> None:
    generate_games(tmp_path / "a", split="train", num_games=12, seed=3)
    generate_games(tmp_path / "b", split="train", num_games=12, seed=3)
    generate_games(tmp_path / "c", split="train", num_games=12, seed=4)
    assert _contents(tmp_path / "a") == _contents(tmp_path / "b")
    assert _contents(tmp_path / "a") != _contents(tmp_path / "c")


def test_every_type_has_its_share(games: list[Path]) -> None:
    assert Counter(map(task_type_of, games)) == {str(t): 2 for t in TaskType}


def test_the_engine_wins_by_the_walkthrough_and_not_before(games: list[Path]) -> None:
    engine = FastEngine(GameStore())
    for game in games:
        engine.load(game)
        seen = engine.reset()
        for command in load_game(game)["walkthrough"]:
            assert not seen.won
            assert command in seen.admissible, (game, command)
            seen = engine.step(command)
        assert seen.won, game


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("num_receptacles", "num_objects"), [(3, 2), (5, 3), (9, 12)])
def test_layouts_of_every_size_are_solvable_and_need_every_delivery(
    num_receptacles: int, num_objects: int, closed: bool
) -> None:
    settings = LayoutSettings(
        num_receptacles=num_receptacles, num_objects=num_objects, closed=closed
    )
    for layout in sample_layouts(split="train", num_games=30, seed=1, settings=settings):
        plan = layout.walkthrough()
        assert layout.is_solved_by(plan)
        assert not layout.is_solved_by(plan[:-1])
        assert len(layout.receptacles) == num_receptacles
        lamps = layout.task_type is TaskType.LOOK
        assert len(layout.places) == num_objects + lamps


def test_the_check_of_a_plan_rejects_wrong_plans() -> None:
    settings = LayoutSettings(task_types=(TaskType.CLEAN,))
    [layout] = sample_layouts(split="train", num_games=1, seed=2, settings=settings)
    plan = layout.walkthrough()
    untreated = [command for command in plan if not command.startswith("clean ")]
    assert not layout.is_solved_by(untreated)
    assert not layout.is_solved_by([c for c in plan if not c.startswith("take ")])
    assert not layout.is_solved_by(["go to nowhere 1", "dance", *plan])


def test_splits_share_no_room_whatever_the_seed() -> None:
    small = LayoutSettings(task_types=(TaskType.PLACE,), num_receptacles=4, num_objects=2)
    rooms: dict[Split, set[str]] = {"train": set(), "valid_unseen": set()}
    digests: list[str] = []
    for split in rooms:
        for seed in (0, 1):
            for layout in sample_layouts(split=split, num_games=80, seed=seed, settings=small):
                assert split_of(layout) == split
                rooms[split].add(layout.room_digest)
            digests.append(layout.digest)
    assert rooms["train"] & rooms["valid_unseen"] == set()
    assert len(rooms["train"]) > 40


def test_games_of_a_split_differ_by_content(games: list[Path], tmp_path: Path) -> None:
    assert len({game_digest(game) for game in games}) == len(games)
    copied = tmp_path / "elsewhere.tw-pddl"
    data = json.loads(games[0].read_text())
    data["pddl_problem"] = data["pddl_problem"].replace("(problem plan_", "(problem  renamed_")
    copied.write_text(json.dumps(data, indent=1))
    assert game_digest(copied) == game_digest(games[0])


def test_games_that_cannot_be_are_an_error(tmp_path: Path) -> None:
    impossible = LayoutSettings(task_types=(TaskType.COOL,), rooms=("bathroom",))
    with pytest.raises(EnvironmentBroken, match="ask for fewer games"):
        generate_games(tmp_path, split="train", num_games=1, seed=0, settings=impossible)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"num_receptacles": 2}, "num_receptacles"),
        ({"num_objects": 1}, "num_objects"),
        ({"rooms": ("cellar",)}, "cellar"),
        ({"task_types": ()}, "task_types"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        LayoutSettings(**settings)


def test_collecting_sorts_and_skips_what_cannot_be_played(tmp_path: Path) -> None:
    made = generate_games(tmp_path, split="train", num_games=6, seed=1)
    unsolvable, unmarked = made[0], made[1]
    for game, change in ((unsolvable, {"solvable": False}), (unmarked, {"solvable": None})):
        game.write_text(json.dumps(json.loads(game.read_text()) | change))
    made[2].parent.rename(made[2].parent.with_name("trial_movable_recep"))
    assert collect_games(tmp_path, "train") == sorted(made[3:])
    assert collect_games(tmp_path, "no_such_split") == []
