"""The Gymnasium environment: its contract, its episodes, and whatever a model may write."""

import gc
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import envs  # noqa: F401  registers the environments
from envs.errors import EnvironmentBroken
from envs.webshop import WebShopEnv
from envs.webshop_expert import play
from envs.webshop_shop import ShopSettings, open_shop, write_shop

ENV_ID = "rl_bench/WebShop-v0"
NASTY = (
    "",
    "x" * 5000,
    "[" * 5000,
    "search[" * 800,
    f"search[{'lamp ' * 1000}]",
    "click[]",
    "> click[buy now]",
    "Action: search[lamp]",
    "search[\ud800]",
    "search[日本語 ★❤️ ไทย]",
    "\x00",
    "search[<a> x]",
    "search[<c>]",
    "search[<r>]",
    "search[ ]",
    "search[a\nb]",
    "click[next >]",
    "click[< prev]",
    "click[back to search]",
)


@pytest.fixture
def env(shop_dir: Path) -> WebShopEnv:
    return WebShopEnv(data_dir=str(shop_dir), num_held_out=30, max_steps=12, tagger="word_list")


def make(shop_dir: str) -> gymnasium.Env[str, str]:
    return gymnasium.make(
        ENV_ID, data_dir=shop_dir, num_held_out=30, tagger="word_list", disable_env_checker=True
    )


def test_gymnasium_s_own_checks_pass(env: WebShopEnv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)


def test_a_purchase_ends_the_episode_and_tells_its_parts(env: WebShopEnv) -> None:
    observation, info = env.reset(options={"episode": 3})
    assert info["goal"] in observation
    assert info["available_actions"] == ["search[<your query>]", "click[search]"]
    assert "reward" not in info
    *before, last = play(env, 3).turns
    env.reset(options={"episode": 3})
    for turn in before:
        _, reward, terminated, truncated, info = env.step(turn.action)
        assert (reward, terminated, truncated) == (0.0, False, False)
    assert "click[buy now]" in info["available_actions"]
    observation, reward, terminated, truncated, info = env.step(last.action)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert observation.startswith("Thank you for shopping with us!")
    assert info["available_actions"] == []
    assert info["bought"] == info["asin"]
    assert (info["reward"], info["r_type"], info["r_option"]) == (1.0, 1.0, 1.0)
    assert "stand-in" in info["tagger"]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("search[lamp]")


def test_the_step_limit_truncates_without_a_reward(env: WebShopEnv) -> None:
    env.reset(seed=0)
    results = [env.step("dance") for _ in range(12)]
    assert [result[3] for result in results] == [False] * 11 + [True]
    assert {result[1:3] for result in results} == {(0.0, False)}
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("dance")


def test_a_step_needs_a_reset(env: WebShopEnv) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("search[lamp]")


def test_the_same_seed_and_actions_give_the_same_episode(env: WebShopEnv, shop_dir: Path) -> None:
    other = WebShopEnv(data_dir=str(shop_dir), num_held_out=30, tagger="word_list")
    for seed in (1, 2):
        assert env.reset(seed=seed) == other.reset(seed=seed)
        for action in ("search[<r>]", "click[next >]", "search[soft pillow]"):
            assert env.step(action) == other.step(action)
    assert len({env.reset(seed=seed)[1]["goal"] for seed in range(20)}) > 10


def test_splits_are_numbered_apart(shop_dir: Path) -> None:
    goals = {}
    for split in ("train", "eval"):
        env = WebShopEnv(data_dir=str(shop_dir), split=split, num_held_out=30)
        number = len(env.shop.goals)
        goals[split] = {env.reset(options={"episode": i})[1]["goal"] for i in range(number)}
        with pytest.raises(EnvironmentBroken, match=f"has 0 to {number - 1}"):
            env.reset(options={"episode": number})
    assert len(goals["eval"]) == 30
    assert not goals["eval"] & goals["train"]


def test_environments_share_their_shop(env: WebShopEnv, shop_dir: Path) -> None:
    other = WebShopEnv(data_dir=str(shop_dir), num_held_out=30, tagger="word_list")
    assert other.shop is env.shop


def test_an_agent_s_data_folder_is_the_default(
    shop_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = open_shop(shop_dir, ShopSettings(num_held_out=30))
    write_shop(tmp_path, shop, shop.goals[:5])
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    env = gymnasium.make(ENV_ID)
    env.reset(seed=0)
    assert env.reset(options={"episode": 4})[1]["goal"] == shop.goals[4].text
    with pytest.raises(EnvironmentBroken, match="train goals only"):
        gymnasium.make(ENV_ID, split="eval")
    env.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"max_steps": 0}, "max_steps"), ({"split": "test"}, "split"), ({"goals": "own"}, "goals")],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WebShopEnv(**arguments)


def test_a_missing_catalogue_or_model_is_an_error_not_a_loss(
    shop_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentBroken, match="no products"):
        WebShopEnv(data_dir=str(tmp_path))
    env = WebShopEnv(data_dir=str(shop_dir), num_held_out=30, tagger="en_core_web_none")
    with pytest.raises(EnvironmentBroken, match="not installed"):
        play(env, 0)


def test_ten_thousand_actions_of_all_kinds_neither_break_nor_fill_memory(env: WebShopEnv) -> None:
    rng = random.Random(0)
    _, info = env.reset(seed=0)
    used = []
    for number in range(10_000):
        listed = info["available_actions"]
        action = rng.choice(listed) if listed and rng.random() < 0.7 else rng.choice(NASTY)
        _, reward, terminated, truncated, info = env.step(action)
        assert 0 <= reward <= 1
        if terminated or truncated:
            _, info = env.reset()
        if number in (2_000, 9_999):
            gc.collect()
            used.append(len(gc.get_objects()))
    assert used[1] - used[0] < 500


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_it_vectorises(kind: type, shop_dir: Path) -> None:
    # Gymnasium reads texts in shared memory only once, so a process each needs its pipes.
    options = {"shared_memory": False} if kind is AsyncVectorEnv else {}
    vector = kind([lambda: make(str(shop_dir))] * 2, **options)
    observations, infos = vector.reset(seed=[1, 2])
    alone = make(str(shop_dir))
    for index in range(2):
        observation, info = alone.reset(seed=index + 1)
        assert observations[index] == observation
        assert infos["available_actions"][index] == info["available_actions"]
    observations, *_ = vector.step(["search[lamp]", "search[tea]"])
    assert observations[1] == alone.step("search[tea]")[0]
    vector.close()


def test_importing_the_package_loads_no_model() -> None:
    code = (
        "import sys, envs, gymnasium; assert 'rl_bench/WebShop-v0' in gymnasium.registry;"
        "import envs.webshop;"
        "print([m for m in ('torch', 'ray', 'spacy', 'nltk') if m in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "[]"
