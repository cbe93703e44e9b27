"""GSM8K: grade-school word problems, one answer each, scored by rule.

The evaluation asks every question once, greedily, and compares the number after ``####``, or else
the last number of the answer, with the reference. Rows come from a local copy of the public data
(``source=path``) or from the built-in generator of original problems (``source=builtin``).
Source: Cobbe et al. 2021, https://github.com/openai/grade-school-math (1,319 test rows).
"""

import json
import lzma
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import islice
from pathlib import Path

from envs.protocol import ChatMessage
from rl_bench.config import DataSource, TaskConfig
from rl_bench.engine.base import Completion, GenerationRequest, Sampling
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.base import EvalContext, EvalResult, ItemOutcome, ItemStatus, aggregate
from rl_bench.tasks.word_problems import ProblemShape, Split, iter_problems

EVALUATOR_VERSION = "gsm8k-1"
TRAIN_FILE = "train.jsonl"
PROMPT_FILE = "prompt.txt"
_FILES = {
    "train": ("train.jsonl", "train.jsonl.xz"),
    "eval": ("test.jsonl", "test.jsonl.xz", "test_first400.jsonl"),
}
_SOURCE = "https://github.com/openai/grade-school-math"
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")
_DEFAULT_NUM = 1000
_DETAIL_CHARS = 400


@dataclass(frozen=True, slots=True)
class Row:
    """A question and its worked answer, which ends in ``#### N``."""

    question: str
    answer: str


def extract_answer(text: str) -> str | None:
    """The number that a completion answers with, normalised, or ``None`` if it holds none.

    The number after the last ``####`` counts, else the last number of the text. Thousands
    separators are dropped and a value is compared as a value: ``1,000`` is ``1000.0``.
    """
    _, mark, tail = text.rpartition("####")
    numbers = _NUMBER.findall(tail)
    if not numbers:
        return None
    return _normalise(numbers[0] if mark else numbers[-1])


def _normalise(number: str) -> str:
    try:
        value = Decimal(number.replace(",", ""))
    except InvalidOperation:  # more digits than a decimal holds: compare as text
        return number
    return format(value.normalize(), "f")


def read_rows(folder: Path, *, split: Split) -> list[Row]:
    """Rows of a split from a folder that holds the public files.

    Raises:
        PreflightError: No file of the split, or a line that is not a row.
    """
    path = next((folder / name for name in _FILES[split] if (folder / name).is_file()), None)
    if path is None:
        raise PreflightError(
            f"GSM8K {split} data not found in {folder} (looked for {', '.join(_FILES[split])})",
            cure=f"Download them from {_SOURCE} and set task.data_path",
        )
    content = path.read_bytes()
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    lines = [line for line in text.split("\n") if line.strip()]
    return [_parse(line, path=path, number=i) for i, line in enumerate(lines, 1)]


