"""GSM8K's rows: read from the public files, or generated.

Source: Cobbe et al. 2021, https://github.com/openai/grade-school-math (7,473 train and 1,319 test
rows).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from rl_bench.errors import ConfigError, MissingDataError, PreflightError
from rl_bench.tasks.data_files import parse_json, read_text
from rl_bench.tasks.gsm8k.rules import MARK, marked_answer
from rl_bench.tasks.gsm8k.word_problems import ProblemShape, Split, iter_problems

SOURCE = "https://github.com/openai/grade-school-math"
_FILES = {
    "train": ("train.jsonl", "train.jsonl.xz"),
    "eval": ("test.jsonl", "test.jsonl.xz", "test_first400.jsonl"),
}
NUM_ROWS = {"train": 7473, "eval": 1319}
"""What the public splits have."""
GENERATOR_SETTINGS = ("min_steps", "max_steps", "max_number", "data_seed")
_DEFAULT_NUM = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """A question and its worked answer, which ends in ``#### N``."""

    question: str
    answer: str


def read_rows(folder: Path, *, split: Split) -> list[Row]:
    """Rows of a split from a folder that holds the public files.

    Raises:
        PreflightError: No file of the split, or a line that is not a row.
    """
    path = next((folder / name for name in _FILES[split] if (folder / name).is_file()), None)
    if path is None:
        raise MissingDataError(
            f"GSM8K {split} data not found in {folder} (looked for {', '.join(_FILES[split])})",
            cure=f"Download them from {SOURCE} and set task.data_path",
        )
    text = read_text(path, cure=f"Download it again from {SOURCE}")
    lines = [line for line in text.split("\n") if line.strip()]
    return [_parse(line, path=path, number=i) for i, line in enumerate(lines, 1)]


def _parse(line: str, *, path: Path, number: int) -> Row:
    try:
        fields = parse_json(line)
        row = Row(_text(fields, "question"), _text(fields, "answer"))
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"{path}, line {number}: not a GSM8K row ({error})") from error
    # The rules of scoring need it; without, no prediction could be right.
    if MARK not in row.answer or marked_answer(row.answer) is None:
        raise PreflightError(
            f"{path}, line {number}: the answer has no number after '{MARK}'",
            cure=f"Download the file again from {SOURCE}",
        )
    return row


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not text")
    return value


def generate_rows(split: Split, num: int | None, *, settings: Mapping[str, object]) -> list[Row]:
    """The first ``num`` generated rows of a split (1,000 for ``None``).

    Args:
        split: Splits are disjoint whatever the settings.
        num: How many.
        settings: ``min_steps``, ``max_steps``, ``max_number`` as in `ProblemShape`; ``data_seed``.

    Raises:
        ConfigError: As `problem_shape`.
    """
    seed = _whole(settings, "data_seed", default=0)
    return list(_generated(split, num or _DEFAULT_NUM, seed, problem_shape(settings)))


def problem_shape(settings: Mapping[str, object]) -> ProblemShape:
    """The generator's shape of a task's ``settings``.

    Raises:
        ConfigError: A setting is no whole number, or out of range.
    """
    defaults = ProblemShape()
    names = ("min_steps", "max_steps", "max_number")
    numbers = {name: _whole(settings, name, default=getattr(defaults, name)) for name in names}
    try:
        return ProblemShape(**numbers)
    except ValueError as error:
        given = ", ".join(f"settings.{name}={number}" for name, number in numbers.items())
        raise ConfigError(f"{given}: {error}") from error


@lru_cache(maxsize=8)  # a process carries out many runs of a task
def _generated(split: Split, num: int, seed: int, shape: ProblemShape) -> tuple[Row, ...]:
    problems = iter_problems(split, seed=seed, shape=shape)
    return tuple(Row(each.question, each.answer) for each in islice(problems, num))


def _whole(settings: Mapping[str, object], name: str, *, default: int) -> int:
    value = settings.get(name, default)
    if type(value) is not int:
        raise ConfigError(f"settings.{name} is a whole number, not {value!r}")
    return value
