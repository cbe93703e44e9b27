"""DeepSearchQA: questions that take several web searches, answered in ReAct steps, then judged.

The evaluation plays every question once, greedily, and asks a judge about each answer; the score is
the percentage judged correct. Published setting (Agent² RL-Bench): 200 questions, six steps of 256
tokens, one verdict an answer (``conf/task/deepsearchqa.yaml``). Source: Gupta et al. 2026,
arXiv 2601.20975.

Otherwise than in the published code, a search service that fails is an error of the item and not a
result that the model reads, no answer is never correct, and a judge that gives no verdict leaves
the item unjudged: there is no comparison of strings in its place. References never reach an
environment of the evaluation.
"""

import json
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from envs.protocols import PROTOCOL_FILE
from envs.search.backends import NETWORKED, OFFLINE
from envs.search.corpus import CORPUS_FILE
from rl_bench.checks import check_all
from rl_bench.config import TaskConfig
from rl_bench.errors import ConfigError
from rl_bench.tasks.base import (
    Episode,
    EvalContext,
    EvalResult,
    ItemOutcome,
    ItemStatus,
    aggregate,
)
from rl_bench.tasks.checks import check_protocol, episode_endings
from rl_bench.tasks.deepsearchqa.data import PUBLISHED_NUM_TRAIN, DeepSearchQAData, Row
from rl_bench.tasks.deepsearchqa.demos import Demonstrator
from rl_bench.tasks.deepsearchqa.judging import get_annotator
from rl_bench.tasks.deepsearchqa.scoring import Judging, compare_answers, judge_answers
from rl_bench.tasks.deepsearchqa.search import check_search, told
from rl_bench.tasks.deepsearchqa.world import WORLD_VERSION

ENV_ID = "rl_bench/DeepSearchQA-v0"
PROTOCOLS = ("search_react", "search_react_published")
TRAIN_FILE = "train.jsonl"
CACHE_FILE = "search.sqlite"
_DESCRIPTION = """\
# {name}: questions that take several searches

Train the model to answer questions with a search tool: search, read, search again, answer.

- Train data: `{train_file}`, {num_train} questions, one JSON object a line with `problem`,
  `answer`, `answer_type` (Single Answer or Set Answer: items with commas) and `category`{demos}.
- Environment: `import envs, gymnasium`, then `gymnasium.make("{env_id}")`
  asks the train questions. Actions are `search[query]` and `answer[text]`, a thought may stand
  before either. The reward compares texts (F1 over the items of a set){proxy}.
  {train_search}
- Evaluation: {num_eval} other questions, each played once, greedily, at most {max_steps} steps, at
  most {max_tokens} tokens a step. {eval_search}
- Prompt: protocol `{protocol}`; `envs.protocols.get_protocol("{protocol}")` renders it;
  `{protocol_file}` holds its argument.
- Score: percentage of questions answered correctly, as decided by {decision}.
  No answer is not correct.
"""

_DEMOS = ";\n  `turns`, a list of `observation` and `action`, shows a way to the answer"


