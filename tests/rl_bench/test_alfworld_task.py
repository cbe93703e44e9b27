"""The ALFWorld task: its data, its checks, and an evaluation over the real engine."""

import io
import json
import lzma
import multiprocessing
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from envs.alfworld import ALFWorldEnv
from envs.alfworld_games import collect_games, game_digest, generate_games, load_game
from envs.protocol_react import KINDS
from envs.protocols import get_protocol, protocol_spec
from rl_bench.config import DataSource, TaskConfig
from rl_bench.engine.base import Completion, GenerationRequest, Sampling
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.alfworld.data import AlfworldGames
from rl_bench.tasks.alfworld.task import AlfworldTask
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus
from rl_bench.tasks.made_once import make_once
from rl_bench.tasks.registry import make_task
from tests.rl_bench.tasks.scene import PlayingContext, said

SETTINGS: Mapping[str, Any] = {"num_receptacles": 4, "num_objects": 3}


def config(**changes: Any) -> TaskConfig:
    base: dict[str, Any] = {
        "name": "alfworld_test",
        "kind": "alfworld",
        "level": "L3",
        "source": DataSource.BUILTIN,
        "num_train": 12,
        "num_eval": 6,
        "max_tokens": 16,
        "max_steps": 20,
        "settings": SETTINGS,
    }
    return TaskConfig(**{**base, **changes})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def public_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a user's copy of the public data, filled with generated games."""
    folder = tmp_path_factory.mktemp("data")
    generate_games(folder / "json_2.1.1", split="train", num_games=6, seed=1)
    generate_games(folder / "json_2.1.1", split="valid_unseen", num_games=3, seed=1)
    return folder


def path_config(data: Path, **changes: Any) -> TaskConfig:
    return config(
        **{
            "source": DataSource.PATH,
            "data_path": data,
            "num_eval": 3,
            "num_train": None,
            "settings": {},
            **changes,
        }
    )


class Player(PlayingContext):
    """Plays with a scripted model, one game after the other in one environment."""

    def __init__(self, model: "WalkthroughModel", *, break_first: int = 0) -> None:
        super().__init__(model, sampling=Sampling(max_tokens=16), max_steps=20)
        self._break_first = break_first

    async def play_all(self, episodes: Sequence[Episode]) -> list[ItemOutcome]:
        env = ALFWorldEnv(**cast("dict[str, Any]", episodes[0].env_kwargs))
        outcomes = []
        for index, episode in enumerate(episodes):
            json.dumps([episode.env_kwargs, episode.options])
            if index < self._break_first:
                outcomes.append(
                    ItemOutcome(item_id=episode.episode_id, status=ItemStatus.ENV_ERROR, score=None)
                )
                continue
            outcomes.append(await self.play_in(env, episode))
        env.close()
        return outcomes


class WalkthroughModel:
    """Knows some games by heart, by their first message; says nonsense in the others."""

    def __init__(self, games: Sequence[Path]) -> None:
        env = ALFWorldEnv()
        self._plans = {
            env.reset(options={"game": str(game)})[0]: load_game(game)["walkthrough"]
            for game in games
        }
        env.close()

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return [said(self._answer(request)) for request in requests]

    def _answer(self, request: GenerationRequest) -> str:
        assert request.messages is not None
        plan = self._plans.get(request.messages[0]["content"], [])
        turn = len(request.messages) // 2
        return plan[turn] if turn < len(plan) else "dance"


async def test_the_score_is_the_share_of_games_won(cache: Path) -> None:
    task = AlfworldTask(config(), cache=cache)
    games = AlfworldGames(config(), cache=cache).evaluation()
    known = [game for game in games if "pick_heat" in str(game) or "look_at" in str(game)]
    assert len(known) == 2
    result = await task.evaluate(Player(WalkthroughModel(known)))
    assert result.score == pytest.approx(100 * 2 / 6)
    assert (result.num_items, result.num_errors) == (6, 0)
    assert result.metrics["success/pick_heat_then_place_in_recep"] == 100
    assert result.metrics["success/pick_two_obj_and_place"] == 0
    assert len([name for name in result.metrics if name.startswith("success/")]) == 6
    lost = [item for item in result.items if not item.score]
    assert {item.num_steps for item in lost} == {20}
    assert all(item.detail["task_type"] for item in result.items)


