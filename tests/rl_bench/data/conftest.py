"""A misbehaving file server, and no proxy on the way to it."""

from collections.abc import Iterator

import pytest

from tests.rl_bench.data.file_server import FileServer, serving


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
