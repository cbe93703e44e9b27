"""DeepSearchQA's rows and how they are split.

The split is that of the published runs: the rows in the order that the package ``datasets`` gives
them by ``shuffle(seed=42)``, the first 100 for training, the next 200 evaluated. Rows come from a
local copy of the public data (``source=path``) or from an invented country (``source=builtin``).
Source: https://huggingface.co/datasets/google/deepsearchqa (900 rows, Apache-2.0).
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from envs.answer_match import SET_ANSWER, SINGLE_ANSWER
from envs.search.corpus import CORPUS_FILE
from rl_bench.config import DataSource, TaskConfig
from rl_bench.counts import plural
from rl_bench.errors import ConfigError, MissingDataError, PreflightError
from rl_bench.tasks.data_files import parse_json, read_text
from rl_bench.tasks.deepsearchqa.generated import draw_questions
from rl_bench.tasks.deepsearchqa.settings import DeepSearchQASettings
from rl_bench.tasks.deepsearchqa.world import WORLD_VERSION, Split, World, make_world
from rl_bench.whole_file import write_whole

PUBLISHED_NUM_TRAIN = 100
NUM_ROWS = 900
_FILES = ("DSQA-full.csv", "subset_*.jsonl")
_SOURCE = "https://huggingface.co/datasets/google/deepsearchqa"
_AGAIN = f"Download the file again from {_SOURCE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A question and its reference answer.

    ``index`` is its place in the public file; ``searches`` lead to the answer, where that is known.
    """

    index: int
    problem: str
    answer: str
    answer_type: str
    category: str
    searches: tuple[str, ...] = ()


def shuffled(rows: Sequence[Row], *, seed: int) -> list[Row]:
    """``rows`` in the order of ``datasets.Dataset.shuffle(seed=seed)`` (NumPy's default generator).

    The order depends on the number of rows: that of a subset is not that of the whole.
    """
    return [rows[int(i)] for i in np.random.default_rng(seed).permutation(len(rows))]


def read_rows(folder: Path) -> list[Row]:
    """The rows of the public file, or of a subset of it, in their order there.

    An answer is text, also where it is the word ``None``, which table readers take for a gap.

    Raises:
        PreflightError: No file, or a line that is not a row.
    """
    found = [path for pattern in _FILES for path in sorted(folder.glob(pattern))]
    if not found:
        raise MissingDataError(
            f"DeepSearchQA data not found in {folder} (looked for {', '.join(_FILES)})",
            cure=f"Download DSQA-full.csv from {_SOURCE} and set task.data_path to its folder",
        )
    path = found[0]
    lines = io.StringIO(read_text(path, cure=_AGAIN), newline="")
    fields = _table(lines, path) if path.suffix == ".csv" else _json_lines(lines, path)
    rows = [_row(each, path=path, number=i) for i, each in enumerate(fields)]
    [(index, times)] = Counter(row.index for row in rows).most_common(1) or [(0, 0)]
    if times > 1:
        raise PreflightError(f"{path}: {times} rows have the row_idx {index}", cure=_AGAIN)
    return rows


def _table(lines: Iterable[str], path: Path) -> Iterator[Mapping[str, object]]:
    try:
        yield from csv.DictReader(lines)
    except csv.Error as error:
        raise PreflightError(f"{path}: not a table ({error})", cure=_AGAIN) from error


def _json_lines(lines: Iterable[str], path: Path) -> Iterator[Mapping[str, object]]:
    for number, line in enumerate(lines, 1):
        try:
            value = parse_json(line)
        except ValueError as error:
            raise PreflightError(
                f"{path}, line {number}: not JSON ({error})", cure=_AGAIN
            ) from error
        yield value if isinstance(value, dict) else {}


def _row(fields: Mapping[str, object], *, path: Path, number: int) -> Row:
    problem, answer = fields.get("problem"), fields.get("answer")
    answer_type = fields.get("answer_type")
    is_row = isinstance(problem, str) and isinstance(answer, str) and problem and answer
    if not is_row or answer_type not in (SINGLE_ANSWER, SET_ANSWER):
        raise PreflightError(
            f"{path}, row {number}: not a row with problem, answer and answer_type",
            cure=_AGAIN,
        )
    index = fields.get("row_idx", number)
    return Row(
        index=index if isinstance(index, int) else number,
        problem=str(problem),
        answer=str(answer),
        answer_type=str(answer_type),
        category=str(fields.get("problem_category") or ""),
    )