async def test_broken_episodes_void_the_evaluation_and_are_never_zero(cache: Path) -> None:
    task = AlfworldTask(config(), cache=cache)
    games = AlfworldGames(config(), cache=cache).evaluation()
    result = await task.evaluate(Player(WalkthroughModel(games), break_first=1))
    assert result.score is None
    assert result.num_errors == 1
    assert "1 of 6" in result.failure


async def test_the_evaluation_names_its_protocol(cache: Path) -> None:
    task = AlfworldTask(config(protocol="chat_rules"), cache=cache)
    player = Player(WalkthroughModel([]))
    await task.evaluate(player)
    assert player.protocol == "chat_rules"
    assert "chat_rules" in task.evaluator_version
    assert "dialect-move" in task.evaluator_version


def test_games_of_either_dialect_can_be_generated(cache: Path, tmp_path: Path) -> None:
    put = config(settings={**SETTINGS, "dialect": "put"})
    task = AlfworldTask(put, cache=cache)
    task.check_data()
    assert "dialect-put" in task.evaluator_version
    assert "put <object> in/on <place>" in task.description()
    task.write_train_data(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    actions = [turn["action"] for line in lines for turn in line["turns"]]
    assert len(lines) == 12
    assert any(action.startswith("put ") for action in actions)
    assert not any(action.startswith("move ") for action in actions)


def test_an_agent_gets_the_few_shot_examples(
    public_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps({f"react_{k}_{i}": f"[{k} {i}]" for k in KINDS for i in (0, 1)}))
    settings = {"react_prompts": str(prompts), "react_header": "HEAD\n"}
    task = AlfworldTask(
        path_config(public_data, protocol="react", settings=settings), cache=tmp_path / "cache"
    )
    task.write_train_data(tmp_path / "given")
    spec = protocol_spec("react", header="HEAD\n")
    assert repr(spec) in task.description()
    prompts.unlink()
    monkeypatch.delenv("RL_BENCH_DATA", raising=False)
    monkeypatch.setenv("DATA_PATH", str(tmp_path / "given"))
    text = get_protocol(spec).prompt([], "A room.\n\nYour task is to: heat it.").text
    assert text is not None
    assert text.startswith("HEAD\n[heat 1][heat 0]")


def test_train_data_hold_games_and_demonstrations(cache: Path, tmp_path: Path) -> None:
    AlfworldTask(config(), cache=cache).write_train_data(tmp_path)
    games = collect_games(tmp_path / "json_2.1.1", "train")
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(games) == len(lines) == 12
    assert {tmp_path / line["game"] for line in lines} == set(games)
    env = ALFWorldEnv(max_steps=20)
    for line in lines:
        observation, info = env.reset(options={"game": str(tmp_path / line["game"])})
        assert (info["goal"], info["task_type"]) == (line["goal"], line["task_type"])
        for turn in line["turns"]:
            assert turn["observation"] == observation
            observation, reward, *_ = env.step(turn["action"])
        assert reward == 1
    env.close()
    assert "move <object> to <place>" in (tmp_path / "README.md").read_text()


def test_no_evaluated_game_reaches_the_agent(cache: Path, tmp_path: Path) -> None:
    task = AlfworldTask(config(), cache=cache)
    task.write_train_data(tmp_path)
    evaluated = {game_digest(Path(str(e.options["game"]))) for e in task.episodes()}
    given = {game_digest(game) for game in tmp_path.rglob("*.tw-pddl")}
    assert given
    assert not evaluated & given
    assert not [path for path in tmp_path.rglob("*") if "valid_unseen" in str(path)]


def test_a_train_game_that_is_evaluated_is_left_out(public_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(public_data, data)
    root = data / "json_2.1.1"
    [leaked, *_] = collect_games(root, "valid_unseen")
    shutil.copytree(leaked.parent, root / "train" / "a_leak" / leaked.parent.name)
    games = AlfworldGames(path_config(data), cache=tmp_path / "cache")
    assert len(games.train()) == 6
    assert len(collect_games(root, "train")) == 7


def test_the_same_config_makes_the_same_games_everywhere(cache: Path, tmp_path: Path) -> None:
    first = AlfworldTask(config(), cache=cache).episodes()
    second = AlfworldTask(config(), cache=tmp_path).episodes()
    assert [e.episode_id for e in first] == [e.episode_id for e in second]
    other = AlfworldTask(config(settings={**SETTINGS, "seed": 1}), cache=tmp_path).episodes()
    assert not {e.episode_id for e in first} & {e.episode_id for e in other}


@pytest.mark.parametrize("layout", ["root", "inside", "archives"])
def test_public_data_are_found_in_every_layout(
    public_data: Path, tmp_path: Path, layout: str
) -> None:
    data = public_data / "json_2.1.1" if layout == "inside" else public_data
    if layout == "archives":
        data = tmp_path / "archives"
        data.mkdir()
        for split in ("train", "valid_unseen"):
            with tarfile.open(data / f"alfworld_{split}_slim.tar.xz", "w:xz") as tar:
                tar.add(public_data / "json_2.1.1" / split, f"json_2.1.1/{split}")
    task = AlfworldTask(path_config(data), cache=tmp_path / "cache")
    task.check_data()
    assert len(task.episodes()) == 3
    task.write_train_data(tmp_path / "given")
    assert len((tmp_path / "given" / "train.jsonl").read_text().splitlines()) == 6


def test_demonstrations_can_be_limited_and_spread(public_data: Path, tmp_path: Path) -> None:
    settings = {"num_expert_games": 3, "expert": "walkthrough"}
    task = AlfworldTask(path_config(public_data, settings=settings), cache=tmp_path / "cache")
    task.write_train_data(tmp_path / "given")
    lines = (tmp_path / "given" / "train.jsonl").read_text().splitlines()
    assert len({json.loads(line)["task_type"] for line in lines}) == 3


def test_games_that_the_expert_cannot_win_in_time_have_no_demonstration(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    AlfworldTask(config(max_steps=6), cache=cache).write_train_data(tmp_path)
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    assert 0 < len(lines) < 12
    assert "have no demonstration" in caplog.text
    with pytest.raises(PreflightError, match="no demonstration"):
        AlfworldTask(config(max_steps=1), cache=cache).write_train_data(tmp_path)


def test_missing_data_are_named_with_a_cure(tmp_path: Path, public_data: Path) -> None:
    def check(data: Path, **changes: Any) -> None:
        AlfworldTask(path_config(data, **changes), cache=tmp_path / "cache").check_data()

    with pytest.raises(PreflightError, match=r"no folder .*nowhere.*alfworld-download"):
        check(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(PreflightError, match="neither json_2"):
        check(empty)
    (empty / "json_2.1.1" / "valid_unseen").mkdir(parents=True)
    with pytest.raises(PreflightError, match="0 eval games found"):
        check(empty)
    with pytest.raises(
        PreflightError, match=r"3 eval games found, 134 wanted.*task\.num_eval to 3, or"
    ):
        check(public_data, num_eval=134)
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "alfworld_valid_unseen_slim.tar.xz").write_bytes(b"half an archive")
    with pytest.raises(PreflightError, match="cannot be unpacked"):
        check(torn)


def test_an_archive_damaged_inside_is_refused_and_leaves_no_trace(
    public_data: Path, tmp_path: Path
) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(public_data / "json_2.1.1" / "valid_unseen", "json_2.1.1/valid_unseen")
    whole = content.getvalue()
    damaged = bytearray(lzma.compress(whole))
    middle = len(damaged) // 2
    damaged[middle : middle + 200] = bytes(200)
    flipped = bytearray(lzma.compress(whole))
    flipped[-40] ^= 1
    # Zeros are tar's own mark of an end: only the checksum behind them tells.
    cut_short = lzma.compress(whole[:5120] + bytes(len(whole) - 5120))
    broken_check = bytearray(cut_short)
    broken_check[-36] ^= 1
    for number, data in enumerate((damaged, flipped, broken_check)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "alfworld_valid_unseen_slim.tar.xz").write_bytes(data)
        with pytest.raises(PreflightError, match="cannot be unpacked"):
            AlfworldTask(path_config(folder), cache=folder / "cache").check_data()
        assert not [*folder.glob("cache/alfworld/unpacked-*/")]


def test_missing_prompts_are_found_before_any_run(
    public_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RL_BENCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PreflightError, match="react_prompts"):
        AlfworldTask(path_config(public_data, protocol="react"), cache=tmp_path).check_data()
    with pytest.raises(
        ConfigError, match=r"telepathy.*: chat, chat_rules, react, react_published$"
    ):
        AlfworldTask(path_config(public_data, protocol="telepathy"), cache=tmp_path).check_data()


def test_a_solution_in_another_dialect_fails_the_self_test(
    public_data: Path, tmp_path: Path
) -> None:
    data = tmp_path / "old"
    shutil.copytree(public_data, data)
    for game in data.rglob("*.tw-pddl"):
        content = json.loads(game.read_text())
        content["walkthrough"] = [c.replace("move ", "put ") for c in content["walkthrough"]]
        content["walkthrough"] = [c.replace("use ", "toggle ") for c in content["walkthrough"]]
        game.write_text(json.dumps(content))
    with pytest.raises(PreflightError, match="self-test failed"):
        AlfworldTask(path_config(data), cache=tmp_path / "cache").check_data()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"settings": {"colour": "red"}}, "colour"),
        ({"settings": {"num_receptacles": 1}}, "num_receptacles"),
        ({"settings": {"num_expert_games": -1}}, "num_expert_games"),
        ({"settings": {"task_types": ("juggle",)}}, "task_types"),
        ({"num_eval": None}, "num_eval"),
        ({"source": DataSource.PATH}, "data_path"),
    ],
)
def test_wrong_settings_are_refused_at_once(
    changes: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=word):
        AlfworldTask(config(**changes), cache=tmp_path)


