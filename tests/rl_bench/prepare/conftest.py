"""The net and the data folder of a user who prepares data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rl_bench.data.file_server import FileServer, serving
from tests.rl_bench.data.scene import serve


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The data folder of a user who has set nothing but a cache."""
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("RL_BENCH_DATA", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "data"


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A server with all the public files."""
    with serving() as running:
        serve(running)
        yield running
