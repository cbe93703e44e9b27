"""Offline search over a corpus of articles, ranked by BM25: the same results everywhere, for free.

A corpus is a JSONL file whose lines hold ``title``, ``url`` and ``text``. Its index is made once a
process and shared by its environments.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from envs.bm25 import BM25Index
from envs.errors import EnvironmentBroken
from envs.lucene_analyzer import analyze
from envs.search.base import SearchResult, plain

CORPUS_FILE = "corpus.jsonl"
SNIPPET_CHARS = 500
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Corpus:
    """Articles and their index.

    Args:
        articles: In the file's order; ``snippet`` holds the whole text.
    """

    def __init__(self, articles: Sequence[SearchResult]) -> None:
        self._articles = {f"{number:08d}": article for number, article in enumerate(articles)}
        self._index = BM25Index(
            {key: f"{each.title}\n{each.snippet}" for key, each in self._articles.items()}
        )

    def __len__(self) -> int:
        return len(self._articles)

    def search(self, query: str, *, num_results: int) -> list[SearchResult]:
        """The best articles, each with its passage that shares the most terms with ``query``."""
        terms = frozenset(analyze(query))
        found = [self._articles[hit.doc_id] for hit in self._index.search(query, k=num_results)]
        return [
            SearchResult(title=each.title, url=each.url, snippet=passage(each.snippet, terms=terms))
            for each in found
        ]


class CorpusSearch:
    """The search tool.

    Args:
        path: The corpus.
        num_results: Results wanted for a query.

    Raises:
        EnvironmentBroken: The corpus is missing or not one; names file, line and form.
    """

    name = "bm25"

    def __init__(self, path: Path, *, num_results: int) -> None:
        self._corpus = read_corpus(path)
        self._num_results = num_results

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """The number of results."""
        return {"num_results": self._num_results}

    def search(self, query: str) -> list[SearchResult]:
        """See `SearchBackend.search`."""
        return self._corpus.search(query, num_results=self._num_results)

    def close(self) -> None:
        """The index is shared, and stays."""


def passage(text: str, *, terms: frozenset[str], max_chars: int = SNIPPET_CHARS) -> str:
    """Whole sentences in a row, up to ``max_chars``, that hold the most of ``terms``."""
    if len(text) <= max_chars:
        return plain(text, max_chars=max_chars)
    sentences = _SENTENCE_END.split(text)
    held = [terms & frozenset(analyze(sentence)) for sentence in sentences]
    best, most = 0, -1
    for start in range(len(sentences)):
        end = _end_of_window(sentences, start, max_chars)
        num_terms = len(frozenset().union(*held[start:end]))
        if num_terms > most:
            best, most = start, num_terms
    window = sentences[best : _end_of_window(sentences, best, max_chars)]
    return plain(" ".join(window), max_chars=max_chars)


def _end_of_window(sentences: Sequence[str], start: int, max_chars: int) -> int:
    """The first sentence after ``start`` that no longer fits; at least one is taken."""
    room, end = max_chars - len(sentences[start]), start + 1
    while end < len(sentences) and room > len(sentences[end]):
        room -= len(sentences[end]) + 1
        end += 1
    return end


def read_corpus(path: Path) -> Corpus:
    """The corpus in a file; read and indexed once a process while the file stays as it is.

    Raises:
        EnvironmentBroken: It is missing or not a corpus.
    """
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise EnvironmentBroken(
            f"no search corpus at {path} ({error.strerror}); it must be a JSONL file of objects "
            "with title, url and text"
        ) from error


@lru_cache(maxsize=4)
def _read(path: Path, _mtime_ns: int, _num_bytes: int) -> Corpus:
    articles = []
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                articles.append(_article(line, where=f"{path}, line {number}"))
    return Corpus(articles)


def _article(line: str, *, where: str) -> SearchResult:
    try:
        fields = json.loads(line)
        return SearchResult(
            title=str(fields["title"]), url=str(fields["url"]), snippet=str(fields["text"])
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EnvironmentBroken(
            f"{where}: not an article with title, url and text ({type(error).__name__}: {error})"
        ) from error
