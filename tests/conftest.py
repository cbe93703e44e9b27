"""Shared fixtures: one Ray for the whole session, and the real data when they are there."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.ray_runtime import ray_runtime, set_environment
from envs.plugins import plugin_entries
from rl_bench.config import ClusterConfig

LOCAL = ClusterConfig(name="test", num_cpus=2)
set_environment(LOCAL)  # test modules import ray

for name in ("COLUMNS", "LINES"):  # readline sets them, where os.environ does not see it
    os.environ.pop(name, None)
    os.unsetenv(name)  # children inherit what C has; output is for a file
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real task data; tests that ask for it skip where there is none."""
    folder = os.environ.get("RL_BENCH_DATA")
    if not folder:
        pytest.skip("RL_BENCH_DATA is not set: no real task data on this machine")
    return Path(folder)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A Ray of two CPUs on this machine, as a sweep starts it."""
    with ray_runtime(LOCAL):
        yield


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path; what is imported from it is forgotten."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    plugin_entries.cache_clear()
    before = set(sys.modules)
    yield folder
    plugin_entries.cache_clear()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