class DeepSearchQATask:
    """The task; see the module. Constructing it reads nothing.

    Without a judge only generated questions can be scored, by `envs.answer_match`.

    Args:
        config: Of kind ``deepsearchqa``; ``settings`` as in `DeepSearchQASettings`.
        cache: Folder for generated corpora and the search cache.

    Raises:
        ConfigError: A setting, the protocol's name or the judge's annotator is wrong.
    """

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        self.name = config.name
        self._config = config
        self._cache = cache.expanduser() / "deepsearchqa"
        self._data = DeepSearchQAData(config, cache=self._cache)
        self._settings = self._data.settings
        if config.judge is None and not self._data.is_builtin:
            raise ConfigError(f"task {config.name}: no judge", cure="Set task.judge")
        self._annotator = None if config.judge is None else get_annotator(config.judge.annotator)
        self._beside = get_annotator(self._settings.beside) if self._settings.beside else None
        self.evaluator_version = self._version()

    def _version(self) -> str:
        config, settings = self._config, self._settings
        parts = ["deepsearchqa-1", config.protocol, settings.search]
        if settings.forced_answer:
            parts.append("forced")
        if self._data.is_builtin:
            parts.append(f"world-{WORLD_VERSION}")
        elif config.num_train not in (None, PUBLISHED_NUM_TRAIN):
            parts.append(f"from-row-{config.num_train}")
        if config.judge is None:
            parts.append("match")
        else:
            parts.append(f"{config.judge.annotator}/{config.judge.model_id}")
        return " ".join(parts)

    def description(self) -> str:
        """Markdown for the agent's ``description.md``."""
        config, judge = self._config, self._config.judge
        return _DESCRIPTION.format(
            name=self.name,
            train_file=TRAIN_FILE,
            protocol_file=PROTOCOL_FILE,
            num_train=len(self._data.rows("train")),
            env_id=ENV_ID,
            train_search=(
                f"It searches `{CORPUS_FILE}`, articles with `title`, `url` and `text`."
                if self._train_corpus()
                else "There is no search in it unless you give it one (argument `search`)."
            ),
            demos=_DEMOS if self._demonstrator(self._train_corpus()) else "",
            proxy=" and is a proxy: the evaluation asks a judge" if judge else "",
            num_eval=len(self.eval_rows),
            max_steps=config.max_steps,
            max_tokens=config.max_tokens,
            eval_search=f"Searches are answered by {told(self._settings.search)}.",
            protocol=config.protocol,
            decision=f"a judge ({judge.model_id})"
            if judge
            else "comparing texts: all of a set, and no more",
        )

    def write_train_data(self, folder: Path) -> None:
        """Writes ``train.jsonl``, the corpus if searches are offline, the protocol and a README.

        Raises:
            PreflightError: Data are missing.
        """
        folder.mkdir(parents=True, exist_ok=True)
        corpus = self._train_corpus()
        demonstrator = self._demonstrator(corpus)
        with (folder / TRAIN_FILE).open("w", encoding="utf-8") as out:
            for row in self._data.rows("train"):
                fields: dict[str, object] = {
                    "problem": row.problem,
                    "answer": row.answer,
                    "answer_type": row.answer_type,
                    "category": row.category,
                }
                if demonstrator is not None:
                    fields["turns"] = demonstrator.turns(row)
                out.write(json.dumps(fields, ensure_ascii=False) + "\n")
        if corpus is not None:
            (folder / CORPUS_FILE).write_bytes(corpus.read_bytes())
        (folder / PROTOCOL_FILE).write_text(self._config.protocol, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Reads both splits, the protocol, and what the search needs: a corpus, a key, a package.

        Raises:
            PreflightError: Something is missing; names what and the cure.
            ConfigError: The protocol does not exist.
        """
        check_all(
            lambda: check_protocol(self._config, self._config.protocol, choices=PROTOCOLS),
            lambda: self._data.rows("train"),
            lambda: self._data.rows("eval"),
            self._check_search,
        )

    def _check_search(self) -> None:
        check_search(
            self.name,
            self._settings,
            cache_file=self._search_cache,
            corpora=self._corpora() if self._settings.search == OFFLINE else (),
        )

    @cached_property
    def eval_rows(self) -> Sequence[Row]:
        """The evaluation set, in its fixed order."""
        return tuple(self._data.rows("eval"))

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """Pairs of an item's id and one of its texts; see `Task.evaluation_texts`."""
        for row in self.eval_rows:
            yield self._id(row), row.problem
            yield self._id(row), row.answer

    def _id(self, row: Row) -> str:
        return f"{self.name}-{row.index:04d}"

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Plays the questions, then has the answers judged.

        Raises:
            PreflightError: Data are missing.
        """
        started = time.monotonic()
        items = await self._play(context)
        judging = await self._decide(context, items)
        return aggregate(
            self.name,
            judging.items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics={**judging.metrics, **episode_endings(items)},
            duration_s=time.monotonic() - started,
        )

    async def _play(self, context: EvalContext) -> list[ItemOutcome]:
        """Plays all episodes, and once more those whose search service failed."""
        episodes, protocol = self.episodes(), self._config.protocol
        items = await context.play(episodes, protocol=protocol)
        failed = [
            number
            for number, item in enumerate(items)
            if episodes[number].waits and item.status is ItemStatus.ENV_ERROR
        ]
        # Some failures pass. When all fail, the service is down or the key wrong, and none will.
        if 0 < len(failed) < len(items):
            again = await context.play([episodes[i] for i in failed], protocol=protocol)
            for number, item in zip(failed, again, strict=True):
                items[number] = item
        return items

    async def _decide(self, context: EvalContext, items: Sequence[ItemOutcome]) -> Judging:
        rows, config = self.eval_rows, self._config.judge
        if config is None or self._annotator is None:
            return compare_answers(items, rows=rows)
        return await judge_answers(
            items,
            rows=rows,
            judge=context.judge(config),
            annotator=self._annotator,
            beside=self._beside,
            repeat=context.repeat,
        )

    def episodes(self) -> list[Episode]:
        """The evaluation set as episodes, in its fixed order; no reference is in them."""
        settings = self._settings
        waits = settings.search in NETWORKED
        corpus = self._data.corpus("eval") if settings.search == OFFLINE else None
        env_kwargs: dict[str, object] = {
            "split": "eval",
            "search": settings.search,
            "corpus": None if corpus is None else str(corpus),
            "num_results": settings.num_results,
            "search_url": settings.search_url,
            "cache": str(self._search_cache) if waits else None,
            "cache_only": settings.search_cache_only,
            "max_steps": self._config.max_steps,
            "max_result_chars": settings.max_result_chars,
            "forced_answer": settings.forced_answer,
        }
        return [
            Episode(
                episode_id=self._id(row),
                env_id=ENV_ID,
                env_kwargs=env_kwargs,
                options={
                    "question": row.problem,
                    "category": row.category,
                    "answer_type": row.answer_type,
                },
                seed=number,
                waits=waits,
            )
            for number, row in enumerate(self.eval_rows)
        ]

    @property
    def _search_cache(self) -> Path:
        given = self._settings.search_cache
        return Path(given).expanduser() if given else self._cache / CACHE_FILE

    def _demonstrator(self, corpus: Path | None) -> Demonstrator | None:
        """For generated questions that are answered by searching."""
        if corpus is None or not self._data.is_builtin or self._settings.corpus:
            return None
        settings = self._settings
        return Demonstrator(
            corpus, num_results=settings.num_results, max_result_chars=settings.max_result_chars
        )

    def _corpora(self) -> tuple[Path | None, Path | None]:
        return self._data.corpus("train"), self._data.corpus("eval")

    def _train_corpus(self) -> Path | None:
        return self._data.corpus("train") if self._settings.search == OFFLINE else None
