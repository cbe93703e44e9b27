"""The WebShop task: its data, its checks, and an evaluation over the real environment."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envs.protocols import get_protocol
from envs.webshop_expert import expert_actions
from envs.webshop_goals import Goal
from envs.webshop_shop import ShopSettings, open_shop
from rl_bench.config import DataSource, TaskConfig
from rl_bench.engine.base import Completion, GenerationRequest, Sampling
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.base import Episode, ItemOutcome, ItemStatus
from rl_bench.tasks.registry import make_task
from rl_bench.tasks.webshop.task import WebShopTask
from tests.rl_bench.tasks.scene import PlayingContext, said

NUM_EVAL = 12


def config(**changes: Any) -> TaskConfig:
    settings = {"num_held_out": 20, "tagger": "word_list", "num_demonstrations": 5}
    base: dict[str, Any] = {
        "name": "webshop_test",
        "kind": "webshop",
        "level": "L3",
        "source": DataSource.BUILTIN,
        "protocol": "webshop_react",
        "num_eval": NUM_EVAL,
        "max_tokens": 32,
        "max_steps": 10,
        "settings": settings | changes.pop("settings", {}),
    }
    return TaskConfig(**{**base, **changes})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class Player(PlayingContext):
    """Plays with a scripted shopper; episodes cross to a worker as JSON, some of them broken."""

    def __init__(self, shopper: "Shopper", *, num_broken: int = 0) -> None:
        super().__init__(shopper, sampling=Sampling(max_tokens=32), max_steps=10)
        self._num_broken = num_broken

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        crossed = [
            replace(episode, env_kwargs=self._crossed(index, episode))
            for index, episode in enumerate(episodes)
        ]
        return await super().play(crossed, protocol=protocol)

    def _crossed(self, index: int, episode: Episode) -> dict[str, Any]:
        crossed: dict[str, Any] = json.loads(json.dumps(dict(episode.env_kwargs)))
        return crossed | ({"tagger": "en_core_web_none"} if index < self._num_broken else {})


class Shopper:
    """Buys what the expert would, but for some goals without options, and for others never."""

    def __init__(self, task: WebShopTask) -> None:
        [first, *_] = task.episodes()
        kwargs: dict[str, Any] = dict(first.env_kwargs)
        folder = Path(str(kwargs.pop("data_dir")))
        del kwargs["max_steps"]
        self.shop = open_shop(folder, ShopSettings(**kwargs))
        self.plans = {goal.text: self._plan(i, goal) for i, goal in enumerate(self.shop.goals)}

    def _plan(self, index: int, goal: Goal) -> Sequence[str]:
        actions = expert_actions(self.shop, goal)
        if index % 3 == 1:
            return [a for a in actions if a.removeprefix("click[")[:-1] not in goal.option_values]
        return actions if index % 3 == 0 else ["search[nothing of the kind]"]

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return [said(self._answer(request)) for request in requests]

    def _answer(self, request: GenerationRequest) -> str:
        assert request.messages is not None
        text = request.messages[1]["content"]
        goal = text.partition("What to buy: ")[2].partition("\n")[0]
        number = int(text.rpartition("Action ")[2].removesuffix(":"))
        plan = self.plans[goal]
        return plan[number - 1] if number <= len(plan) else "think: hm"


async def test_the_score_is_the_share_of_good_purchases(cache: Path) -> None:
    task = WebShopTask(config(), cache=cache)
    player = Player(Shopper(task))
    result = await task.evaluate(player)
    rewards = [item.detail["reward"] for item in result.items]
    assert rewards == [1.0, 3 / 5, 0.0] * 4  # two attributes and the price of five parts
    assert result.score == pytest.approx(100 * 8 / 12)
    assert result.metrics["mean_reward"] == pytest.approx(100 * (1 + 3 / 5) / 3)
    assert result.metrics["success_at_1"] == pytest.approx(100 / 3)
    assert result.metrics["bought"] == pytest.approx(100 * 2 / 3)
    assert (result.num_items, result.num_errors) == (NUM_EVAL, 0)
    assert player.protocol == 'webshop_react:{"history_steps": "5"}'
    first, second, third = result.items[:3]
    assert first.detail["bought"] == first.detail["asin"]
    assert (second.detail["r_option"], second.detail["r_att"]) == (0.0, 1.0)
    assert "stand-in" in str(first.detail["tagger"])
    assert (third.num_steps, third.detail["page"]) == (10, "results")


async def test_success_is_what_the_settings_say(cache: Path) -> None:
    task = WebShopTask(config(settings={"success_reward": 1.0}), cache=cache)
    result = await task.evaluate(Player(Shopper(task)))
    assert result.score == pytest.approx(100 / 3)
    assert result.metrics["mean_reward"] == pytest.approx(100 * (1 + 3 / 5) / 3)
    assert "success 1;" in task.evaluator_version


async def test_a_failing_environment_is_no_zero(cache: Path) -> None:
    task = WebShopTask(config(max_error_fraction=0.1), cache=cache)
    result = await task.evaluate(Player(Shopper(task), num_broken=1))
    assert result.items[0].status is ItemStatus.ENV_ERROR
    assert result.items[0].score is None
    assert "not installed" in str(result.items[0].detail["error"])
    assert result.score == pytest.approx(100 * 7 / 12)
    result = await task.evaluate(Player(Shopper(task), num_broken=2))
    assert result.score is None
    assert "2 of 12" in result.failure


def test_the_evaluator_s_version_says_what_decides_scores(cache: Path) -> None:
    version = WebShopTask(config(), cache=cache).evaluator_version
    assert "word list 1 (stand-in)" in version
    for changes in ({"price_seed": 1}, {"success_reward": 1.0}, {"tagger": "en_core_web_none"}):
        other = WebShopTask(config(settings=changes), cache=cache).evaluator_version
        assert other != version


def test_an_agent_gets_train_goals_and_winning_demonstrations(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = WebShopTask(config(num_train=50), cache=cache)
    data = tmp_path / "data"
    task.write_train_data(data)
    assert sorted(path.name for path in data.iterdir()) == [
        "README.md",
        "goals.jsonl",
        "prices.json",
        "products.jsonl",
        "protocol.txt",
        "train.jsonl",
    ]
    assert get_protocol((data / "protocol.txt").read_text()) == get_protocol(task.protocol)
    held_out = Shopper(task).shop.goals
    written = "".join(path.read_text() for path in data.iterdir())
    assert not any(goal.wording in written for goal in held_out)
    monkeypatch.setenv("DATA_PATH", str(data))
    env = gymnasium.make("rl_bench/WebShop-v0", tagger="word_list")
    lines = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    assert [line["episode"] for line in lines] == [0, 10, 20, 30, 40]
    for line in lines:
        observation, info = env.reset(options={"episode": line["episode"]})
        assert (info["goal"], info["asin"]) == (line["goal"], line["asin"])
        for turn in line["turns"]:
            assert observation == turn["observation"]
            assert info["available_actions"] == turn["available_actions"]
            observation, reward, terminated, *_, info = env.step(turn["action"])
        assert (reward, terminated) == (1.0, True)
    env.close()


def test_the_description_states_the_rules(cache: Path) -> None:
    text = WebShopTask(config(num_train=50), cache=cache).description()
    for part in ("Train goals: 50,", f"Evaluation: {NUM_EVAL} goals", "at least 0.5", "stand-in"):
        assert part in text


def test_checking_data_replays_and_buys(cache: Path) -> None:
    WebShopTask(config(), cache=cache).check_data()


def test_a_catalogue_whose_goals_do_not_fit_it_is_found_out(cache: Path, tmp_path: Path) -> None:
    source = Path(str(WebShopTask(config(), cache=cache).episodes()[0].env_kwargs["data_dir"]))
    (tmp_path / "products.jsonl").write_text((source / "products.jsonl").read_text())
    rows = json.loads((source / "items_ins.json").read_text())
    for row in rows.values():
        row["instruction_attributes"] = ["made of cheese"]
    (tmp_path / "items_ins.json").write_text(json.dumps(rows))
    task = WebShopTask(config(source=DataSource.PATH, data_path=tmp_path), cache=cache)
    with pytest.raises(PreflightError, match="self-test failed on goal"):
        task.check_data()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"settings": {"colour": 1}}, ConfigError, "colour"),
        ({"settings": {"success_reward": 2}}, ConfigError, "success_reward"),
        ({"num_eval": 21}, ConfigError, "more than the 20 goals held out"),
        ({"source": DataSource.PATH}, ConfigError, "data_path"),
        ({"source": DataSource.PATH, "data_path": "/none"}, PreflightError, "no products"),
        ({"settings": {"tagger": "en_core_web_none"}}, PreflightError, "not installed"),
        ({"settings": {"num_held_out": 5000}}, PreflightError, "no goals"),
        ({"num_train": 5000}, PreflightError, r"5000 wanted. Lower task\.num_train to \d+$"),
        ({"protocol": "shouting"}, ConfigError, r"shouting.*: webshop_react$"),
    ],
)
def test_bad_input_is_named(
    changes: dict[str, Any], error: type[Exception], message: str, cache: Path
) -> None:
    with pytest.raises(error, match=message):
        WebShopTask(config(**changes), cache=cache).check_data()


def test_the_registry_makes_the_task(cache: Path) -> None:
    assert isinstance(make_task(config(), cache=cache), WebShopTask)


def test_the_published_setting_checks_out_on_real_data(real_data: Path, tmp_path: Path) -> None:
    published = config(
        source=DataSource.PATH,
        data_path=real_data / "webshop",
        num_eval=100,
        max_steps=50,
        settings={"num_held_out": 100, "num_demonstrations": 20},
    )
    task = WebShopTask(published, cache=tmp_path)
    task.check_data()
    assert len(task.episodes()) == 100
    task.write_train_data(tmp_path / "given")
    given = open_shop(tmp_path / "given")
    held_out = Shopper(task).shop.goals
    assert len(given.goals) == 2329
    assert not {goal.asin for goal in given.goals} & {goal.asin for goal in held_out}
    written = "".join(path.read_text() for path in (tmp_path / "given").iterdir())
    assert not any(goal.text in written for goal in held_out)
    assert len((tmp_path / "given" / "train.jsonl").read_text().splitlines()) >= 18
