"""GSM8K: grade-school word problems, one answer each, scored by rule.

The evaluation asks every question once, greedily, and compares numbers. Protocols ``chat`` and
``base`` are in `gsm8k.prompts`, the rules of scoring in `gsm8k.rules`, rows (a local copy of the
public data, ``source=path``, or generated ones, ``source=builtin``) in `gsm8k.data`. The published
setting (Agent² RL-Bench: OpenCompass ``gsm8k_gen_1d7fe4``, 1,319 test rows) is `conf/task/gsm8k`.
"""

import json
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from rl_bench.checks import check_all
from rl_bench.config import DataSource, TaskConfig
from rl_bench.engine.base import Completion
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.base import EvalContext, EvalResult, ItemOutcome, ItemStatus, aggregate
from rl_bench.tasks.checks import check_count, check_known, completion_endings
from rl_bench.tasks.gsm8k.data import (
    GENERATOR_SETTINGS,
    NUM_ROWS,
    SOURCE,
    Row,
    generate_rows,
    problem_shape,
    read_rows,
)
from rl_bench.tasks.gsm8k.prompts import Prompts, PromptSettings, PromptStyle
from rl_bench.tasks.gsm8k.rules import RULES, AnswerRule
from rl_bench.tasks.gsm8k.word_problems import Split

TRAIN_FILE = "train.jsonl"
PROMPT_FILE = "prompt.txt"
SHOTS_FILE = "shots.json"
_COMPLETION_CHARS = 1000
_SETTINGS = ("prompt", "shots", "answer_rule", *GENERATOR_SETTINGS)
_DESCRIPTION = """\
# {name}: grade-school math word problems

Train the model to solve short arithmetic word problems.

- Train data: `{train_file}`, one JSON object a line with `question` and `answer`; the answer is a \
worked solution whose last line is `#### N`.
- Evaluation: {num_eval} other problems, each asked once, greedily, at most {max_tokens} tokens.
- Prompt: {prompt}
- Score: percentage of problems where {rule} equals the reference.
"""


