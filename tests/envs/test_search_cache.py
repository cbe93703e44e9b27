"""The persistent search cache: identical and free the second time, and never a failure kept."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from envs.search.backends import key_variable, make_search
from envs.search.base import SearchBackend, SearchFailed, SearchResult
from envs.search.cached import CachedSearch
from envs.search.http import HttpLimits, HttpSearch
from envs.search.tavily import Tavily
from envs.text_store import TextStore
from tests.envs.search_service import KEY, NO_MATCH, SearchService

QUICK = HttpLimits(timeout_s=5.0, total_s=5.0, num_retries=1, first_pause_s=0.02)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchService]:
    monkeypatch.setenv(key_variable("tavily"), KEY)
    with SearchService() as running:
        yield running


def open_search(
    service: SearchService, path: Path, *, num_results: int = 2, only: bool = False
) -> SearchBackend:
    backend = HttpSearch(Tavily(), num_results=num_results, url=service.url("tavily"), limits=QUICK)
    return CachedSearch(backend, TextStore(path), only=only)


def test_a_repetition_is_identical_and_free(service: SearchService, tmp_path: Path) -> None:
    first = open_search(service, tmp_path / "c.sqlite")
    found = [first.search(query) for query in ("a", "b", NO_MATCH, "a")]
    first.close()
    assert service.queries == ["a", "b", NO_MATCH]
    second = open_search(service, tmp_path / "c.sqlite")
    assert [second.search(query) for query in ("a", "b", NO_MATCH, "a")] == found
    second.close()
    assert len(service.queries) == 3
    assert found[2] == []


def test_other_parameters_ask_anew(service: SearchService, tmp_path: Path) -> None:
    for num_results in (2, 3):
        search = open_search(service, tmp_path / "c.sqlite", num_results=num_results)
        assert len(search.search("a")) == num_results
        search.close()
    assert len(service.queries) == 2


def test_failures_are_not_kept(service: SearchService, tmp_path: Path) -> None:
    service.fault = lambda number: (500, "no", {}) if number < 2 else None
    search = open_search(service, tmp_path / "c.sqlite")
    with pytest.raises(SearchFailed):
        search.search("a")
    assert len(search.search("a")) == 2
    search.close()


def test_a_replay_asks_nobody(service: SearchService, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    search = open_search(service, path)
    found = search.search("a")
    search.close()
    replay = open_search(service, path, only=True)
    assert replay.search("a") == found
    with pytest.raises(SearchFailed, match="'b' is not in the search cache"):
        replay.search("b")
    replay.close()
    assert service.queries == ["a"]


def test_a_replay_by_name_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(key_variable("brave"), raising=False)
    replay = make_search("brave", num_results=1, cache=tmp_path / "c.sqlite", cache_only=True)
    assert replay is not None
    assert replay.name == "brave"
    with pytest.raises(SearchFailed, match="search_cache_only"):
        replay.search("a")
    replay.close()


class Slow:
    """Answers after another process has asked and kept its own answer."""

    name = "slow"
    parameters: Mapping[str, str | int] = {}

    def __init__(self, title: str, meanwhile: Callable[[], object]) -> None:
        self._title = title
        self._meanwhile = meanwhile

    def search(self, query: str) -> list[SearchResult]:
        self._meanwhile()
        return [SearchResult(title=self._title, url="", snippet="")]

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("spoilt", [False, True])
def test_who_asks_at_once_plays_what_a_replay_gives(tmp_path: Path, spoilt: bool) -> None:
    path = tmp_path / "c.sqlite"
    if spoilt:
        CachedSearch(Slow("old", lambda: None), TextStore(path)).search("a")
        _spoil(path, "not json")
    other = CachedSearch(Slow("other", lambda: None), TextStore(path))
    own = CachedSearch(Slow("own", lambda: other.search("a")), TextStore(path))
    played = own.search("a")
    assert [result.title for result in played] == ["other"]
    assert CachedSearch(Slow("", lambda: None), TextStore(path), only=True).search("a") == played


@pytest.mark.parametrize("text", ["not json", '[{"title": "only"}]', "3"])
def test_a_spoilt_entry_is_asked_anew(
    service: SearchService, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.sqlite"
    search = open_search(service, path)
    search.search("a")
    search.close()
    _spoil(path, text)
    search = open_search(service, path)
    assert len(search.search("a")) == 2
    search.close()
    assert len(service.queries) == 2
    assert "asking anew" in caplog.text


def _spoil(path: Path, text: str) -> None:
    import sqlite3

    connection = sqlite3.connect(path)
    connection.execute("UPDATE texts SET text = ?", (text,))
    connection.commit()
    connection.close()


def test_the_file_holds_results_and_no_key(service: SearchService, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    search = open_search(service, path)
    search.search("ä")
    search.close()
    content = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert KEY.encode() not in content
    assert json.dumps("All about ä, 0 &c", ensure_ascii=False).encode() in content