def test_asking_for_more_games_than_the_settings_allow_is_told(tmp_path: Path) -> None:
    impossible = {"task_types": ("pick_heat_then_place_in_recep",), "rooms": ("bathroom",)}
    with pytest.raises(PreflightError, match="cannot be generated"):
        AlfworldTask(config(settings=impossible), cache=tmp_path).check_data()
    assert not list(tmp_path.rglob("*.partial-*"))


def _check(cache: Path) -> None:
    AlfworldTask(config(), cache=cache).check_data()


def test_processes_can_share_an_empty_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_check, args=(tmp_path,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(list((tmp_path / "alfworld").glob("generated-????????????????"))) == 1


def test_what_fails_to_be_made_leaves_no_trace(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("done")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        make_once(tmp_path / "made", fail)
    assert not (tmp_path / "made").exists()
    made = make_once(tmp_path / "made", lambda folder: folder.joinpath("whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]
    assert make_once(tmp_path / "made", fail) == made


def test_the_registry_makes_the_task(tmp_path: Path) -> None:
    assert isinstance(make_task(config(), cache=tmp_path), AlfworldTask)


@pytest.mark.slow
def test_the_published_setting_checks_out_on_real_data(real_data: Path, tmp_path: Path) -> None:
    published = path_config(
        real_data / "alfworld",
        num_eval=134,
        num_train=20,
        max_steps=50,
        protocol="react_published",
        settings={
            "num_expert_games": 3,
            "react_prompts": str(real_data / "react" / "alfworld_3prompts.json"),
        },
    )
    task = AlfworldTask(published, cache=tmp_path)
    task.check_data()
    assert len(task.episodes()) == 134
    task.write_train_data(tmp_path / "given")
    assert len((tmp_path / "given" / "train.jsonl").read_text().splitlines()) == 3
