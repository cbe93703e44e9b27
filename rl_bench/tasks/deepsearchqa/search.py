"""Whether the searches of a DeepSearchQA task can be answered, as far as this machine can tell."""

import os
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from envs.errors import EnvironmentBroken
from envs.search.backends import DUCKDUCKGO, NONE, OFFLINE, key_variable
from envs.search.corpus import CORPUS_FILE, read_corpus
from rl_bench.checks import check_all
from rl_bench.errors import PreflightError
from rl_bench.tasks.deepsearchqa.settings import DeepSearchQASettings

_OTHERS = "Other choices for task.settings.search: bm25 with a corpus, duckduckgo, none"


def told(search: str) -> str:
    """Who answers searches, in words."""
    return {
        OFFLINE: "an offline corpus (BM25)",
        NONE: "nobody: there is no search",
    }.get(search, f"the search service {search}")


def check_search(
    name: str,
    settings: DeepSearchQASettings,
    *,
    cache_file: Path,
    corpora: Sequence[Path | None],
) -> None:
    """Checks the key, the package, the cache or the corpora; asks no service.

    Args:
        name: The task's.
        settings: Which search.
        cache_file: The search cache.
        corpora: For ``bm25``.

    Raises:
        PreflightError: Something is missing, with its cure.
    """
    if settings.search == OFFLINE:
        check_all(*(partial(_check_corpus, name, corpus) for corpus in corpora))
    elif settings.search_cache_only:
        if not cache_file.is_file():
            raise PreflightError(
                f"task {name}: there is no search cache {cache_file} to replay",
                cure="Evaluate once without task.settings.search_cache_only, or name the cache in "
                "task.settings.search_cache",
            )
    elif settings.search == DUCKDUCKGO:
        if find_spec("ddgs") is None:
            raise PreflightError(
                f"task {name}: search duckduckgo needs the package ddgs",
                cure="Install it with `pip install ddgs`",
            )
    else:
        _check_key(name, settings.search)


def _check_key(name: str, search: str) -> None:
    variable = key_variable(search)
    if variable and not os.environ.get(variable, "").strip():
        raise PreflightError(
            f"task {name}: {variable} is not set in the environment, and search {search} needs it",
            cure=f"Export {variable}. {_OTHERS}",
        )


def _check_corpus(name: str, path: Path | None) -> None:
    if path is None:
        raise PreflightError(
            f"task {name}: search bm25 has no corpus",
            cure="Name a JSONL file of objects with title, url and text in "
            "task.settings.corpus, or put it "
            f"into the data folder as {CORPUS_FILE}",
        )
    try:
        read_corpus(path)
    except EnvironmentBroken as error:
        raise PreflightError(f"task {name}: {error}") from error
