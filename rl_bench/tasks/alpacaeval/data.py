"""AlpacaEval's data: instructions with reference outputs, train rows, the length control's tables.

A folder is in the layout of the public sources, each file optionally as ``.xz``. The built-in
variant is a few original instructions with answers, in `mini.json`. Nothing is
downloaded here: a table that is missing makes the length control an approximation with a name.
Sources: https://huggingface.co/datasets/tatsu-lab/alpaca_eval (805 instructions, CC BY-NC 4.0) and
https://huggingface.co/datasets/tatsu-lab/alpaca (train rows, CC BY-NC 4.0).
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rl_bench.errors import MissingDataError, PreflightError
from rl_bench.tasks.alpacaeval.gamed import stand_in_rows
from rl_bench.tasks.alpacaeval.winrate import GamedRow, LengthControl, LengthModel
from rl_bench.tasks.data_files import parse_json, read_text

BUILTIN = Path(__file__).with_name("mini.json")
_REFERENCES = ("model_outputs_gpt4_1106_preview.json", "alpaca_eval_gpt4_baseline.json")
_FETCH = "Fetch the data with `python -m rl_bench.prepare task=alpacaeval`"
_TABLES: Mapping[LengthControl, str] = {
    LengthControl.OFFICIAL: "df_gamed.csv",
    LengthControl.OFFICIAL_DIFFICULTY: "instruction_difficulty.csv",
    LengthControl.RECONSTRUCTED_DIFFICULTY: "instruction_difficulty_reconstructed.csv",
}
"""The best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One evaluated instruction, by its place in the set, and the output to compare with."""

    item: int
    text: str
    reference: str
    generator: str
    dataset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """An instruction with its demonstration; ``context`` is what it is about, often empty."""

    instruction: str
    context: str
    output: str

    @property
    def question(self) -> str:
        """The user message."""
        return f"{self.instruction}\n\n{self.context}" if self.context else self.instruction


def read_instructions(folder: Path) -> list[Instruction]:
    """The evaluation set, in its published order.

    Raises:
        PreflightError: The reference outputs are missing, or are none.
    """
    path = _find(folder, _REFERENCES, what="reference outputs")
    with _reading(path):
        return _instructions(parse_json(read_text(path)))


def read_train(folder: Path, name: str) -> list[TrainRow]:
    """Train rows of a file: a JSON list, or one object a line.

    Raises:
        PreflightError: The file is missing, or holds something else.
    """
    # An evaluation alone needs none, but only the user knows that no agent will follow.
    cure = (
        "To go without train rows, e.g. for an evaluation alone, set "
        "task.settings.train_file= task.num_train=null"
    )
    path = _find(folder, (name,), what="train rows", cure=cure)
    with _reading(path):
        text = read_text(path)
        lines = [line for line in text.split("\n") if line.strip()]
        is_list = text.lstrip().startswith("[")
        return _train_rows(parse_json(text) if is_list else map(parse_json, lines))


def builtin_instructions() -> list[Instruction]:
    """The built-in evaluation set."""
    return _instructions(parse_json(read_text(BUILTIN))["eval"])


def builtin_train() -> list[TrainRow]:
    """The built-in train rows."""
    return _train_rows(parse_json(read_text(BUILTIN))["train"])


def best_length_control(folder: Path | None) -> LengthControl:
    """The most exact length control that the tables in a folder allow."""
    if folder is not None:
        for method, name in _TABLES.items():
            if _candidates(folder, (name,)):
                return method
    return LengthControl.LENGTH_ONLY


def read_length_model(folder: Path | None, method: LengthControl) -> LengthModel:
    """The tables of a length control.

    Raises:
        PreflightError: Its file is missing, or is no such table.
    """
    if method is LengthControl.LENGTH_ONLY:
        return LengthModel(gamed=stand_in_rows())
    if folder is None:
        raise PreflightError(f"length control '{method.value}' needs a data folder")
    path = _find(folder, (_TABLES[method],), what=f"the table of length control '{method.value}'")
    with _reading(path):
        rows = list(csv.reader(read_text(path).splitlines()))
        if len(rows) < 2:
            raise ValueError("a table without rows")
        if method is LengthControl.OFFICIAL:
            return _official(rows)
        difficulty = {int(row[0]): _finite(row[1]) for row in rows[1:]}
        gamed = stand_in_rows(list(difficulty.values()))
        return LengthModel(method=method, difficulty=difficulty, gamed=gamed)


def _official(rows: list[list[str]]) -> LengthModel:
    """Rows of gamed baselines carry the difficulty too; one without a preference was not judged."""
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    return LengthModel(
        method=LengthControl.OFFICIAL,
        difficulty={int(row["index"]): _finite(row["instruction_difficulty"]) for row in table},
        gamed=tuple(
            GamedRow(
                difficulty=_finite(row["instruction_difficulty"]),
                preference=_finite(row["preference"]),
                length_difference=_finite(row["std_delta_len"]),
            )
            for row in table
            if row["preference"]
        ),
    )


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number to reckon with")
    return value


def _instructions(rows: Iterable[Mapping[str, object]]) -> list[Instruction]:
    return [
        Instruction(
            item=item,
            text=_text(row, "instruction"),
            reference=_text(row, "output"),
            generator=str(row.get("generator", "")),
            dataset=str(row.get("dataset", "")),
        )
        for item, row in enumerate(rows)
    ]


def _train_rows(rows: Iterable[Mapping[str, object]]) -> list[TrainRow]:
    return [
        TrainRow(
            instruction=_text(row, "instruction"),
            context=str(row.get("input") or ""),
            output=_text(row, "output"),
        )
        for row in rows
    ]


def _text(row: Mapping[str, object], key: str) -> str:
    value = row[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not text")
    return value


def _find(folder: Path, names: Iterable[str], *, what: str, cure: str = _FETCH) -> Path:
    names = tuple(names)
    found = _candidates(folder, names)
    if not found:
        raise MissingDataError(
            f"AlpacaEval: {what} not found in {folder} (looked for {', '.join(names)}, also .xz)",
            cure=cure,
        )
    return found[0]


def _candidates(folder: Path, names: Iterable[str]) -> list[Path]:
    paths = [folder / f"{name}{suffix}" for name in names for suffix in ("", ".xz")]
    return [path for path in paths if path.is_file()]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a file of another shape makes the reader trip over is the file's fault."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, csv.Error) as error:
        raise PreflightError(
            f"AlpacaEval: {path} is not as its source has it ({type(error).__name__}: {error})",
            cure="Fetch it again",
        ) from error
