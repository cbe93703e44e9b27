"""The experts: they win, and the explorer only by what it has seen."""

import re
from pathlib import Path

import pytest

from envs.alfworld import ALFWorldEnv
from envs.alfworld_expert import ExpertKind, Explorer, expert_trajectory
from envs.alfworld_games import generate_games, load_game
from envs.alfworld_layout import LayoutSettings
from envs.errors import EnvironmentBroken


@pytest.fixture(scope="module")
def env() -> ALFWorldEnv:
    return ALFWorldEnv(max_steps=40)


@pytest.mark.parametrize("expert", ["explorer", "walkthrough"])
def test_experts_win_every_game(env: ALFWorldEnv, games: list[Path], expert: ExpertKind) -> None:
    for game in games:
        turns = expert_trajectory(env, game, expert=expert)
        observation, _ = env.reset(options={"game": str(game)})
        for turn in turns:
            assert turn.observation == observation
            observation, reward, *_ = env.step(turn.action)
        assert reward == 1.0


def test_the_explorer_acts_on_what_it_has_seen(env: ALFWorldEnv, games: list[Path]) -> None:
    for game in games:
        shown = ""
        for turn in expert_trajectory(env, game):
            shown += turn.observation
            for name in re.findall(r"[a-z]+ \d+", turn.action):
                assert name in shown, (game, turn.action)


def test_the_explorer_wins_in_crowded_rooms(env: ALFWorldEnv, tmp_path: Path) -> None:
    crowded = LayoutSettings(num_receptacles=9, num_objects=14)
    for game in generate_games(tmp_path, split="train", num_games=12, seed=9, settings=crowded):
        assert expert_trajectory(env, game)


@pytest.mark.parametrize(
    ("goal", "thing", "target", "verb"),
    [
        ("put a mug in desk.", "mug", "desk", ""),
        ("put some cloth on toilet.", "cloth", "toilet", ""),
        ("put two cd in safe.", "cd", "safe", ""),
        ("find two pillow and put them in sofa.", "pillow", "sofa", ""),
        ("clean some apple and put it in fridge.", "apple", "fridge", "clean"),
        ("put a hot egg in garbagecan.", "egg", "garbagecan", "heat"),
        ("put a cool pan in countertop.", "pan", "countertop", "cool"),
        ("cool some bread and put it in countertop.", "bread", "countertop", "cool"),
    ],
)
def test_goals_are_read(goal: str, thing: str, target: str, verb: str) -> None:
    expert = Explorer(goal)
    assert (expert._thing, expert._target_kind, expert._verb) == (thing, target, verb)


def test_a_goal_in_free_words_is_refused() -> None:
    with pytest.raises(ValueError, match="tidy up"):
        Explorer("tidy up the place")


def test_the_explorer_speaks_the_older_dialect() -> None:
    expert = Explorer("put a mug in desk.")
    room = "you see a desk 1, and a shelf 1.\n\nYour task is to: put a mug in desk."
    assert expert(room, ["go to desk 1", "go to shelf 1"]) == "go to desk 1"
    assert expert("On the desk 1, you see nothing.", ["go to shelf 1"]) == "go to shelf 1"
    take = "take mug 1 from shelf 1"
    assert expert("On the shelf 1, you see a mug 1.", [take]) == take
    assert expert("You pick up the mug 1.", ["go to desk 1"]) == "go to desk 1"
    put = "put mug 1 in/on desk 1"
    assert expert("On the desk 1, you see nothing.", ["look", put]) == put


def test_an_expert_that_does_not_win_says_so(games: list[Path]) -> None:
    env = ALFWorldEnv(max_steps=1)
    with pytest.raises(EnvironmentBroken, match="did not win"):
        expert_trajectory(env, games[-1])


def test_a_walkthrough_that_ends_early_says_so(
    env: ALFWorldEnv, games: list[Path], tmp_path: Path
) -> None:
    import json

    game = tmp_path / "game.tw-pddl"
    data = load_game(games[0])
    game.write_text(json.dumps({**data, "walkthrough": data["walkthrough"][:1]}))
    with pytest.raises(EnvironmentBroken, match="ends too early"):
        expert_trajectory(env, game, expert="walkthrough")
