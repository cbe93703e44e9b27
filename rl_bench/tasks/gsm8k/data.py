"""GSM8K's rows: read from the public files, or generated.

Source: Cobbe et al. 2021, https://github.com/openai/grade-school-math (7,473 train and 1,319 test
rows).
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rl_bench.errors import ConfigError, MissingDataError, PreflightError
from rl_bench.tasks.gsm8k.rules import MARK
from rl_bench.tasks.gsm8k.word_problems import ProblemShape, Split, iter_problems

SOURCE = "https://github.com/openai/grade-school-math"
_FILES = {
    "train": ("train.jsonl", "train.jsonl.xz"),
    "eval": ("test.jsonl", "test.jsonl.xz", "test_first400.jsonl"),
}
NUM_ROWS = {"train": 7473, "eval": 1319}
"""What the public splits have."""
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
    if MARK not in row.answer:
        raise PreflightError(f"{path}, line {number}: the answer has no '{MARK}'")
    return row


def generate_rows(split: Split, num: int | None, *, settings: Mapping[str, object]) -> list[Row]:
    """The first ``num`` generated rows of a split (1,000 for ``None``).

    Args:
        split: Splits are disjoint whatever the settings.
        num: How many.
        settings: ``min_steps``, ``max_steps``, ``max_number`` as in `ProblemShape`; ``data_seed``.

    Raises:
        ConfigError: A setting is no whole number.
    """
    return list(islice(_generated(split, settings), num or _DEFAULT_NUM))


def _generated(split: Split, settings: Mapping[str, object]) -> Iterator[Row]:
    defaults = ProblemShape()
    shape = ProblemShape(
        min_steps=_whole(settings.get("min_steps", defaults.min_steps)),
        max_steps=_whole(settings.get("max_steps", defaults.max_steps)),
        max_number=_whole(settings.get("max_number", defaults.max_number)),
    )
    seed = _whole(settings.get("data_seed", 0))
    for problem in iter_problems(split, seed=seed, shape=shape):
        yield Row(problem.question, problem.answer)


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ConfigError(f"expected a whole number, not {value!r}")
    return value