def _parse(line: str, *, path: Path, number: int) -> Row:
    try:
        fields = json.loads(line)
        row = Row(str(fields["question"]), str(fields["answer"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"{path}, line {number}: not a GSM8K row ({error})") from error
    if "####" not in row.answer:
        raise PreflightError(f"{path}, line {number}: the answer has no '####'")
    return row


class GSM8KTask:
    """GSM8K under the chat protocol.

    ``settings.prompt`` is the user message, with ``{question}``; the generator's shape is
    ``settings.{min_steps,max_steps,max_number}`` and its seed ``settings.data_seed``.
    """

    evaluator_version = EVALUATOR_VERSION

    def __init__(self, config: TaskConfig, *, cache: Path | None = None) -> None:
        """``cache`` is unused: rows are read, or generated, within a second."""
        if config.source is DataSource.PATH and config.data_path is None:
            raise ConfigError(
                f"task {config.name}: data_path is not set", cure="Set task.data_path to a folder"
            )
        self.name = config.name
        self._config = config
        self._prompt = str(config.settings.get("prompt", "{question}"))
        if "{question}" not in self._prompt:
            raise ConfigError(f"task {config.name}: settings.prompt lacks {{question}}")

    def description(self) -> str:
        """Markdown for the agent: goal, data, prompt, metric."""
        return (
            f"# {self.name}: grade-school math word problems\n\n"
            "Train the model to solve short arithmetic word problems.\n\n"
            f"- Train data: `{TRAIN_FILE}`, one JSON object a line with `question` and `answer`; "
            "the answer is a worked solution whose last line is `#### N`.\n"
            f"- Evaluation: {len(self.eval_rows)} other problems, one chat message each, made from "
            f"`{PROMPT_FILE}`; greedy decoding, at most {self._config.max_tokens} tokens.\n"
            "- Score: percentage of problems whose number after `####` (or else last number) "
            "equals the reference.\n"
        )

    def write_train_data(self, folder: Path) -> None:
        """Writes ``train.jsonl``, the prompt template and a README."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / TRAIN_FILE).open("w", encoding="utf-8") as out:
            for row in self._rows("train", self._config.num_train):
                out.write(json.dumps({"question": row.question, "answer": row.answer}) + "\n")
        (folder / PROMPT_FILE).write_text(self._prompt, encoding="utf-8")
        (folder / "README.md").write_text(self.description(), encoding="utf-8")

    def check_data(self) -> None:
        """Raises `PreflightError` unless both splits can be read."""
        for split, num in (("train", self._config.num_train), ("eval", self._config.num_eval)):
            rows = self._rows("train" if split == "train" else "eval", num)
            if not rows or (num is not None and len(rows) < num):
                raise PreflightError(
                    f"task {self.name}: {len(rows)} {split} rows found, {num or 'some'} wanted",
                    cure=f"Complete the data from {_SOURCE}, or lower num_{split}",
                )

    @cached_property
    def eval_rows(self) -> Sequence[Row]:
        """The evaluation set, in its fixed order."""
        return tuple(self._rows("eval", self._config.num_eval))

    def _rows(self, split: Split, num: int | None) -> list[Row]:
        if self._config.source is DataSource.PATH:
            assert self._config.data_path is not None
            return read_rows(self._config.data_path, split=split)[:num]
        return list(islice(self._generated(split), num or _DEFAULT_NUM))

    def _generated(self, split: Split) -> Iterator[Row]:
        settings = self._config.settings
        defaults = ProblemShape()
        shape = ProblemShape(
            min_steps=_whole(settings.get("min_steps", defaults.min_steps)),
            max_steps=_whole(settings.get("max_steps", defaults.max_steps)),
            max_number=_whole(settings.get("max_number", defaults.max_number)),
        )
        seed = _whole(settings.get("data_seed", 0))
        for problem in iter_problems(split, seed=seed, shape=shape):
            yield Row(problem.question, problem.answer)

    async def evaluate(self, context: EvalContext) -> EvalResult:
        """Asks every question once, greedily."""
        started = time.monotonic()
        rows = self.eval_rows
        requests = [self._request(row) for row in rows]
        completions = await context.generate(requests)
        seconds = time.monotonic() - started
        items = [
            _outcome(f"{self.name}-{index:04d}", row, completion, duration_s=seconds)
            for index, (row, completion) in enumerate(zip(rows, completions, strict=True))
        ]
        answered = sum(item.detail["prediction"] is not None for item in items)
        return aggregate(
            self.name,
            items,
            evaluator_version=self.evaluator_version,
            max_error_fraction=self._config.max_error_fraction,
            metrics={"answered_percent": 100.0 * answered / len(items)},
            duration_s=seconds,
        )

    def _request(self, row: Row) -> GenerationRequest:
        content = self._prompt.replace("{question}", row.question)
        message: ChatMessage = {"role": "user", "content": content}
        sampling = Sampling(max_tokens=self._config.max_tokens, temperature=0.0)
        return GenerationRequest(messages=(message,), sampling=sampling)


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ConfigError(f"expected a whole number, not {value!r}")
    return value


def _outcome(item_id: str, row: Row, completion: Completion, *, duration_s: float) -> ItemOutcome:
    prediction, gold = extract_answer(completion.text), extract_answer(row.answer)
    return ItemOutcome(
        item_id=item_id,
        status=ItemStatus.OK,
        score=float(prediction is not None and prediction == gold),
        num_tokens=completion.num_tokens,
        duration_s=duration_s,
        detail={
            "prediction": prediction,
            "gold": gold,
            "finish_reason": completion.finish_reason.value,
            "completion": completion.text[:_DETAIL_CHARS],
        },
    )
