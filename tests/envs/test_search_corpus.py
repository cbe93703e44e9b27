"""Offline search: ranking, passages, and corpora that are none."""

import json
from pathlib import Path

import pytest

from envs.errors import EnvironmentBroken
from envs.search.corpus import CorpusSearch, passage, read_corpus

ARTICLES = [
    ("Heron", "The heron is a wading bird. It eats fish."),
    ("Kettle", "A kettle boils water for tea."),
    ("Tea", "Tea is a drink. Kettles boil its water. " + "It is drunk in cups. " * 60 + "The end."),
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    rows = [{"title": t, "url": f"local:{t}", "text": x} for t, x in ARTICLES]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    return path


def test_the_best_articles_come_first(corpus: Path) -> None:
    search = CorpusSearch(corpus, num_results=2)
    assert [each.title for each in search.search("boiling kettles")] == ["Kettle", "Tea"]
    assert [each.url for each in search.search("Fish of the HERON")] == ["local:Heron"]
    assert search.search("zebra") == []
    assert search.search("the of") == []
    assert len(search.search("kettle heron drink")) == 2


def test_a_long_article_shows_the_passage_that_matches(corpus: Path) -> None:
    [tea] = CorpusSearch(corpus, num_results=1).search("what is the end")
    assert tea.snippet.endswith("The end.")
    assert len(tea.snippet) <= 500
    [tea] = CorpusSearch(corpus, num_results=1).search("tea drink")
    assert tea.snippet.startswith("Tea is a drink.")


def test_a_passage_never_exceeds_its_length() -> None:
    text = "x" * 600 + ". Short one. " + "y" * 700
    for terms in (frozenset({"short"}), frozenset[str]()):
        assert 0 < len(passage(text, terms=terms)) <= 500
    assert passage(text, terms=frozenset({"short"})).startswith("Short one.")


def test_an_index_is_made_once_while_the_file_stays(corpus: Path) -> None:
    assert read_corpus(corpus) is read_corpus(corpus)
    before = read_corpus(corpus)
    corpus.write_text('{"title": "A", "url": "u", "text": "t"}', encoding="utf-8")
    assert read_corpus(corpus) is not before
    assert len(read_corpus(corpus)) == 1


@pytest.mark.parametrize("line", ["nonsense", '{"title": "x"}', "[]", "3", "[" * 100_000])
def test_broken_lines_are_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "A", "url": "u", "text": "t"}\n' + line, encoding="utf-8")
    with pytest.raises(EnvironmentBroken, match=r"corpus\.jsonl, line 2: not an article"):
        read_corpus(path)


def test_a_missing_corpus_says_what_it_must_be(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBroken, match="JSONL file of objects with title, url and text"):
        CorpusSearch(tmp_path / "none.jsonl", num_results=1)
    with pytest.raises(EnvironmentBroken, match="no search corpus"):
        CorpusSearch(tmp_path, num_results=1)
