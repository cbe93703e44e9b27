"""The Gymnasium environment: its contract, its errors, and that it is cheap to import."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import envs  # noqa: F401  registers the environments
from envs.alfworld import BANNER, ALFWorldEnv
from envs.alfworld_dialect import Dialect
from envs.alfworld_engine import Observed
from envs.alfworld_games import load_game
from envs.errors import EnvironmentBroken


@pytest.fixture
def env(games_dir: Path) -> Iterator[ALFWorldEnv]:
    made = ALFWorldEnv(games_dir=str(games_dir), split="train", max_steps=20)
    yield made
    made.close()


def test_gymnasium_s_own_checks_pass(games_dir: Path) -> None:
    made = gymnasium.make("rl_bench/ALFWorld-v0", games_dir=str(games_dir), split="train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped, skip_render_check=True)
    made.close()


def test_the_walkthrough_wins_once_at_the_end(env: ALFWorldEnv, games: list[Path]) -> None:
    observation, info = env.reset(options={"game": str(games[0])})
    assert BANNER not in observation
    assert info["goal"]
    assert info["goal"] in observation
    assert info["task_type"] == "look_at_obj_in_light"
    results = [env.step(command) for command in load_game(games[0])["walkthrough"]]
    assert [reward for _, reward, *_ in results] == [0.0] * (len(results) - 1) + [1.0]
    assert [terminated for _, _, terminated, *_ in results].count(True) == 1
    assert results[-1][4]["won"]
    assert not any(truncated for *_, truncated, _ in results)


def test_the_same_actions_give_the_same_episode(env: ALFWorldEnv, games_dir: Path) -> None:
    other = ALFWorldEnv(games_dir=str(games_dir), split="train", max_steps=20)
    for seed in (1, 2):
        assert env.reset(seed=seed) == other.reset(seed=seed)
        env.action_space.seed(seed)
        for step in range(6):
            action = env._info()["available_actions"][step]
            assert env.step(action) == other.step(action)
    other.close()


def test_seeds_draw_different_games(env: ALFWorldEnv) -> None:
    drawn = {env.reset(seed=seed)[1]["game"] for seed in range(20)}
    assert len(drawn) > 3


def test_an_episode_number_names_a_game_in_sorted_order(
    env: ALFWorldEnv, games: list[Path]
) -> None:
    assert env.reset(options={"episode": 3})[1]["game"] == str(games[3])
    with pytest.raises(EnvironmentBroken, match="has 0 to 11"):
        env.reset(options={"episode": 12})


def test_the_step_limit_truncates(games: list[Path]) -> None:
    env = ALFWorldEnv(max_steps=2)
    env.reset(options={"game": str(games[0])})
    assert env.step("look")[2:4] == (False, False)
    assert env.step("look")[2:4] == (False, True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")
    env.close()


def test_a_win_on_the_last_step_is_a_win(games: list[Path]) -> None:
    plan = load_game(games[0])["walkthrough"]
    env = ALFWorldEnv(max_steps=len(plan))
    env.reset(options={"game": str(games[0])})
    last = [env.step(command) for command in plan][-1]
    assert last[1:4] == (1.0, True, False)
    env.close()


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("think: where is it?", "OK."),
        ("Think: hm", "OK."),
        ("dance", "Nothing happens."),
        ("", "Nothing happens."),
        ("走到桌子", "Nothing happens."),
        ("x" * 5000, "Nothing happens."),
    ],
)
def test_talk_and_nonsense_cost_a_step(env: ALFWorldEnv, action: str, answer: str) -> None:
    _, before = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(action)
    assert (observation, reward, terminated, truncated) == (answer, 0.0, False, False)
    assert info["available_actions"] == before["available_actions"]
    assert info["num_steps"] == 1


def test_one_environment_plays_game_after_game(env: ALFWorldEnv, games: list[Path]) -> None:
    for game in [*games, games[0]]:
        _, info = env.reset(options={"game": str(game)})
        assert info["game"] == str(game)
        for command in load_game(game)["walkthrough"]:
            *_, info = env.step(command)
        assert info["won"]


def test_a_step_needs_a_reset(env: ALFWorldEnv) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_no_game_is_an_error_not_a_loss(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBroken, match="no game"):
        ALFWorldEnv().reset()
    with pytest.raises(EnvironmentBroken, match="no solvable games"):
        ALFWorldEnv(games_dir=str(tmp_path)).reset()
    with pytest.raises(EnvironmentBroken, match="cannot be read"):
        ALFWorldEnv().reset(options={"game": str(tmp_path / "none.tw-pddl")})


def test_after_a_broken_game_the_next_one_plays(
    env: ALFWorldEnv, games: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "game.tw-pddl"
    broken.write_text("{")
    with pytest.raises(EnvironmentBroken):
        env.reset(options={"game": str(broken)})
    assert env.reset(options={"game": str(games[0])})[1]["won"] is False


class _FailingEngine:
    """An engine that breaks on a legal command."""

    def load(self, game: Path) -> Dialect:
        return Dialect.MOVE

    def reset(self) -> Observed:
        return Observed("a room", ("look",), won=False)

    def step(self, command: str) -> Observed:
        raise RuntimeError("planner lost its mind")


def test_an_engine_that_raises_on_a_legal_action_is_told_apart(games: list[Path]) -> None:
    env = ALFWorldEnv()
    env._engine = _FailingEngine()
    env.reset(options={"game": str(games[0])})
    with pytest.raises(EnvironmentBroken, match="planner lost its mind") as caught:
        env.step("look")
    assert "'look'" in str(caught.value)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_a_closed_environment_hands_its_engine_on() -> None:
    first = ALFWorldEnv()
    engine = first._engine
    first.close()
    first.close()
    second = ALFWorldEnv()
    assert second._engine is engine
    third = ALFWorldEnv()
    assert third._engine is not engine
    second.close()
    third.close()


def test_a_step_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_steps"):
        ALFWorldEnv(max_steps=0)


def test_importing_the_package_loads_no_engine() -> None:
    code = (
        "import sys, envs, gymnasium; assert 'rl_bench/ALFWorld-v0' in gymnasium.registry;"
        "print([m for m in ('torch', 'ray', 'textworld', 'alfworld') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "[]"
