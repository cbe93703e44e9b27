"""Tavily's search (https://docs.tavily.com/documentation/api-reference/endpoint/search)."""

from collections.abc import Mapping
from typing import Any

from envs.search.base import SearchResult
from envs.search.http import Query, items_of, result_of


class Tavily:
    """The wire format."""

    name = "tavily"
    url = "https://api.tavily.com/search"
    key_variable = "TAVILY_API_KEY"

    def query(self, text: str, *, key: str, num_results: int) -> Query:
        """See `envs.search.http.Service.query`."""
        return Query(
            headers={"Authorization": f"Bearer {key}"},
            body={"query": text, "max_results": num_results, "search_depth": "basic"},
        )

    def results(self, answer: Mapping[str, Any]) -> list[SearchResult]:
        """See `envs.search.http.Service.results`."""
        if "results" not in answer:
            raise ValueError("it has no 'results'")
        items = items_of(answer, "results")
        return [result_of(item, url="url", snippet="content") for item in items]
