"""The search back-ends by name.

``serpapi``, ``serper``, ``tavily`` and ``brave`` need the user's key, ``duckduckgo`` the package
``ddgs``, ``bm25`` a corpus on this machine; ``none`` is no search at all. Plug-ins add services of
their own.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from envs.errors import EnvironmentBroken
from envs.plugins import SEARCH, load_or_own, names_in
from envs.search.base import SearchBackend
from envs.search.cached import CachedSearch
from envs.text_store import TextStore

if TYPE_CHECKING:
    from envs.search.http import Service

NONE = "none"
OFFLINE = "bm25"
SERVICES: Mapping[str, str] = {
    "serpapi": "envs.search.serpapi:SerpApi",
    "serper": "envs.search.serper:Serper",
    "tavily": "envs.search.tavily:Tavily",
    "brave": "envs.search.brave:Brave",
}
"""Services with a key: name to ``module:class`` of the wire format."""
DUCKDUCKGO = "duckduckgo"
NETWORKED = names_in(SEARCH, (*SERVICES, DUCKDUCKGO))
"""Back-ends that ask others, and so wait, may fail, and are worth a cache."""
NAMES = (*NETWORKED, OFFLINE, NONE)


def key_variable(name: str) -> str:
    """The environment variable with the key of back-end ``name``; empty if it needs none.

    Raises:
        PluginBroken: The plug-in that has it is broken.
    """
    make = load_or_own(SEARCH, name, SERVICES)
    return "" if make is None else str(getattr(make, "key_variable"))  # noqa: B009  untyped


def make_search(
    name: str,
    *,
    num_results: int,
    corpus: Path | None = None,
    url: str = "",
    cache: Path | None = None,
    cache_only: bool = False,
) -> SearchBackend | None:
    """Makes a search tool.

    Args:
        name: One of `NAMES`.
        num_results: Results for a query.
        corpus: For ``bm25``.
        url: Another address of a service.
        cache: File of the persistent cache of a service; ``None``: no cache.
        cache_only: Answer from the cache alone.

    Returns:
        ``None`` for ``none``.

    Raises:
        ValueError: An unknown name, or arguments that do not fit it.
        EnvironmentBroken: There is no such corpus.
        PluginBroken: The plug-in that has it is broken.
    """
    if name not in NAMES:
        raise ValueError(f"unknown search back-end {name!r}; choices: {', '.join(NAMES)}")
    if cache_only and (cache is None or name not in NETWORKED):
        raise ValueError("a search from the cache alone needs a service's name and a cache")
    if name == NONE:
        return None
    if name == OFFLINE:
        from envs.search.corpus import CorpusSearch

        if corpus is None:
            raise EnvironmentBroken("search bm25 needs a corpus")
        return CorpusSearch(corpus, num_results=num_results)
    backend = _make_networked(name, num_results=num_results, url=url)
    return backend if cache is None else CachedSearch(backend, TextStore(cache), only=cache_only)


def _make_networked(name: str, *, num_results: int, url: str) -> SearchBackend:
    if name == DUCKDUCKGO:
        from envs.search.duckduckgo import DuckDuckGoSearch

        return DuckDuckGoSearch(num_results=num_results, url=url)
    from envs.search.http import HttpSearch

    service = cast("Callable[[], Service] | None", load_or_own(SEARCH, name, SERVICES))
    assert service is not None, name
    return HttpSearch(service(), num_results=num_results, url=url)
