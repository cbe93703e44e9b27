"""A search tool that remembers: what was found once is found again, the same and for free.

Only answers are kept, never failures. The key is the back-end, its parameters and the query, so
another service or another number of results asks anew; deleting the file forgets everything.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict

from envs.search.base import SearchBackend, SearchFailed, SearchResult
from envs.text_store import TextStore, key_of

LOG = logging.getLogger(__name__)


class CachedSearch:
    """``backend`` behind ``store``; closes both.

    Args:
        backend: Asked for what is not in the store.
        store: Where results are kept.
        only: Replay: what is not in the store is a failure, and nothing is asked.
    """

    def __init__(self, backend: SearchBackend, store: TextStore, *, only: bool = False) -> None:
        self._backend = backend
        self._store = store
        self._only = only

    @property
    def name(self) -> str:
        """The back-end's."""
        return self._backend.name

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """The back-end's."""
        return self._backend.parameters

    def search(self, query: str) -> list[SearchResult]:
        """See `SearchBackend.search`.

        Raises:
            SearchFailed: The back-end failed, or a replay misses the query.
        """
        key = key_of({"backend": self.name, "parameters": dict(self.parameters), "query": query})
        kept = self._kept(key)
        if kept is not None:
            return kept
        if self._only:
            raise SearchFailed(
                f"{self.name}: {query[:100]!r} is not in the search cache {self._store.path}, and "
                "search_cache_only forbids to ask"
            )
        found = self._backend.search(query)
        # Another process may have asked meanwhile: its answer is the one that stays.
        earlier = self._kept(key)
        if earlier is not None:
            return earlier
        self._store.put(key, json.dumps([asdict(each) for each in found], ensure_ascii=False))
        return found

    def close(self) -> None:
        """Closes the back-end and the store."""
        self._backend.close()
        self._store.close()

    def _kept(self, key: str) -> list[SearchResult] | None:
        text = self._store.get(key)
        if text is None:
            return None
        try:
            return [SearchResult(**fields) for fields in json.loads(text)]
        except (ValueError, TypeError) as error:
            LOG.warning("%s: an entry cannot be read (%s); asking anew", self._store.path, error)
            return None
