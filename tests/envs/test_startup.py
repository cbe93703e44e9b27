"""A workspace's Python: ids are known without an import, and nothing is loaded before its time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envs.alfworld_games import game_digest
from rl_bench.config import DataSource, TaskConfig
from rl_bench.tasks.alfworld.task import AlfworldTask

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *, cwd: Path, data: Path | None = None) -> str:
    """What the program prints, started as a workspace starts it, warnings being errors."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT / 'envs' / 'startup'}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=cwd,
        env=environment | ({} if data is None else {"DATA_PATH": str(data)}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> AlfworldTask:
    config = TaskConfig(
        name="games",
        kind="alfworld",
        level="L3",
        source=DataSource.BUILTIN,
        num_train=6,
        num_eval=3,
        max_tokens=16,
        max_steps=20,
        settings={"num_receptacles": 4, "num_objects": 3},
    )
    return AlfworldTask(config, cache=tmp_path_factory.mktemp("cache"))


_PLAY_ALL = """
import gymnasium
env = gymnasium.make("rl_bench/ALFWorld-v0")
for episode in range(6):
    print(env.reset(options={"episode": episode})[1]["game"])
"""


def test_a_bare_id_plays_train_games_and_no_others(task: AlfworldTask, tmp_path: Path) -> None:
    data = tmp_path / "data"
    task.write_train_data(data)
    games = [Path(line) for line in run(_PLAY_ALL, cwd=tmp_path, data=data).splitlines()]
    assert len(games) == 6
    assert all(game.is_relative_to(data / "json_2.1.1" / "train") for game in games)
    evaluated = {game_digest(Path(str(e.options["game"]))) for e in task.episodes()}
    assert not evaluated & {game_digest(game) for game in games}


def test_the_evaluation_split_is_not_there(task: AlfworldTask, tmp_path: Path) -> None:
    task.write_train_data(tmp_path / "data")
    code = """
import gymnasium
env = gymnasium.make("rl_bench/ALFWorld-v0", split="valid_unseen")
try:
    env.reset()
except Exception as error:
    print(error)
"""
    assert "no solvable games" in run(code, cwd=tmp_path, data=tmp_path / "data")


@pytest.mark.parametrize("first", ["gymnasium", "envs"])
def test_either_import_may_come_first(first: str, tmp_path: Path) -> None:
    code = f"""
import sys
assert "gymnasium" not in sys.modules and "envs" not in sys.modules
import {first}
import gymnasium
print([name for name in gymnasium.registry if name.startswith("rl_bench/")])
print(gymnasium.__spec__.name, gymnasium.make("CartPole-v1").spec.id)
"""
    said = run(code, cwd=tmp_path)
    assert "rl_bench/ALFWorld-v0" in said
    assert said.endswith("gymnasium CartPole-v1\n")


def test_a_program_with_envs_of_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "envs.py").write_text("raise RuntimeError('imported too early')")
    assert run("import gymnasium; print(len(gymnasium.registry) > 9)", cwd=tmp_path) == "True\n"


def test_importing_gymnasium_loads_no_engine(tmp_path: Path) -> None:
    code = """
import gymnasium, sys
print([m for m in ("textworld", "alfworld", "torch", "ray", "nltk", "httpx") if m in sys.modules])
"""
    assert run(code, cwd=tmp_path) == "[]\n"
