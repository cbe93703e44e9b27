"""DuckDuckGo's result page, read by the package ``ddgs``; needs no key, and is refused often.

The package's front (``DDGS.text``) answers "no results" for a refusal too, and asks other engines
in turn. Its DuckDuckGo engine alone tells the two apart: ``None`` is a refusal (the service answers
202 to whom it takes for a robot), a list is a page that was read.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from envs.search.base import SearchFailed, SearchResult, plain
from envs.search.http import (
    SNIPPET_CHARS,
    TITLE_CHARS,
    URL_CHARS,
    HttpLimits,
    RetryLater,
    with_retries,
)

if TYPE_CHECKING:
    from ddgs.engines.duckduckgo import Duckduckgo
    from ddgs.results import TextResult

_REGION = "us-en"


class DuckDuckGoSearch:
    """The search tool.

    Args:
        num_results: Results wanted for a query; a page has ten.
        url: Where to ask instead of the public page.
        limits: Time-outs and retries.
    """

    name = "duckduckgo"

    def __init__(
        self, *, num_results: int, url: str = "", limits: HttpLimits | None = None
    ) -> None:
        self._num_results = num_results
        self._url = url
        self._limits = limits or HttpLimits()

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """The number of results and the region, and the address unless it is the public one."""
        own = {"url": self._url} if self._url else {}
        return {"num_results": self._num_results, "region": _REGION, **own}

    def search(self, query: str) -> list[SearchResult]:
        """See `SearchBackend.search`."""
        found = with_retries(partial(self._attempt, query), limits=self._limits, name=self.name)
        return [_result(item) for item in found[: self._num_results]]

    def close(self) -> None:
        """Nothing is kept open."""

    def _attempt(self, query: str, timeout_s: float) -> "list[TextResult]":
        engine = self._engine(timeout_s)
        try:
            found: list[TextResult] | None = engine.search(query, region=_REGION)
        except Exception as error:  # the package lets lxml's and its client's errors through
            raise RetryLater(f"no answer ({type(error).__name__})") from error
        if found is None:
            raise RetryLater("refused")
        return found

    def _engine(self, timeout_s: float) -> "Duckduckgo":
        try:
            from ddgs.engines.duckduckgo import Duckduckgo
        except ImportError as error:
            raise SearchFailed(
                "duckduckgo: the package ddgs is missing; install it with `pip install ddgs`"
            ) from error
        engine = Duckduckgo(timeout=max(1, round(timeout_s)))
        if self._url:
            engine.search_url = self._url
        return engine


def _result(item: "TextResult") -> SearchResult:
    return SearchResult(
        title=plain(item.title, max_chars=TITLE_CHARS),
        url=plain(item.href, max_chars=URL_CHARS),
        snippet=plain(item.body, max_chars=SNIPPET_CHARS),
    )
