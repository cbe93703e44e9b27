"""What holds for every environment, found as an agent finds it: through DATA_PATH alone."""

import math
import multiprocessing
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from omegaconf import OmegaConf

import envs  # noqa: F401  registers the environments
from rl_bench.config import TaskConfig
from rl_bench.tasks.registry import make_task
from tests.envs.every_environment import TextEnv, any_action, trace

ROOT = Path(__file__).resolve().parents[2]
TASKS = {
    "rl_bench/ALFWorld-v0": "alfworld_mini",
    "rl_bench/DeepSearchQA-v0": "deepsearchqa_mini",
    "rl_bench/WebShop-v0": "webshop_mini",
}
"""Environment to the task whose built-in data it is tested with."""
SMALL = {"alfworld_mini": {"num_train": 30, "num_eval": 5}}
EVERY = pytest.mark.parametrize("env_id", sorted(TASKS))
NUM_ACTIONS = 10_000


@pytest.fixture(scope="session")
def agent_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent's data folder in mode multi, with the train data of every task."""
    folder = tmp_path_factory.mktemp("agent") / "data"
    cache = tmp_path_factory.mktemp("cache")
    for name in TASKS.values():
        option = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "task" / f"{name}.yaml"))
        assert isinstance(option, dict)
        config = TaskConfig.model_validate({**option, **SMALL.get(name, {})})
        task = make_task(config, cache=cache)
        task.write_train_data(folder / name)
    return folder


@pytest.fixture(autouse=True)
def workspace(agent_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(agent_data))


@pytest.fixture
def env(env_id: str) -> Iterator[TextEnv]:
    made: TextEnv = gymnasium.make(env_id).unwrapped
    yield made
    made.close()


def test_every_registered_environment_is_tested() -> None:
    registered = [name for name in gymnasium.registry if name.startswith("rl_bench/")]
    assert sorted(registered) == sorted(TASKS)


@EVERY
def test_gymnasium_s_own_checks_pass_without_a_warning(env: TextEnv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)


@EVERY
def test_seed_and_actions_decide_everything_in_any_process(env_id: str) -> None:
    first = trace(env_id, seed=3)
    assert trace(env_id, seed=3) == first
    assert trace(env_id, seed=4) != first
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        assert other.submit(trace, env_id, seed=3).result(timeout=60) == first


@EVERY
def test_an_episode_is_chosen_by_its_number(env: TextEnv) -> None:
    seen = [env.reset(seed=seed, options={"episode": 1}) for seed in (1, 2)]
    assert seen[0][0] == seen[1][0]
    assert env.reset(options={"episode": 2})[0] != seen[0][0]


@EVERY
def test_an_episode_that_is_over_wants_a_reset(env: TextEnv) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


@EVERY
@pytest.mark.parametrize(
    ("mode", "settings"), [("sync", {}), ("async", {"shared_memory": False})], ids=["sync", "async"]
)
def test_environments_vectorise(env_id: str, mode: str, settings: dict[str, Any]) -> None:
    made: Any = gymnasium.make_vec(env_id, 2, mode, vector_kwargs=settings)
    single: TextEnv = gymnasium.make(env_id).unwrapped
    observations, _ = made.reset(seed=[5, 6])
    assert observations[0] == single.reset(seed=5)[0]
    stepped, rewards, *_ = made.step(("look", "search[red]"))
    assert stepped[0] == single.step("look")[0]
    assert rewards.shape == (2,)
    single.close()
    made.close()


@EVERY
def test_shared_memory_is_refused_and_never_shows_stale_texts(env_id: str) -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec(env_id, 2, "async")


def assert_well_formed(env: TextEnv, answer: tuple[Any, ...]) -> None:
    observation, reward, terminated, truncated, info = answer
    assert env.observation_space.contains(observation)
    assert isinstance(reward, float)
    assert math.isfinite(reward)
    assert 0.0 <= reward <= 1.0
    assert (type(terminated), type(truncated)) == (bool, bool)
    assert all(isinstance(action, str) for action in info["available_actions"])
    assert info["available_actions"] or terminated


@EVERY
def test_ten_thousand_random_and_adversarial_actions(env: TextEnv) -> None:
    rng = random.Random(7)
    is_over, num_episodes = True, 0
    info: dict[str, Any] = {}
    for _ in range(NUM_ACTIONS):
        if is_over:
            num_episodes += 1
            _, info = env.reset(seed=num_episodes)
        answer = env.step(any_action(rng, info))
        assert_well_formed(env, answer)
        is_over, info = answer[2] or answer[3], answer[4]
    assert num_episodes > 10


def agents_environment(agent_data: Path) -> dict[str, str]:
    """What a workspace sets, as far as environments see it; nothing of this process's own."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "DATA_PATH": str(agent_data),
        "OMP_NUM_THREADS": "1",
    }


@EVERY
def test_many_resets_need_no_more_memory_than_a_few(env_id: str, agent_data: Path) -> None:
    measured = subprocess.run(
        [sys.executable, "-m", "tests.envs.every_environment", env_id],
        cwd=ROOT,
        env=agents_environment(agent_data),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    after_20, after_200 = map(int, measured.stdout.split())
    assert after_200 < 1.1 * after_20


_BARE = """
import gymnasium
env = gymnasium.make("envs:{env_id}")
print(env.reset(seed=1)[0])
"""


@EVERY
def test_a_bare_make_works_in_a_workspace(env_id: str, agent_data: Path, tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", _BARE.format(env_id=env_id)],
        cwd=tmp_path,
        env=agents_environment(agent_data),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.stderr == ""
    here: TextEnv = gymnasium.make(env_id).unwrapped
    assert said.stdout.strip() == here.reset(seed=1)[0].strip()
    here.close()
