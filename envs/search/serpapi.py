"""SerpApi's Google results (https://serpapi.com/search-api), which the published runs used first.

Its key must stand in the address. No match is a success with an ``error`` text; a failed search has
the status "Error" and is worth another attempt.
"""

from collections.abc import Mapping
from typing import Any

from envs.search.base import SearchResult
from envs.search.http import Query, items_of, result_of


class SerpApi:
    """The wire format."""

    name = "serpapi"
    url = "https://serpapi.com/search.json"
    key_variable = "SERPAPI_KEY"

    def query(self, text: str, *, key: str, num_results: int) -> Query:
        """See `envs.search.http.Service.query`."""
        return Query(params={"engine": "google", "q": text, "num": num_results, "api_key": key})

    def results(self, answer: Mapping[str, Any]) -> list[SearchResult]:
        """See `envs.search.http.Service.results`."""
        metadata = answer.get("search_metadata")
        status = metadata.get("status") if isinstance(metadata, Mapping) else None
        if status != "Success":
            raise ValueError(f"status {status}: {answer.get('error')}")
        items = items_of(answer, "organic_results")
        return [result_of(item, url="link", snippet="snippet") for item in items]
