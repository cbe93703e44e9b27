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
        text = self._store.get(key)
        kept = None if text is None else self._read(text)
        if kept is not None:
            return kept
        if self._only:
            raise SearchFailed(
                f"{self.name}: {query[:100]!r} is not in the search cache {self._store.path}, and "
                "search_cache_only forbids to ask"
            )
        found = self._backend.search(query)
        own = json.dumps([asdict(each) for each in found], ensure_ascii=False)
        # Another process may have asked meanwhile: what is played is what a replay gives.
        stays = self._store.keep(key, own, instead_of=text)
        if stays == own:
            return found
        other = self._read(stays)
        return found if other is None else other

    def close(self) -> None:
        """Closes the back-end and the store."""
        self._backend.close()
        self._store.close()

    def _read(self, text: str) -> list[SearchResult] | None:
        try:
            return [SearchResult(**fields) for fields in json.loads(text)]
        except (ValueError, TypeError, RecursionError) as error:
            LOG.warning("%s: an entry cannot be read (%s); asking anew", self._store.path, error)
            return None
