"""The taggers of nouns: which one is taken, and what the stand-in does."""

import json
import sys
from pathlib import Path

import pytest

from envs import webshop_nouns
from envs.errors import EnvironmentBroken
from envs.webshop_nouns import WORD_LIST, WordListTagger, find_tagger, get_tagger, tagger_label


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package in the layout of a spaCy model's, without the model."""
    name = "en_core_web_sm_of_a_test"
    folder = tmp_path / name / f"{name}-9.9.9"
    folder.mkdir(parents=True)
    (tmp_path / name / "__init__.py").touch()
    (folder / "meta.json").write_text(json.dumps({"version": "9.9.9"}))
    (folder / "config.cfg").write_text("[nlp]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(webshop_nouns, "MODELS", (name,))
    return name


def test_an_installed_model_is_taken_and_named_without_loading_it(model: str) -> None:
    assert find_tagger() == model
    assert tagger_label("auto") == f"{model} 9.9.9"
    assert model not in sys.modules


def test_without_a_model_the_word_list_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webshop_nouns, "MODELS", ())
    assert find_tagger() == WORD_LIST
    assert "stand-in" in tagger_label("auto")


def test_a_named_model_is_never_replaced_in_silence() -> None:
    assert tagger_label("en_core_web_none") == "en_core_web_none missing"
    with pytest.raises(EnvironmentBroken, match="not installed: install it"):
        get_tagger("en_core_web_none")


@pytest.mark.slow
def test_a_model_that_does_not_load_is_told(model: str) -> None:
    with pytest.raises(EnvironmentBroken, match="does not load"):
        get_tagger(model)


@pytest.mark.parametrize(
    ("title", "nouns"),
    [
        ("Men's Oak-Framed Desk Lamp, 12-Inch (Pack of 2)", "men oak framed desk lamp inch pack"),
        ("An Easy and Very Large RUG for the Hall", "rug hall"),
        ("", ""),
        ("100 % 3/4", ""),
    ],
)
def test_the_word_list_leaves_out_words_that_are_mostly_no_nouns(title: str, nouns: str) -> None:
    assert " ".join(WordListTagger().nouns(title)) == nouns


def test_a_real_model_finds_nouns_and_names() -> None:
    installed = find_tagger()
    if installed == WORD_LIST:
        pytest.skip("no package of spaCy's en_core_web_sm is installed")
    tagger = get_tagger(installed)
    assert tagger is get_tagger(installed)
    assert set(tagger.nouns("The lamp stands on a table")) == {"lamp", "table"}