class GSM8KTask:
    """GSM8K; see the module. Constructing it reads nothing.

    ``settings``: ``prompt``, ``shots`` and ``answer_rule`` as in `PromptSettings`; the generator's
    ``min_steps``, ``max_steps``, ``max_number`` and ``data_seed``.
    """

    def __init__(self, config: TaskConfig, *, cache: Path | None = None) -> None:
        """``cache`` is unused: rows are read, or generated, within a second."""
        if config.source is DataSource.PATH and config.data_path is None:
            raise ConfigError(
                f"task {config.name}: data_path is not set", cure="Set task.data_path to a folder"
            )
        self.name = config.name
        self._config = config
        check_known(config.name, config.settings, known=_SETTINGS)
        problem_shape(config.settings)
        self._settings = PromptSettings.read(config.protocol, config.settings, task=config.name)
        self.evaluator_version = (
            f"gsm8k-1 {self._settings.rule} {config.protocol} {len(self._settings.shots)}-shot"
        )

    def description(self) -> str:
        """Markdown for the agent: goal, data, prompt, metric."""
        return _DESCRIPTION.format(
            name=self.name,
            train_file=TRAIN_FILE,
            num_eval=len(self.eval_rows),
            max_tokens=self._config.max_tokens,
            prompt=self._prompt_in_words(),
            rule=self._rule.words,
        )

    def _prompt_in_words(self) -> str:
        if self._settings.style is PromptStyle.BASE:
            return f"`{PROMPT_FILE}` as plain text, with the question in place of `{{question}}`."
        before = f", after the messages of `{SHOTS_FILE}`" if self._settings.shots else ""
        return f"one chat message, made from `{PROMPT_FILE}`{before}."

    def write_train_data(self, folder: Path) -> None:
        """Writes ``train.jsonl``, the prompt (with the examples' messages) and a README."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / TRAIN_FILE).open("w", encoding="utf-8") as out:
            for row in self._rows("train", self._config.num_train):
                out.write(json.dumps({"question": row.question, "answer": row.answer}) + "\n")
        (folder / PROMPT_FILE).write_text(self.prompts.template, encoding="utf-8")
        if self._settings.style is PromptStyle.CHAT and self._settings.shots:
            text = json.dumps(self.prompts.messages, indent=1)
            (folder / SHOTS_FILE).write_text(text, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Raises `PreflightError` unless both splits and the worked examples can be read."""
        check_all(
            lambda: self._check_split("train", self._config.num_train),
            lambda: self._check_split("eval", self._config.num_eval),
        )
        _ = self.prompts

    def _check_split(self, split: Split, num: int | None) -> None:
        check_count(
            self.name,
            split=split,
            found=len(self._rows(split, num)),
            wanted=num,
            complete=NUM_ROWS[split] if self._config.source is DataSource.PATH else 0,
            what="rows" if split == "eval" else "rows that are not evaluated",
            cure=f"Their source is {SOURCE}",
        )

    @cached_property
    def eval_rows(self) -> Sequence[Row]:
        """The evaluation set, in its fixed order."""
        return tuple(self._rows("eval", self._config.num_eval))

    @cached_property
    def prompts(self) -> Prompts:
        """The prompts, worked examples included.

        Raises:
            PreflightError: The train split lacks a row that is to be an example.
        """
        shots = self._settings.shots
        rows = self._rows("train", max(shots) + 1) if shots else []
        if shots and len(rows) <= max(shots):
            raise PreflightError(
                f"task {self.name}: settings.shots names train row {max(shots)} of {len(rows)}",
                cure=f"Complete the data from {SOURCE}, or name other rows",
            )
        return Prompts(self._settings, [rows[number] for number in shots])

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        """Pairs of an item's id and one of its texts; see `Task.evaluation_texts`."""
        for index, row in enumerate(self.eval_rows):
            yield self._item_id(index), row.question
            yield self._item_id(index), row.answer

    def _item_id(self, index: int) -> str:
        return f"{self.name}-{index:04d}"

    @property
    def _rule(self) -> AnswerRule:
        return RULES[self._settings.rule]

    def _rows(self, split: Split, num: int | None) -> list[Row]:
        if self._config.source is DataSource.PATH:
            assert self._config.data_path is not None
            rows = read_rows(self._config.data_path, split=split)
            return (self._without_evaluated(rows) if split == "train" else rows)[:num]
        return generate_rows(split, num, settings=self._config.settings)

    def _without_evaluated(self, rows: Sequence[Row]) -> list[Row]:
        """``rows`` but for questions of the evaluation: an agent must not be given their answers.

        The public files share none; where they do, the worked examples' numbers move up.
        """
        evaluated = {row.question.strip() for row in self.eval_rows}
        return [row for row in rows if row.question.strip() not in evaluated]

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Asks every question once, greedily."""
        started = time.monotonic()
        rows = self.eval_rows
        completions = await context.generate(
            [self.prompts.request(row.question, max_tokens=self._config.max_tokens) for row in rows]
        )
        seconds = time.monotonic() - started
        items = [
            self._outcome(self._item_id(index), row, completion, duration_s=seconds)
            for index, (row, completion) in enumerate(zip(rows, completions, strict=True))
        ]
        answered = sum(item.detail["prediction"] is not None for item in items)
        return aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics={
                "answered_percent": 100.0 * answered / len(items),
                **completion_endings(items),
            },
            duration_s=seconds,
        )

    def _outcome(
        self, item_id: str, row: Row, completion: Completion, *, duration_s: float
    ) -> ItemOutcome:
        prediction, gold = self._rule.prediction(completion.text), self._rule.gold(row.answer)
        return ItemOutcome(
            item_id=item_id,
            status=ItemStatus.OK,
            score=float(prediction is not None and self._rule.is_right(prediction, gold)),
            num_tokens=completion.num_tokens,
            duration_s=duration_s,
            detail={
                "prediction": prediction,
                "gold": gold,
                "finish_reason": completion.finish_reason.value,
                "completion": completion.text[:_COMPLETION_CHARS],
            },
        )
