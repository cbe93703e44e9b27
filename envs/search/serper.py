"""Serper's Google results (https://serper.dev)."""

from collections.abc import Mapping
from typing import Any

from envs.search.base import SearchResult
from envs.search.http import Query, items_of, result_of


class Serper:
    """The wire format."""

    name = "serper"
    url = "https://google.serper.dev/search"
    key_variable = "SERPER_API_KEY"

    def query(self, text: str, *, key: str, num_results: int) -> Query:
        """See `envs.search.http.Service.query`."""
        return Query(headers={"X-API-KEY": key}, body={"q": text, "num": num_results})

    def results(self, answer: Mapping[str, Any]) -> list[SearchResult]:
        """See `envs.search.http.Service.results`."""
        if "organic" not in answer:
            raise ValueError("it has no 'organic'")
        items = items_of(answer, "organic")
        return [result_of(item, url="link", snippet="snippet") for item in items]
