"""Brave's web search (https://api-dashboard.search.brave.com/app/documentation/web-search).

A query without a match is answered without the part ``web``.
"""

from collections.abc import Mapping
from typing import Any

from envs.search.base import SearchResult
from envs.search.http import Query, items_of, result_of

_MAX_COUNT = 20


class Brave:
    """The wire format."""

    name = "brave"
    url = "https://api.search.brave.com/res/v1/web/search"
    key_variable = "BRAVE_API_KEY"

    def query(self, text: str, *, key: str, num_results: int) -> Query:
        """See `envs.search.http.Service.query`."""
        return Query(
            headers={"X-Subscription-Token": key},
            params={"q": text, "count": min(num_results, _MAX_COUNT), "text_decorations": "false"},
        )

    def results(self, answer: Mapping[str, Any]) -> list[SearchResult]:
        """See `envs.search.http.Service.results`."""
        if answer.get("type") != "search":
            raise ValueError(f"it is of type {answer.get('type')!r}")
        items = items_of(answer, "web", "results")
        return [result_of(item, url="url", snippet="description") for item in items]
