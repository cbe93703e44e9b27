"""Search services over real HTTP: formats, faults, limits; and no key anywhere."""

import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import pytest

from envs.errors import EnvironmentBroken
from envs.search.backends import DUCKDUCKGO, NETWORKED, SERVICES, key_variable, make_search
from envs.search.base import SearchBackend, SearchFailed, SearchResult, normalised
from envs.search.brave import Brave
from envs.search.duckduckgo import DuckDuckGoSearch
from envs.search.http import HttpLimits, HttpSearch, Service
from envs.search.serpapi import SerpApi
from envs.search.serper import Serper
from envs.search.tavily import Tavily
from tests.envs.search_service import KEY, NO_MATCH, Reply, SearchService

FORMATS: dict[str, type[Service]] = {
    "serpapi": SerpApi,
    "serper": Serper,
    "tavily": Tavily,
    "brave": Brave,
}
QUICK = HttpLimits(timeout_s=0.3, total_s=1.0, num_retries=2, first_pause_s=0.02)
PATIENT = HttpLimits(timeout_s=10.0, total_s=20.0, num_retries=2, first_pause_s=0.02)
"""For what must not depend on how busy the machine is."""
HTML: Reply = (200, "<html><body>Please sign in</body></html>", {"Content-Type": "text/html"})
needs_ddgs = pytest.mark.skipif(find_spec("ddgs") is None, reason="the package ddgs is missing")
names = pytest.mark.parametrize("name", [*SERVICES, pytest.param(DUCKDUCKGO, marks=needs_ddgs)])


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchService]:
    for name in SERVICES:
        monkeypatch.setenv(key_variable(name), KEY)
    with SearchService() as running:
        yield running


def make(service: SearchService, name: str, *, limits: HttpLimits = PATIENT) -> SearchBackend:
    if name == DUCKDUCKGO:
        return DuckDuckGoSearch(num_results=2, url=service.url(name), limits=limits)
    return HttpSearch(FORMATS[name](), num_results=2, url=service.url(name), limits=limits)


@names
def test_results_are_read_cleaned_and_limited(service: SearchService, name: str) -> None:
    search = make(service, name)
    found = search.search("café “x” & y")
    search.close()
    search.close()
    assert service.queries == ["café “x” & y"]
    assert [each.url for each in found] == [f"https://example.org/{n}?a=1&b=2" for n in range(2)]
    assert found[0].title == "café “x” & y 0"
    assert found[1].snippet == "All about café “x” & y, 1 &c"


@names
def test_no_match_is_an_empty_result_and_no_failure(service: SearchService, name: str) -> None:
    search = make(service, name)
    assert search.search(NO_MATCH) == []
    search.close()
    assert len(service.queries) == 1


FAULTS: dict[str, Reply | str] = {
    "rate limit": (429, "slow down", {"Retry-After": "0"}),
    "server error": (500, "oops", {}),
    "overloaded": (503, "later", {}),
    "html": HTML,
    "half": (200, '{"results": [', {}),
    "other json": (200, "[1, 2]", {}),
    "an error in 200": (200, '{"error": "something broke"}', {}),
    "hang": "hang",
    "cut": "cut",
}


cases = pytest.mark.parametrize(
    ("name", "fault"),
    [
        (name, fault)
        for name in SERVICES
        for fault in FAULTS
        if name == "tavily" or FAULTS[fault] not in ("hang", "cut")  # the same code for all
    ],
)


@cases
def test_a_passing_fault_is_survived(service: SearchService, name: str, fault: str) -> None:
    service.fault = lambda number: FAULTS[fault] if number == 0 else None
    limits = replace(PATIENT, timeout_s=1.0) if fault == "hang" else PATIENT
    search = make(service, name, limits=limits)
    assert len(search.search("q")) == 2
    search.close()
    assert len(service.queries) == 2


@cases
def test_a_lasting_fault_is_a_failure_within_the_limits(
    service: SearchService, name: str, fault: str
) -> None:
    service.fault = lambda number: FAULTS[fault]
    search = make(service, name, limits=QUICK if fault == "hang" else PATIENT)
    started = time.monotonic()
    with pytest.raises(SearchFailed, match=f"^{name}: .*attempt [0-9]"):
        search.search("q")
    search.close()
    assert time.monotonic() - started < 45.0
    assert 1 < len(service.queries) <= 1 + PATIENT.num_retries


@needs_ddgs
@pytest.mark.parametrize("fault", ["rate limit", "hang", "cut", "refused"])
def test_duckduckgo_tells_a_refusal_from_no_match(service: SearchService, fault: str) -> None:
    service.fault = lambda number: FAULTS.get(fault, (202, "are you a robot?", {}))
    search = make(service, DUCKDUCKGO, limits=QUICK if fault == "hang" else PATIENT)
    with pytest.raises(SearchFailed, match=r"^duckduckgo: .*attempt [0-9]"):
        search.search("q")
    assert len(service.queries) > 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "ddgs"] or ["ddgs"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SearchFailed, match="pip install ddgs"):
        DuckDuckGoSearch(num_results=1).search("q")


