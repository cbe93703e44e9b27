"""What a search tool is: a query in, a few results out, and a failure that is never "no results".

A back-end is used by one environment at a time, from whatever thread steps it.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from envs.errors import EnvironmentBroken

MAX_QUERY_CHARS = 400
MAX_QUERY_WORDS = 50
"""What the strictest service takes; a longer query would be refused as malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One found page: its title, its address, and the passage that matches."""

    title: str
    url: str
    snippet: str


class SearchFailed(EnvironmentBroken):
    """The search service gave no answer: the fault of no player, and never an empty result."""


class SearchBackend(Protocol):
    """A search tool."""

    @property
    def name(self) -> str:
        """The name that `envs.search.backends.make_search` takes."""
        ...

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """What beside the query decides the results; no key is among them."""
        ...

    def search(self, query: str) -> list[SearchResult]:
        """The best results, best first; none if nothing matches.

        Args:
            query: As `normalised` makes it; not empty.

        Raises:
            SearchFailed: There was no answer within the back-end's own limits.
        """
        ...

    def close(self) -> None:
        """Ends connections; safe to call twice."""
        ...


def normalised(query: str) -> str:
    """``query`` in one line of composed characters, cut to what every service takes.

    Queries that differ in nothing else are one query, and share their cached results.
    """
    composed = unicodedata.normalize("NFC", query.encode("utf-8", "replace").decode())
    printable = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in composed)
    words = printable.split()[:MAX_QUERY_WORDS]
    return " ".join(words)[:MAX_QUERY_CHARS].rstrip()


def plain(text: object, *, max_chars: int) -> str:
    """``text`` without markup and line breaks, clipped; empty if it is no text."""
    if not isinstance(text, str):
        return ""
    words = re.sub(r"<[^<>]{0,100}>", "", text.encode("utf-8", "replace").decode()).split()
    joined = " ".join(words)
    return joined if len(joined) <= max_chars else joined[: max_chars - 1].rstrip() + "…"
