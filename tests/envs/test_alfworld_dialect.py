"""Both dialects: recognised from the game, played by both engines, won by both experts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.alfworld_env import Report, play_both
from envs.alfworld import ALFWorldEnv
from envs.alfworld_dialect import (
    Dialect,
    dialect_of,
    older_command,
    older_domain,
    older_grammar,
    to_move_dialect,
)
from envs.alfworld_engine import NOTHING_HAPPENS, FastEngine, GameStore, StockEngine
from envs.alfworld_expert import ExpertKind, expert_trajectory
from envs.alfworld_games import generate_games, load_game
from envs.errors import EnvironmentBroken

OTHER = {Dialect.MOVE: Dialect.PUT, Dialect.PUT: Dialect.MOVE}


@pytest.fixture(scope="module")
def put_games(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The shared games as release 2.1.1 would have had them."""
    folder = tmp_path_factory.mktemp("put")
    return generate_games(folder, split="train", num_games=12, seed=5, dialect=Dialect.PUT)


@pytest.fixture
def both(games: list[Path], put_games: list[Path]) -> dict[Dialect, list[Path]]:
    return {Dialect.MOVE: games, Dialect.PUT: put_games}


@pytest.fixture
def env() -> Iterator[ALFWorldEnv]:
    made = ALFWorldEnv(max_steps=40)
    yield made
    made.close()


def test_the_engines_agree_in_the_older_dialect(put_games: list[Path]) -> None:
    report, stock, fast = Report(), StockEngine(), FastEngine(GameStore())
    for game in put_games[::3]:
        play_both(game, report, stock=stock, fast=fast, seed=1, num_random=12)
    assert report.differences == []
    assert report.num_won == 4
    assert report.num_compared > 60


def test_the_engines_tell_the_dialect(both: dict[Dialect, list[Path]]) -> None:
    for engine in (StockEngine(), FastEngine(GameStore())):
        for dialect, games in both.items():
            assert engine.load(games[0]) is dialect


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("expert", ["explorer", "walkthrough"])
def test_experts_win_in_either_dialect(
    env: ALFWorldEnv, both: dict[Dialect, list[Path]], dialect: Dialect, expert: ExpertKind
) -> None:
    actions = [
        turn.action
        for game in both[dialect]
        for turn in expert_trajectory(env, game, expert=expert)
    ]
    assert [a for a in actions if a.startswith(f"{dialect} ")]
    assert not [a for a in actions if a.startswith(f"{OTHER[dialect]} ")]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_other_dialect_does_nothing(
    env: ALFWorldEnv, both: dict[Dialect, list[Path]], dialect: Dialect
) -> None:
    game = next(g for g in both[dialect] if "pick_and_place" in str(g))
    _, info = env.reset(options={"game": str(game)})
    assert info["dialect"] == dialect
    *before, last = load_game(game)["walkthrough"]
    for command in before:
        env.step(command)
    thing, place = last.removeprefix(f"{dialect} ").split(
        " to " if dialect is Dialect.MOVE else " in/on "
    )
    wrong = {
        Dialect.MOVE: f"put {thing} in/on {place}",
        Dialect.PUT: f"move {thing} to {place}",
    }[dialect]
    assert env.step(wrong)[:3] == (NOTHING_HAPPENS, 0.0, False)
    assert env.step(last)[1:3] == (1.0, True)


def test_older_games_answer_as_older_games_did(env: ALFWorldEnv, put_games: list[Path]) -> None:
    game = next(g for g in put_games if "pick_and_place" in str(g))
    shown = [turn.observation for turn in expert_trajectory(env, game, expert="walkthrough")]
    assert shown[1].startswith("You arrive at loc ")
    *_, info = env.reset(options={"game": str(game)})
    assert "help" not in info["available_actions"]


def test_a_game_without_a_known_command_is_named(games: list[Path]) -> None:
    grammar = load_game(games[0])["grammar"].replace("move {o} to {r}", "drop {o}")
    with pytest.raises(EnvironmentBroken, match="some game"):
        dialect_of(grammar, name="some game")
    with pytest.raises(EnvironmentBroken, match="no longer says"):
        older_grammar(grammar)


def test_a_made_older_game_is_a_current_one_but_for_what_the_release_changed(
    games: list[Path], put_games: list[Path]
) -> None:
    for game, put_game in zip(games, put_games, strict=True):
        current, older = load_game(game), load_game(put_game)
        assert older["pddl_problem"] == current["pddl_problem"]
        assert older["pddl_domain"] == older_domain(current["pddl_domain"])
        assert "(:action help" not in older["pddl_domain"]
        assert older["walkthrough"] == [older_command(c) for c in current["walkthrough"]]


def test_thoughts_keep_their_words_in_either_dialect() -> None:
    thought = "> think: I put the cup 1 in/on desk 1"
    assert to_move_dialect(thought) == thought


@pytest.mark.slow
def test_real_games_are_of_the_current_dialect(real_data: Path, tmp_path: Path) -> None:
    import tarfile

    archive = real_data / "alfworld" / "alfworld_valid_unseen_slim.tar.xz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    games = sorted(tmp_path.rglob("game.tw-pddl"))
    assert len(games) == 134
    assert {dialect_of(load_game(game)["grammar"]) for game in games} == {Dialect.MOVE}
