"""The fast engine gives the stock engine's observations, and survives bad files and caches."""

import json
import multiprocessing
from pathlib import Path

import pytest

from benchmarks.alfworld_env import Report, play_both
from envs import alfworld_engine
from envs.alfworld_engine import (
    NOTHING_HAPPENS,
    FastEngine,
    GameStore,
    StockEngine,
    make_engine,
)
from envs.alfworld_games import collect_games, load_game
from envs.alfworld_grammar import load_grammar
from envs.alfworld_translation import TranslationCache, translate, versions
from envs.errors import EnvironmentBroken
from rl_bench.config import DataSource, TaskConfig
from rl_bench.tasks.alfworld.data import AlfworldGames


@pytest.fixture(scope="module")
def stock() -> StockEngine:
    return StockEngine()


@pytest.fixture(scope="module")
def fast() -> FastEngine:
    return FastEngine(GameStore())


def test_every_answer_equals_the_stock_engine_s(
    games: list[Path], stock: StockEngine, fast: FastEngine
) -> None:
    report = Report()
    for game in games:
        play_both(game, report, stock=stock, fast=fast, seed=1, num_random=20)
    assert report.differences == []
    assert report.num_won == len(games)
    assert report.num_compared > 300


@pytest.mark.slow
def test_every_answer_equals_on_real_games(
    real_data: Path, tmp_path: Path, stock: StockEngine, fast: FastEngine
) -> None:
    config = TaskConfig(
        name="alfworld",
        kind="alfworld",
        level="L3",
        source=DataSource.PATH,
        data_path=real_data / "alfworld",
        max_tokens=1,
    )
    games = AlfworldGames(config, cache=tmp_path).evaluation()
    assert len(games) == 134
    report = Report()
    for game in games[5::40]:
        play_both(game, report, stock=stock, fast=fast, seed=1, num_random=10)
    assert report.differences == []
    assert report.num_won == 4


def test_the_comparison_notices_a_difference(games: list[Path], stock: StockEngine) -> None:
    report = Report()
    other = StockEngine()
    stock.load(games[0])
    other.load(games[1])
    report.compare(games[0], "", stock=stock.reset(), fast=other.reset())
    assert len(report.differences) == 1


def test_a_reset_forgets_what_was_done(games: list[Path], fast: FastEngine) -> None:
    fast.load(games[0])
    first = fast.reset()
    for command in load_game(games[0])["walkthrough"]:
        fast.step(command)
    assert fast.reset() == first


def test_an_unknown_command_changes_nothing(games: list[Path], fast: FastEngine) -> None:
    fast.load(games[0])
    before = fast.reset()
    after = fast.step("sing a song")
    assert (after.feedback, after.admissible) == (NOTHING_HAPPENS, before.admissible)


def test_engines_interleave_in_one_thread(games: list[Path]) -> None:
    store = GameStore()
    alone = FastEngine(store)
    expected = []
    for game in games[:4]:
        alone.load(game)
        expected.append([alone.reset(), *map(alone.step, load_game(game)["walkthrough"])])
    engines = [FastEngine(store) for _ in range(4)]
    got = []
    for engine, game in zip(engines, games, strict=False):
        engine.load(game)
        got.append([engine.reset()])
    for turn in range(max(map(len, expected)) - 1):
        for index, engine in enumerate(engines):
            plan = load_game(games[index])["walkthrough"]
            if turn < len(plan):
                got[index].append(engine.step(plan[turn]))
    assert got == expected


def test_a_changed_file_is_another_game(
    games: list[Path], tmp_path: Path, fast: FastEngine
) -> None:
    game = tmp_path / "game.tw-pddl"
    game.write_bytes(games[0].read_bytes())
    fast.load(game)
    first = fast.reset()
    game.write_bytes(games[1].read_bytes())
    fast.load(game)
    assert fast.reset() != first


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "cannot be read"),
        (b'{"pddl_domain": "', "cannot be read"),
        (b"[]", "lacks"),
        (b'{"pddl_domain": "", "grammar": ""}', "pddl_problem"),
        (b'{"pddl_domain": "(", "grammar": "", "pddl_problem": ""}', "cannot be translated"),
    ],
)
def test_a_broken_file_is_named(
    content: bytes, word: str, tmp_path: Path, fast: FastEngine
) -> None:
    game = tmp_path / "game.tw-pddl"
    game.write_bytes(content)
    with pytest.raises(EnvironmentBroken, match=word) as caught:
        fast.load(game)
    assert str(game) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path, fast: FastEngine) -> None:
    with pytest.raises(EnvironmentBroken, match="nowhere"):
        fast.load(tmp_path / "nowhere")


