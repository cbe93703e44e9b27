"""What a command loads before it answers: told by the modules that are there, never by a clock."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINES = {"torch", "vllm", "ray", "transformers", "wandb", "spacy", "datasets", "trl"}
TABLES = {"pyarrow", "polars", "pandas", "sklearn"}
SERVERS = {"httpx", "openai", "fastapi", "uvicorn"}
ENVIRONMENTS = {"gymnasium", "numpy", "textworld", "alfworld", "nltk"}
COMPOSITION = {"hydra", "omegaconf", "pydantic", "rich"}
PROBE = """
import runpy, sys
module, sys.argv[1:] = sys.argv[1], sys.argv[2:]
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
except SystemExit as ended:
    code = ended.code
print("LOADED", *sys.modules)
sys.exit(code)
"""


def loaded(module: str, *words: str, cache: Path) -> set[str]:
    """The modules of a process that ran a command, which ended well."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, module, *words],
        cwd=cache,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RL_BENCH_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    shown, mark, names = done.stdout.rpartition("LOADED ")
    assert mark
    assert shown.strip()
    return set(names.split())


@pytest.mark.parametrize(
    "module",
    [
        "rl_bench.sweep",
        "rl_bench.evaluate",
        "rl_bench.doctor",
        "rl_bench.agents",
        "analysis.report",
    ],
)
def test_help_is_read_from_files(module: str, tmp_path: Path) -> None:
    found = loaded(module, "--help", cache=tmp_path)
    assert found & (ENGINES | TABLES | SERVERS | ENVIRONMENTS | COMPOSITION) == set()


def test_help_of_data_sets_needs_no_engine(tmp_path: Path) -> None:
    found = loaded("rl_bench.prepare", "--help", cache=tmp_path)
    assert found & (ENGINES | TABLES | ENVIRONMENTS) == set()


def test_a_plan_without_an_environment_loads_none(tmp_path: Path) -> None:
    found = loaded("rl_bench.sweep", "task=gsm8k_mini", "dry_run=true", cache=tmp_path)
    assert "hydra" in found
    assert found & (ENGINES | TABLES | SERVERS | ENVIRONMENTS) == set()


def test_a_plan_loads_the_environment_that_it_tries_out_and_nothing_else(tmp_path: Path) -> None:
    found = loaded("rl_bench.sweep", "+experiment=quickstart", "dry_run=true", cache=tmp_path)
    assert {"gymnasium", "textworld"} <= found, "one game is played to its end"
    assert found & (ENGINES | TABLES | SERVERS) == set()
