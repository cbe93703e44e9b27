"""Full-text search over a fixed set of documents, ranked by BM25 exactly as Lucene 8 ranks.

What differs from the textbook formula: no factor (k1 + 1); a document's length is known only as
Lucene stores it, in one lossy byte; arithmetic is in single precision; a term that a query repeats
weighs that many times. Ties are broken by document id, ascending. The index lives in memory and is
never changed; searching is thread-safe. The analysis of text is `envs.lucene_analyzer`'s.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from envs.lucene_analyzer import analyze

K1 = 0.9
B = 0.4
"""Pyserini's and Anserini's defaults."""
_EXACT_LENGTHS = 24
"""Lengths below 24 + 16 are kept exactly; see `stored_length`."""


class Hit(NamedTuple):
    """A found document and its score."""

    doc_id: str
    score: float


class _Postings(NamedTuple):
    """Where a term occurs: document numbers, and 1 + frequency / length norm for each."""

    documents: npt.NDArray[np.int32]
    denominators: npt.NDArray[np.float32]
    idf: np.float32


class BM25Index:
    """An index over ``documents``, a mapping of document id to text.

    Args:
        documents: Order does not matter.
        k1: How soon repetitions of a term stop to count.
        b: How much long documents are held back, in [0, 1].
        analyzer: Text to terms; the same for documents and queries.
    """

    def __init__(
        self,
        documents: Mapping[str, str],
        *,
        k1: float = K1,
        b: float = B,
        analyzer: Callable[[str], list[str]] = analyze,
    ) -> None:
        self._analyzer = analyzer
        self._ids = sorted(documents)
        counted: dict[str, list[tuple[int, int]]] = {}
        lengths: list[int] = []
        for number, doc_id in enumerate(self._ids):
            terms = analyzer(documents[doc_id])
            lengths.append(len(terms))
            for term, frequency in Counter(terms).items():
                counted.setdefault(term, []).append((number, frequency))
        norms = _inverse_norms(lengths, k1=k1, b=b)
        num_indexed = sum(length > 0 for length in lengths)
        self._postings = {
            term: _postings(pairs, norms, num_documents=num_indexed)
            for term, pairs in counted.items()
        }

    def __len__(self) -> int:
        return len(self._ids)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best ``k`` documents that share a term with ``query``, best first.

        A query of stop words only, or of unknown words, finds nothing.
        """
        scores = np.zeros(len(self._ids), dtype=np.float64)
        found = np.zeros(len(self._ids), dtype=np.bool_)
        for term, times in Counter(self._analyzer(query)).items():
            postings = self._postings.get(term)
            if postings is None:
                continue
            weight = np.float32(times) * postings.idf
            scores[postings.documents] += weight - weight / postings.denominators
            found[postings.documents] = True
        matching = np.flatnonzero(found)
        ranked = scores[matching].astype(np.float32)
        best = np.argsort(-ranked, kind="stable")[:k]
        return [Hit(self._ids[matching[i]], float(ranked[i])) for i in best]


def stored_length(length: int) -> int:
    """A document's length in terms after Lucene's one-byte code (its ``SmallFloat.intToByte4``).

    Lengths up to 39 survive; of a longer one, what exceeds 24 keeps its four leading bits.
    """
    rest = length - _EXACT_LENGTHS
    if rest < 16:
        return length
    shift = rest.bit_length() - 4
    return _EXACT_LENGTHS + (rest >> shift << shift)


def _inverse_norms(lengths: list[int], *, k1: float, b: float) -> npt.NDArray[np.float32]:
    """For each document 1 / (k1 * (1 - b + b * length / mean length)), in single precision."""
    one, k, share = np.float32(1), np.float32(k1), np.float32(b)
    num_indexed = sum(length > 0 for length in lengths)
    mean = np.float32(sum(lengths) / max(1, num_indexed))
    stored = np.array([stored_length(length) for length in lengths], dtype=np.float32)
    return one / (k * ((one - share) + share * stored / max(mean, one)))


def _postings(
    pairs: list[tuple[int, int]], norms: npt.NDArray[np.float32], *, num_documents: int
) -> _Postings:
    documents = np.array([number for number, _ in pairs], dtype=np.int32)
    frequencies = np.array([frequency for _, frequency in pairs], dtype=np.float32)
    idf = np.log(1 + (num_documents - len(pairs) + 0.5) / (len(pairs) + 0.5))
    return _Postings(documents, np.float32(1) + frequencies * norms[documents], np.float32(idf))