class DeepSearchQAData:
    """The train and evaluation rows of one task config, and the corpora for them.

    Args:
        config: The task.
        cache: Folder for generated corpora.

    Raises:
        ConfigError: A setting is wrong, or the data folder is not given.
    """

    def __init__(self, config: TaskConfig, *, cache: Path) -> None:
        self.settings = DeepSearchQASettings.of(config)
        self._config = config
        self._cache = cache
        if config.source is DataSource.PATH and config.data_path is None:
            raise ConfigError(
                f"task {config.name}: data_path is not set", cure="Set task.data_path to a folder"
            )

    @property
    def is_builtin(self) -> bool:
        """Whether questions and corpora are generated."""
        return self._config.source is DataSource.BUILTIN

    def rows(self, split: Split) -> list[Row]:
        """The rows of a split, in their fixed order; no question of one is in the other.

        Raises:
            PreflightError: Data are missing, or fewer than the config wants.
        """
        config = self._config
        num_train = config.num_train or PUBLISHED_NUM_TRAIN
        if self.is_builtin:
            num = num_train if split == "train" else config.num_eval
            found = self._generated(split)
            return self._counted(found, split, num)
        assert config.data_path is not None
        rows = shuffled(read_rows(config.data_path), seed=self.settings.shuffle_seed)
        if split == "eval":
            return self._counted(rows[num_train:], split, config.num_eval)
        # A question that is asked twice must not bring the agent the answer of an evaluated one.
        held_out = {row.problem.strip() for row in rows[num_train:]}
        train = self._counted(rows, split, num_train)
        kept = [row for row in train if row.problem.strip() not in held_out]
        return self._counted(kept, split, None)

    def _counted(self, rows: list[Row], split: Split, num: int | None) -> list[Row]:
        """The first ``num`` of ``rows``."""
        if not rows or (num is not None and len(rows) < num):
            config = self._config
            held = "" if self.is_builtin else self._held(split)
            left = plural(len(rows), f"{split} row")
            raise PreflightError(
                f"task {config.name}: {left} left{held}, {num or 'some'} wanted",
                cure=self._cure(rows, split),
            )
        return rows[:num]

    def _cure(self, rows: Sequence[Row], split: Split) -> str:
        """Rows can be had only where the public file is not whole."""
        if self.is_builtin or len(read_rows(self._folder)) >= NUM_ROWS:
            return f"Lower task.num_{split} to {len(rows)}" if rows else "Lower task.num_train"
        return (
            "Set task.num_train and task.num_eval to what there is, e.g. 20 and 80 for a subset "
            f"of 100 rows, or get all {NUM_ROWS} from {_SOURCE}"
        )

    def _held(self, split: Split) -> str:
        """How many rows there are, and who takes those that are not left."""
        total = len(read_rows(self._folder))
        num_train = self._config.num_train or PUBLISHED_NUM_TRAIN
        taken = f", since task.num_train takes {min(num_train, total)} of them"
        return f" of the {total} there" + ("" if split == "train" else taken)

    @property
    def _folder(self) -> Path:
        assert self._config.data_path is not None
        return self._config.data_path

    def _world(self, split: Split) -> World:
        settings = self.settings
        return make_world(split, seed=settings.data_seed, num_towns=settings.num_towns)

    def _generated(self, split: Split) -> list[Row]:
        questions = draw_questions(self._world(split), seed=self.settings.data_seed)
        return [
            Row(
                index=i,
                problem=each.problem,
                answer=each.answer,
                answer_type=each.answer_type,
                category=each.category,
                searches=each.searches,
            )
            for i, each in enumerate(questions)
        ]

    def corpus(self, split: Split) -> Path | None:
        """The corpus that searches of ``split`` are about; ``None`` where there is none.

        Generated countries have one each; public questions share what the user provides.
        """
        if self.settings.corpus:
            return Path(self.settings.corpus).expanduser()
        if self.is_builtin:
            return self._written(split)
        path = self._folder / CORPUS_FILE
        return path if path.is_file() else None

    def _written(self, split: Split) -> Path:
        """Writes a generated corpus, once, aside and then into place."""
        settings = self.settings
        name = f"{split}-{settings.data_seed}-{settings.num_towns}-v{WORLD_VERSION}.jsonl"
        path = self._cache / "worlds" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.is_file():
                lines = (json.dumps(asdict(each)) for each in self._world(split).articles())
                write_whole(path, "\n".join(lines) + "\n")
        return path