def _translation_arguments(game: Path) -> dict[str, str]:
    data = load_game(game)
    return {"domain": data["pddl_domain"], "problem": data["pddl_problem"], "versions": "1"}


def test_translations_are_shared_on_disk(
    games: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _translation_arguments(games[0])
    first = TranslationCache(tmp_path).get(**arguments)
    monkeypatch.setattr("envs.alfworld_translation.translate", _refuse)
    assert TranslationCache(tmp_path).get(**arguments) == first
    with pytest.raises(AssertionError):
        TranslationCache(tmp_path).get(**(arguments | {"versions": "2"}))


def _refuse(**_: str) -> None:
    raise AssertionError("translated again")


@pytest.mark.parametrize("damage", [b"", b"torn", None])
def test_a_damaged_cache_entry_is_made_again(
    games: list[Path], tmp_path: Path, damage: bytes | None
) -> None:
    arguments = _translation_arguments(games[0])
    first = TranslationCache(tmp_path).get(**arguments)
    [entry] = tmp_path.rglob("*.z")
    entry.write_bytes(entry.read_bytes()[:100] if damage is None else damage)
    assert TranslationCache(tmp_path).get(**arguments) == first
    assert (
        TranslationCache(tmp_path)._read(entry.name.removesuffix(".json.z")) == entry.read_bytes()
    )


def test_an_unwritable_cache_only_costs_time(games: list[Path], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    arguments = _translation_arguments(games[0])
    assert TranslationCache(blocked).get(**arguments).sas


def _load_all(games: list[Path], cache_dir: Path) -> None:
    engine = FastEngine(GameStore(cache_dir))
    for game in games:
        engine.load(game)
        engine.reset()


def test_processes_share_a_cache_at_once(games: list[Path], tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_load_all, args=(games[:3], tmp_path)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(list(tmp_path.rglob("*.z"))) == 3
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 3


def test_translating_leaves_the_command_line_alone(games: list[Path]) -> None:
    import sys

    before = list(sys.argv)
    arguments = _translation_arguments(games[0])
    translate(domain=arguments["domain"], problem=arguments["problem"])
    assert sys.argv == before


def test_untested_versions_fall_back_to_the_stock_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alfworld_engine, "TESTED", "textworld=0")
    with pytest.warns(UserWarning, match="not tested with"):
        engine = make_engine()
    assert isinstance(engine, StockEngine)
    assert isinstance(make_engine("fast"), FastEngine)


def test_the_pinned_versions_are_the_tested_ones() -> None:
    assert versions() == alfworld_engine.TESTED


def test_a_task_in_unusual_words_is_parsed_as_a_whole(games: list[Path]) -> None:
    text = load_game(games[0])["grammar"]
    task = json.dumps("#look.feedback# then (rest)")
    odd = load_grammar(_with_task(text, task))
    plain = load_grammar(_with_task(text, json.dumps("put it away.")))
    assert odd.predicates("#task#") == plain.predicates("#look.feedback#")
    assert plain.predicates("#task#") == frozenset()


def _with_task(text: str, task: str) -> str:
    head, mark, rest = text.partition('"rhs": "Your task is to: ')
    return f'{head}"rhs": {task}{rest[rest.index(chr(34)) + 1 :]}' if mark else text


def test_games_of_one_release_share_their_parsed_grammar(games_dir: Path) -> None:
    texts = {load_game(game)["grammar"] for game in collect_games(games_dir, "train")}
    parsed = {id(load_grammar(text).actions) for text in texts}
    assert len(texts) > 1
    assert len(parsed) == 1
