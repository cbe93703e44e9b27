"""Search: Lucene's analysis and ranking, checked against values worked out by hand."""

import math

import pytest

from envs.bm25 import BM25Index, stored_length
from envs.lucene_analyzer import MAX_TOKEN_CHARS, analyze


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Running shoes, for the RUNNER's ponies", ["run", "shoe", "runner", "poni"]),
        ("It's a women’s dress", ["women", "dress"]),
        ("technology technological possibly", ["technolog", "technolog", "possibl"]),
        (
            "1,000.5 x:y size_m 3.5mm rock-n-roll",
            ["1,000.5", "x:y", "size_m", "3.5mm", "rock", "n", "roll"],
        ),
        (
            "café d'anjou 日本 ひら カタカナ",
            ["café", "d'anjou", "日", "本", "ひ", "ら", "カタカナ"],
        ),
        ("★ ❤️ -- ½ ❶ &", ["★", "❤️"]),
        ("the of and", []),
        ("\ud800 \x00", []),
        ("", []),
    ],
)
def test_terms_are_lucene_s(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_an_endless_word_is_cut() -> None:
    assert [len(term) for term in analyze("x" * 600)] == [MAX_TOKEN_CHARS, MAX_TOKEN_CHARS, 90]


@pytest.mark.parametrize(
    ("length", "stored"),
    [(0, 0), (39, 39), (40, 40), (41, 40), (42, 42), (55, 54), (56, 56), (59, 56), (258, 248)],
)
def test_lengths_lose_their_low_bits_as_in_lucene(length: int, stored: int) -> None:
    assert stored_length(length) == stored


def test_scores_follow_the_formula_without_k1_plus_one() -> None:
    index = BM25Index({"a": "red lamp", "b": "red red sofa chair", "c": "blue rug"}, k1=0.9, b=0.4)
    mean = 8 / 3
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))

    def score(frequency: int, length: int) -> float:
        return idf * frequency / (frequency + 0.9 * (1 - 0.4 + 0.4 * length / mean))

    hits = index.search("red")
    assert [hit.doc_id for hit in hits] == ["b", "a"]
    assert [hit.score for hit in hits] == pytest.approx([score(2, 4), score(1, 2)], rel=1e-6)


def test_a_repeated_query_term_weighs_more() -> None:
    index = BM25Index({"a": "red lamp", "b": "blue lamp", "c": "blue rug", "d": "red rug"})
    assert index.search("red red blue")[0].doc_id in {"a", "d"}
    [once] = [hit for hit in index.search("red") if hit.doc_id == "a"]
    [twice] = [hit for hit in index.search("red red") if hit.doc_id == "a"]
    assert twice.score == pytest.approx(2 * once.score)


def test_ties_go_by_id_and_k_cuts() -> None:
    index = BM25Index({"b": "lamp", "a": "lamp", "c": "lamp"})
    assert [hit.doc_id for hit in index.search("lamps", 2)] == ["a", "b"]
    assert len(index) == 3


@pytest.mark.parametrize("query", ["", "the of", "unheard", "]]]\n", "\ud800"])
def test_queries_without_a_known_term_find_nothing(query: str) -> None:
    assert BM25Index({"a": "lamp", "b": ""}).search(query) == []


def test_no_documents_find_nothing() -> None:
    assert BM25Index({}).search("lamp") == []
    assert BM25Index({"a": "the of"}).search("the") == []