def test_an_answer_that_drips_is_given_up(service: SearchService) -> None:
    service.fault = lambda number: "drip"
    search = make(service, "tavily", limits=QUICK)
    started = time.monotonic()
    with pytest.raises(SearchFailed):
        search.search("q")
    search.close()
    assert time.monotonic() - started < 45.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 432])
def test_what_no_repetition_mends_is_asked_once(service: SearchService, status: int) -> None:
    service.fault = lambda number: (status, f'{{"error": "no, {KEY}"}}', {})
    search = make(service, "serper")
    with pytest.raises(SearchFailed, match=rf"serper: answered {status}: .*no, \*\*\*"):
        search.search("q")
    search.close()
    assert len(service.queries) == 1


def test_a_long_wish_to_wait_is_not_waited_for(service: SearchService) -> None:
    service.fault = lambda number: (429, "quota", {"Retry-After": "3600"})
    search = make(service, "brave")
    started = time.monotonic()
    with pytest.raises(SearchFailed, match="429"):
        search.search("q")
    search.close()
    assert time.monotonic() - started < 45.0


@pytest.mark.parametrize("name", SERVICES)
def test_keys_are_in_no_log_error_or_parameter(
    service: SearchService, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    search = make(service, name)
    search.search("q")
    service.fault = lambda number: (500, f"failed for api_key={KEY}", {})
    with pytest.raises(SearchFailed) as failure:
        search.search("q")
    search.close()
    assert "HTTP Request" in caplog.text
    service.fault = lambda number: (403, "x" * 190 + KEY, {})
    with pytest.raises(SearchFailed) as clipped:
        search.search("q")
    search.close()
    for text in (caplog.text, str(failure.value), repr(search.parameters), repr(vars(search))):
        assert KEY not in text
    assert KEY[:6] not in str(clipped.value)


@pytest.mark.parametrize("name", SERVICES)
def test_a_missing_key_names_its_variable(
    service: SearchService, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(key_variable(name), " ")
    with pytest.raises(SearchFailed, match=key_variable(name)):
        make(service, name).search("q")
    assert service.queries == []


def test_a_wrong_key_is_not_repeated(
    service: SearchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(key_variable("tavily"), "wrong\u00e9")
    search = make(service, "tavily")
    with pytest.raises(SearchFailed):
        search.search("q")
    search.close()
    monkeypatch.setenv(key_variable("tavily"), "wrong")
    with pytest.raises(SearchFailed, match=r"answered 401: .*\*\*\*"):
        search.search("q")
    search.close()
    assert len(service.queries) == 1


def test_the_default_limits_lie_below_a_step_time_out() -> None:
    limits = HttpLimits()
    assert limits.total_s + limits.timeout_s < 30.0


def test_nobody_there_is_a_failure() -> None:
    with SearchService() as gone:
        url = gone.url("tavily")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(key_variable("tavily"), KEY)
        search = HttpSearch(Tavily(), num_results=2, url=url, limits=QUICK)
        with pytest.raises(SearchFailed, match="no answer"):
            search.search("q")
        search.close()


@pytest.mark.parametrize("name", NETWORKED)
def test_every_service_is_made_by_name(name: str) -> None:
    search = make_search(name, num_results=4)
    assert search is not None
    assert search.name == name
    assert search.parameters["num_results"] == 4
    assert "url" not in search.parameters
    search.close()


def test_wrong_names_and_arguments_are_told() -> None:
    assert make_search("none", num_results=1) is None
    with pytest.raises(ValueError, match=r"'bing'; choices: serpapi, .*none"):
        make_search("bing", num_results=1)
    with pytest.raises(ValueError, match="cache"):
        make_search("brave", num_results=1, cache_only=True)
    with pytest.raises(EnvironmentBroken, match="corpus"):
        make_search("bm25", num_results=1)


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("  a \n b\t", "a b"),
        ("cafe\u0301", "café"),
        ("a\x00b\u200bc\ud800", "a b c?"),
        ("\x01 \u200b", ""),
        ("x " * 80, ("x " * 50).strip()),
        ("y" * 500, "y" * 400),
    ],
)
def test_queries_are_normalised(query: str, sent: str) -> None:
    assert normalised(query) == sent
    assert normalised(sent) == sent


def test_results_of_wrong_types_are_empty_texts() -> None:
    answer = {"results": [{"title": 3, "url": None, "content": ["x"]}, "y", {"url": "u" * 999}]}
    first, second = Tavily().results(answer)
    assert first == SearchResult(title="", url="", snippet="")
    assert len(second.url) == 200
    with pytest.raises(ValueError, match="not a list"):
        Tavily().results({"results": "x"})
