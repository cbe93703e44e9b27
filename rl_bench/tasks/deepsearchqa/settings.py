"""What a DeepSearchQA task can be told beside what every task can: its ``settings``."""

from typing import Literal

from pydantic import Field, PositiveInt

from envs.search.backends import NAMES, NETWORKED
from rl_bench.config import Frozen, TaskConfig
from rl_bench.errors import ConfigError
from rl_bench.tasks.checks import read_settings


class DeepSearchQASettings(Frozen):
    """The ``settings`` of a DeepSearchQA task.

    Attributes:
        shuffle_seed: Of the split.
        search: A search back-end; see `envs.search.backends`.
        search_url: Another address of the search service.
        search_cache: File of the search cache; empty: one in the sweep's cache folder.
        search_cache_only: Replay: search in the cache alone.
        num_results: Results shown for a search.
        max_result_chars: Characters of an observation.
        corpus: For ``bm25``; empty: ``corpus.jsonl`` in the data folder.
        forced_answer: After a text that is no action the model has to answer, as published.
        beside: Another annotator, asked for its figures only.
        data_seed, num_towns: Of the invented country.
    """

    shuffle_seed: int = Field(default=42, ge=0)
    search: str = "serpapi"
    search_url: str = ""
    search_cache: str = ""
    search_cache_only: bool = False
    num_results: PositiveInt = 3
    max_result_chars: PositiveInt = 1500
    corpus: str = ""
    forced_answer: bool = False
    beside: Literal["", "official", "one_verdict"] = ""
    data_seed: int = 0
    num_towns: int = Field(default=40, ge=4, le=80)

    @classmethod
    def of(cls, config: TaskConfig) -> "DeepSearchQASettings":
        """The settings of ``config``.

        Raises:
            ConfigError: A key is unknown or a value is wrong.
        """
        settings = read_settings(cls, config)
        if settings.search not in NAMES:
            raise ConfigError(
                f"task {config.name}: settings.search is '{settings.search}'",
                cure=f"Choices: {', '.join(NAMES)}",
            )
        for key in ("search_cache_only", "search_url", "search_cache"):
            if getattr(settings, key) and settings.search not in NETWORKED:
                raise ConfigError(
                    f"task {config.name}: settings.{key} has no effect with "
                    f"search={settings.search}",
                    cure=f"Name a search service: {', '.join(NETWORKED)}",
                )
        return settings
