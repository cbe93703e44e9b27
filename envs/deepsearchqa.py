"""DeepSearchQA as a `gymnasium.Env`: a question, a search tool, and one answer at the end.

``search[query]`` is answered with results, ``answer[text]`` ends the episode; a thought may stand
before either. Whether an answer is right only a judge can tell, so episodes on a question without a
reference (the evaluation's) are worth 0 here; those of a train file are worth a proxy, see
`envs.answer_match`. A search service that fails breaks the environment: it is never shown as an
empty result. Data: Gupta et al. 2026, https://huggingface.co/datasets/google/deepsearchqa.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict

import gymnasium

from envs.agent_data import VARIABLE
from envs.answer_match import SINGLE_ANSWER, match
from envs.errors import EnvironmentBroken
from envs.search.backends import NONE, OFFLINE, make_search
from envs.search.base import SearchResult, normalised
from envs.search.corpus import CORPUS_FILE
from envs.search_actions import first_action
from envs.search_questions import SearchQuestion, read_questions
from envs.text_space import AnyText

AUTO: Final = "auto"
SEARCH_FORM: Final = "search[<query>]"
ANSWER_FORM: Final = "answer[<text>]"
MAX_ANSWER_CHARS: Final = 4000
_MAX_ACTION_CHARS = 4000
_MAX_OBSERVATION_CHARS = 20_000


class SearchInfo(TypedDict):
    """What `reset` and `step` tell beside the observation.

    Attributes:
        available_actions: The forms that do something.
        question: The question.
        category: Its field, e.g. ``Geography``; may be empty.
        answer_type: ``Single Answer`` or ``Set Answer``.
        answer: The answer given; empty until then.
        num_searches: Searches so far.
        expects_answer: The next text is the answer, whatever its form; see ``forced_answer``.
    """

    available_actions: list[str]
    question: str
    category: str
    answer_type: str
    answer: str
    num_searches: int
    expects_answer: bool


class DeepSearchQAEnv(gymnasium.Env[str, str]):
    """A question to be answered with a search tool. Registered as ``rl_bench/DeepSearchQA-v0``.

    ``terminated`` on the answer, ``truncated`` after ``max_steps``. Any other text costs a step.

    `reset` options, one of them:
        ``{"question": ..., "category": ..., "answer_type": ...}`` asks that, without a reference;
        ``{"episode": <index>}`` asks that row of the split's file.
    Without options the seeded generator draws a row.

    Args:
        data_dir: The folder with ``<split>.jsonl``; default: the environment variable DATA_PATH,
            or the folder of this task in it.
        split: Which file.
        search: A name of `envs.search.backends.NAMES`; ``auto``: ``bm25`` over the corpus if there
            is one, else ``none``.
        corpus: For ``bm25``; default: ``corpus.jsonl`` in ``data_dir``.
        num_results: Results shown for a search.
        search_url: Another address of a search service.
        cache: File of the persistent search cache; ``None``: none.
        cache_only: Search in the cache alone.
        max_steps: Steps until truncation.
        max_result_chars: An observation's length.
        forced_answer: After a text that is no action, the next one is the answer, up to its first
            closing bracket.

    Raises:
        ValueError: An argument is out of range.
        EnvironmentBroken: The corpus is missing.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's own declaration

    def __init__(
        self,
        *,
        data_dir: str | None = None,
        split: str = "train",
        search: str = AUTO,
        corpus: str | None = None,
        num_results: int = 3,
        search_url: str = "",
        cache: str | None = None,
        cache_only: bool = False,
        max_steps: int = 6,
        max_result_chars: int = 1500,
        forced_answer: bool = False,
    ) -> None:
        if min(max_steps, num_results, max_result_chars) < 1:
            raise ValueError("max_steps, num_results and max_result_chars must be positive")
        self.max_steps = max_steps
        self.observation_space = AnyText(_MAX_OBSERVATION_CHARS)
        self.action_space = AnyText(_MAX_ACTION_CHARS)
        self._data_dir, self._split = data_dir, split
        self._max_result_chars = min(max_result_chars, _MAX_OBSERVATION_CHARS)
        self._forced_answer = forced_answer
        path = Path(corpus) if corpus else self._own_corpus()
        name = (OFFLINE if path else NONE) if search == AUTO else search
        self._search = make_search(
            name,
            num_results=num_results,
            corpus=path,
            url=search_url,
            cache=None if cache is None else Path(cache),
            cache_only=cache_only,
        )
        self._asked = SearchQuestion(question="")
        self._answer, self._num_searches, self._num_steps = "", 0, 0
        self._expects_answer, self._over = False, True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Asks a question; see the class for ``options``.

        Returns:
            The question and a `SearchInfo`.

        Raises:
            EnvironmentBroken: There is no such row, or no file of the split.
        """
        super().reset(seed=seed)
        self._asked = self._choose(options or {})
        self._answer, self._num_searches, self._num_steps = "", 0, 0
        self._expects_answer, self._over = False, False
        return self._asked.question[:_MAX_OBSERVATION_CHARS], self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Searches, or takes the answer.

        Raises:
            gymnasium.error.ResetNeeded: The episode is over, or none was begun.
            EnvironmentBroken: The search service failed; the step can be tried again.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset first")
        text = str(action)
        if self._expects_answer:
            return self._end(_up_to_bracket(text))
        said = first_action(text)
        if said is not None and said.kind == "answer":
            return self._end(said.argument)
        observation = self._obey(None if said is None else said.argument)
        self._num_steps += 1
        self._expects_answer = said is None and self._forced_answer
        truncated = self._over = self._num_steps >= self.max_steps
        return observation, 0.0, False, truncated, self._info()

    def close(self) -> None:
        """Ends the search tool's connections."""
        if self._search is not None:
            self._search.close()
        self._over = True

    def _end(self, answer: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._num_steps += 1
        clean = answer[:MAX_ANSWER_CHARS].encode("utf-8", "replace").decode()
        self._answer, self._over = clean.strip(), True
        asked = self._asked
        reward = (
            0.0
            if asked.reference is None
            else match(self._answer, asked.reference, answer_type=asked.answer_type)
        )
        return "The answer was taken.", reward, True, False, self._info()

    def _obey(self, query: str | None) -> str:
        """What is seen after a search for ``query``, or after something that is no action."""
        if query is None:
            return f"Not an action. Write {' or '.join(self._forms())}."
        if self._search is None:
            return f"There is no search here. Write {ANSWER_FORM}."
        wanted = normalised(query)
        if not wanted:
            return f"The query is empty. Write {SEARCH_FORM}."
        found = self._search.search(wanted)
        self._num_searches += 1
        return _shown(found)[: self._max_result_chars]

    def _forms(self) -> list[str]:
        return [ANSWER_FORM] if self._search is None else [SEARCH_FORM, ANSWER_FORM]

    def _choose(self, options: Mapping[str, Any]) -> SearchQuestion:
        if "question" in options:
            return SearchQuestion(
                question=str(options["question"]),
                category=str(options.get("category", "")),
                answer_type=str(options.get("answer_type", SINGLE_ANSWER)),
            )
        path = self._folder() / f"{self._split}.jsonl"
        rows = read_questions(path)
        if "episode" not in options:
            return rows[int(self.np_random.integers(len(rows)))]
        index = int(options["episode"])
        if not 0 <= index < len(rows):
            raise EnvironmentBroken(f"episode {index}: {path} has 0 to {len(rows) - 1}")
        return rows[index]

    def _folder(self) -> Path:
        """The data folder: the given one, or DATA_PATH, which holds a folder a task at times."""
        if self._data_dir is not None:
            return Path(self._data_dir)
        folder = Path(os.environ.get(VARIABLE, "."))
        if (folder / f"{self._split}.jsonl").is_file():
            return folder
        return next(iter(sorted(folder.glob("deepsearchqa*/"))), folder)

    def _own_corpus(self) -> Path | None:
        path = self._folder() / CORPUS_FILE
        return path if path.is_file() else None

    def _info(self) -> dict[str, Any]:
        info = SearchInfo(
            available_actions=self._forms(),
            question=self._asked.question,
            category=self._asked.category,
            answer_type=self._asked.answer_type,
            answer=self._answer,
            num_searches=self._num_searches,
            expects_answer=self._expects_answer,
        )
        return dict(info)


def _up_to_bracket(text: str) -> str:
    said = first_action(text.lstrip())
    opened = said.argument if said is not None and said.kind == "answer" else text
    return opened.partition("]")[0].strip()


def _shown(found: Sequence[SearchResult]) -> str:
    if not found:
        return "No results."
    return "\n".join(
        f"[{number}] {each.title} ({each.url}): {each.snippet}"
        for number, each in enumerate(found, 1)
    )
