"""Tables of runs in a given width: numbers are never cut.

What all runs share stands in the title, columns that matter less are left out, then words are
shortened. Also the words and figures that tables and lines of progress have in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from rich.cells import cell_len
from rich.text import Text

from rl_bench.config import RunSpec
from rl_bench.counts import plural
from rl_bench.events import RunState
from rl_bench.lines import one_line
from rl_bench.run_view import RunView
from rl_bench.task_view import TaskView

DEFAULT_WIDTH = 120
INTERRUPTED = "interrupted"
WITHIN_NOISE = "~"
INVALID = "!"
"""Marks scores of an invalid run: they are kept, and count for nothing."""
_GAP = "  "
_MIN_WORD_WIDTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run of the plan as tables show it; ``tasks`` in the spec's order."""

    run_id: str
    agent: str
    driver: str
    mode: str
    tasks: tuple[str, ...]
    model: str
    seed: int
    budget_s: float

    @property
    def digest(self) -> str:
        """The end of the run's id, which tells it from every other; its label is in the columns."""
        return self.run_id.rsplit("-", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table of runs.

    Attributes:
        cells: One a row; of a name that others chose, what would be an order to a terminal is none.
        is_number: Aligned to the right and never shortened; words may be.
        drop: Columns with the highest are left out first where the width is short; 0 stays.
        styles: One a cell, or empty for none.
    """

    heading: str
    cells: tuple[str, ...]
    is_number: bool = False
    drop: int = 0
    styles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(map(one_line, self.cells)))

    @property
    def width(self) -> int:
        """Terminal cells that the heading and every cell need."""
        return max(cell_len(text) for text in (self.heading, *self.cells))


def fit(columns: Sequence[Column], *, width: int) -> list[Column]:
    """The columns that fit in ``width`` terminal cells, by `Column.drop`; all that stay if none."""
    kept = list(columns)
    while _total_width([column.width for column in kept]) > width:
        extra = max(kept, key=lambda column: column.drop, default=None)
        if extra is None or extra.drop == 0:
            break
        kept.remove(extra)
    return kept


def table_text(columns: Sequence[Column], *, width: int) -> Text:
    """A heading and rows, without blanks at the ends of lines.

    Words are shortened with ``…`` to fit in ``width``, the longest first; where even that does not
    suffice, lines are longer than ``width``, for a cut number would be a wrong one.
    """
    widths = [column.width for column in columns]
    while _total_width(widths) > width:
        can = [
            (widths[i], i)
            for i, column in enumerate(columns)
            if not column.is_number and widths[i] > max(cell_len(column.heading), _MIN_WORD_WIDTH)
        ]
        if not can:
            break
        widths[max(can)[1]] -= 1
    num_rows = len(columns[0].cells) if columns else 0
    lines = [_table_line([(c.heading, "bold") for c in columns], columns, widths)]
    for row in range(num_rows):
        cells = [(c.cells[row], c.styles[row] if c.styles else "") for c in columns]
        lines.append(_table_line(cells, columns, widths))
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def title(plan: Sequence[PlannedRun]) -> str:
    """How many runs, and what all of them share: ``4 runs · agent reference · seed 0``."""
    parts = [plural(len(plan), "run")]
    for heading, values in _identity(plan).items():
        if len(set(values)) == 1:
            parts.append(f"{heading} {values[0]}")
    return one_line(" · ".join(parts))


def labels(plan: Sequence[PlannedRun]) -> dict[str, str]:
    """Each run in few words, by its id, as plain lines name it: its task, and what tells it apart.

    What all runs share stands in the `title`.
    """
    names = {}
    shared = {key for key, values in _identity(plan).items() if len(set(values)) == 1}
    for run in plan:
        task = run.tasks[0] if len(run.tasks) == 1 else plural(len(run.tasks), "task")
        words = {
            "agent": run.agent,
            "driver": run.driver,
            "mode": run.mode,
            "task": task,
            "model": run.model,
            "seed": f"seed {run.seed}",
        }
        names[run.run_id] = " ".join(words[key] for key in words if key not in shared)
    return names


def varying_columns(plan: Sequence[PlannedRun], rows: Sequence[PlannedRun | None]) -> list[Column]:
    """What tells the runs of ``plan`` apart; ``rows`` names each row's run, None for blanks."""
    columns = []
    for heading, values in _identity(plan).items():
        if len(set(values)) > 1:
            value_of = {run.run_id: value for run, value in zip(plan, values, strict=True)}
            cells = tuple(value_of[run.run_id] if run else "" for run in rows)
            columns.append(Column(heading=heading, cells=cells, is_number=heading == "seed"))
    return columns


def planned(specs: Mapping[str, RunSpec]) -> list[PlannedRun]:
    """The plan (run id to spec, in order) as progress and summary take it."""
    return [
        PlannedRun(
            run_id=run_id,
            agent=spec.agent.name,
            driver=spec.driver.name,
            mode=spec.mode.name,
            tasks=tuple(task.name for task in spec.tasks),
            model=spec.model.name,
            seed=spec.seed,
            budget_s=spec.budget.wall_clock_s,
        )
        for run_id, spec in specs.items()
    ]


def has_begun(view: RunView | None) -> TypeGuard[RunView]:
    """Whether a run does not wait for its first process."""
    return view is not None and view.state is not RunState.PENDING


def state_words(view: RunView | None, *, is_driven: bool = True) -> str:
    """A run's state, or its end once it has one; ``retrying`` between two attempts.

    What has begun and is not over is ``interrupted`` where no process drives its sweep.
    """
    if view is None:
        return RunState.PENDING.value
    if not is_driven and has_begun(view) and not view.is_final:
        return INTERRUPTED
    if view.end is None:
        return view.state.value
    return view.end.value if view.is_final else f"retrying ({view.end.value})"


def number(value: float | None, *, signed: bool = False) -> str:
    """A score in a cell: one decimal, ``–`` for none (which is not 0)."""
    if value is None:
        return "–"
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def best(task: TaskView, view: RunView | None, *, mark: str = "") -> str:
    """The best score in a cell, with ``mark``, and marked where the run is invalid."""
    return _marked(number(task.best) + mark, view)


def gain(task: TaskView, view: RunView | None) -> str:
    """The improvement in a cell, marked where it lies within the noise, or the run is invalid."""
    improvement = number(task.improvement, signed=True)
    return _marked(improvement + (WITHIN_NOISE if task.within_noise else ""), view)


def gain_words(view: RunView | TaskView) -> str:
    """The improvement in a line of text."""
    return f"gain {number(view.improvement, signed=True)}" + (
        " within the noise" if view.within_noise else ""
    )


def _marked(cell: str, view: RunView | None) -> str:
    return cell + (INVALID if view is not None and view.is_invalid else "")


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def _identity(plan: Sequence[PlannedRun]) -> dict[str, list[str]]:
    return {
        "agent": [run.agent for run in plan],
        "driver": [run.driver for run in plan],
        "mode": [run.mode for run in plan],
        "model": [run.model for run in plan],
        "seed": [str(run.seed) for run in plan],
    }


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * max(len(widths) - 1, 0)


def _table_line(
    cells: Sequence[tuple[str, str]], columns: Sequence[Column], widths: Sequence[int]
) -> Text:
    line = Text()
    for (words, style), column, width in zip(cells, columns, widths, strict=True):
        cell = Text(words, style=style)
        if not column.is_number:
            cell.truncate(width, overflow="ellipsis")
        blanks = " " * (width - cell.cell_len)
        line.append(_GAP if line else "")
        line.append_text(Text(blanks) + cell if column.is_number else cell + Text(blanks))
    line.rstrip()
    return line


def task_views(run: PlannedRun, view: RunView | None) -> list[TaskView]:
    """The run's tasks in the spec's order, empty ones where nothing is known."""
    return [(view.tasks.get(name) if view else None) or TaskView(task=name) for name in run.tasks]


def numbers(heading: str, cells: Iterable[str], *, drop: int = 0) -> Column:
    """A column of numbers."""
    return Column(heading=heading, cells=tuple(cells), is_number=True, drop=drop)


def failed_column(tasks: Sequence[TaskView]) -> list[Column]:
    """Submissions without a score; no column while there are none."""
    if not any(task.num_failed for task in tasks):
        return []
    return [numbers("failed", [str(task.num_failed) for task in tasks], drop=3)]
