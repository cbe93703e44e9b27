"""Progress of a sweep: a live table on a terminal, plain timestamped lines elsewhere.

Tables fit the width without cutting a number: what all runs share stands in the title, columns
that matter less are left out, then words are shortened. `render` and `changes` are pure functions
of views and plan; `Progress` only shows what they return. Runs that wait have no view. When more
runs are planned than fit, the table shows the active ones and the latest to finish, and counts the
rest.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rl_bench.config import RunSpec
from rl_bench.events import RunState
from rl_bench.run_view import RunView, TaskView

DEFAULT_MAX_ROWS = 24
DEFAULT_WIDTH = 120
HEARTBEAT_S = 30.0

_GAP = "  "
_MIN_WORD_WIDTH = 6
_MAX_HEARTBEAT_RUNS = 4

_STYLES = {
    RunState.PENDING: "dim",
    RunState.PREPARING: "cyan",
    RunState.BASELINE: "cyan",
    RunState.RUNNING: "bold yellow",
    RunState.CLOSING: "cyan",
}


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

    @property
    def label(self) -> str:
        """The run in words, as plain lines name it."""
        tasks = "+".join(self.tasks)
        return f"{self.agent}/{self.driver} {self.mode} {tasks} seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table of runs.

    Attributes:
        cells: One a row.
        is_number: Aligned to the right and never shortened; words may be.
        drop: Columns with the highest are left out first where the width is short; 0 stays.
        styles: One a cell, or empty for none.
    """

    heading: str
    cells: tuple[str, ...]
    is_number: bool = False
    drop: int = 0
    styles: tuple[str, ...] = ()

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
    return " · ".join(parts)


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


def state_words(view: RunView | None) -> str:
    """A run's state, or its end once it has one; ``retrying`` between two attempts."""
    if view is None:
        return RunState.PENDING.value
    if view.end is None:
        return view.state.value
    return view.end.value if view.is_final else f"retrying ({view.end.value})"


def number(value: float | None, *, signed: bool = False) -> str:
    """A score in a cell: one decimal, ``–`` for none (which is not 0)."""
    if value is None:
        return "–"
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def plural(num: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{num} {noun}" if num == 1 else f"{num} {noun}s"


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def totals(views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, now: datetime) -> str:
    """One line: finished of planned, active, waiting, failures, submissions, elapsed."""
    known = [views[run.run_id] for run in plan if run.run_id in views]
    final = [view for view in known if view.is_final]
    active = [view for view in known if not view.is_final]
    infra = sum(view.is_infrastructure for view in final)
    parts = [
        f"{len(final)}/{len(plan)} runs finished",
        f"{len(active)} active",
        f"{len(plan) - len(known)} waiting",
        plural(sum(view.num_submissions for view in known), "submission"),
    ]
    if infra:
        parts.append(plural(infra, "infrastructure failure"))
    left = sum(view.budget_left_s(now) for view in active)
    left += sum(run.budget_s for run in plan if run.run_id not in views)
    parts.append(f"budget left {duration(left)}")
    return " · ".join(parts)


def render(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    *,
    now: datetime,
    max_rows: int = DEFAULT_MAX_ROWS,
    width: int = DEFAULT_WIDTH,
) -> RenderableType:
    """The live table at ``now`` (UTC), at most ``max_rows`` rows, and the totals under it."""
    shown = _choose(views, plan, max_rows=max_rows)
    columns = fit(_live_columns(views, plan, shown, now=now), width=width)
    lines: list[RenderableType] = [Text(title(plan)), table_text(columns, width=width)]
    hidden = [run for run in plan if run not in shown]
    if hidden:
        lines.append(Text(_hidden_words(views, hidden), style="dim"))
    lines.append(Text(totals(views, plan, now=now), style="bold"))
    return Group(*lines)


def changes(
    before: Mapping[str, RunView], after: Mapping[str, RunView], plan: Sequence[PlannedRun]
) -> list[str]:
    """What happened between two looks, a line each: states, baselines, scores, failures."""
    lines: list[str] = []
    for run in plan:
        new = after.get(run.run_id)
        if new is not None:
            old = before.get(run.run_id)
            lines += [f"{run.label}: {words}" for words in _run_changes(old, new)]
    return lines


def heartbeat(views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, now: datetime) -> str:
    """One line for a quiet time: the totals, and best score and budget left of active runs."""
    active = [run for run in plan if run.run_id in views and not views[run.run_id].is_final]
    parts = [totals(views, plan, now=now)]
    for run in active[:_MAX_HEARTBEAT_RUNS]:
        view = views[run.run_id]
        left = duration(view.budget_left_s(now))
        parts.append(f"{run.label}: {state_words(view)}, best {number(view.best)}, {left} left")
    if len(active) > _MAX_HEARTBEAT_RUNS:
        parts.append(f"and {len(active) - _MAX_HEARTBEAT_RUNS} more")
    return "; ".join(parts)


class Progress:
    """Shows a sweep's progress on ``console``; use as a context manager.

    Args:
        plan: The runs, in the order shown.
        console: Where; a console that is no terminal gets plain lines.
        known: Views from before a resume, which plain lines need not tell again.
        clock: Monotonic seconds; plain lines say `heartbeat` after `HEARTBEAT_S` without a line.
    """

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        *,
        console: Console | None = None,
        known: Mapping[str, RunView] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = list(plan)
        self._console = console or Console()
        self._before: dict[str, RunView] = dict(known or {})
        self._totals = ""
        self._clock = clock
        self._last_line_s = clock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, views: Mapping[str, RunView]) -> None:
        """Shows ``views``; call it every second or so."""
        now = datetime.now(UTC)
        if self._live is not None:
            # Title and totals may wrap to two lines each; then heading, hidden runs and cursor.
            max_rows = max(self._console.height - 7, 3)
            width = self._console.width
            table = render(views, self._plan, now=now, max_rows=max_rows, width=width)
            self._live.update(table)
        else:
            self._print(views, now=now)
        self._before = dict(views)

    def say(self, text: str) -> None:
        """Prints one line of what is going on, above the table where there is one."""
        self._line(text, now=datetime.now(UTC))

    def _print(self, views: Mapping[str, RunView], *, now: datetime) -> None:
        lines = changes(self._before, views, self._plan)
        totals_line = totals(views, self._plan, now=now)
        num_finished = totals_line.split(" · ", 1)[0]
        if num_finished != self._totals:
            self._totals = num_finished
            lines.append(totals_line)
        if not lines and self._clock() - self._last_line_s >= HEARTBEAT_S:
            lines.append(heartbeat(views, self._plan, now=now))
        for line in lines:
            self._line(line, now=now)

    def _line(self, text: str, *, now: datetime) -> None:
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._console.print(f"{stamp} {text}", markup=False, highlight=False, soft_wrap=True)
        self._last_line_s = self._clock()


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


def _choose(
    views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, max_rows: int
) -> list[PlannedRun]:
    """Active runs first, then the latest to finish, then waiting ones; shown in the plan's order.

    A run of several tasks takes as many rows as it has tasks.
    """

    def rank(run: PlannedRun) -> tuple[int, float]:
        view = views.get(run.run_id)
        if view is None:
            return 2, 0.0
        if not view.is_final:
            return 0, 0.0
        return 1, -(view.ended_utc.timestamp() if view.ended_utc else 0.0)

    chosen: set[str] = set()
    rows_left = max_rows
    for run in sorted(plan, key=rank):
        rows_left -= len(run.tasks)
        if rows_left < 0 and chosen:
            break
        chosen.add(run.run_id)
    return [run for run in plan if run.run_id in chosen]


def _live_columns(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    shown: Sequence[PlannedRun],
    *,
    now: datetime,
) -> list[Column]:
    """A row a task; what belongs to the run stands in the first of its rows."""
    first: list[PlannedRun | None] = []
    tasks: list[TaskView] = []
    for run in shown:
        first += [run, *[None] * (len(run.tasks) - 1)]
        tasks += task_views(run, views.get(run.run_id))

    def of_run(words: Callable[[PlannedRun, RunView | None], str]) -> tuple[str, ...]:
        return tuple(words(run, views.get(run.run_id)) if run else "" for run in first)

    def left(run: PlannedRun, view: RunView | None) -> str:
        return duration(run.budget_s if view is None else view.budget_left_s(now))

    def elapsed(_run: PlannedRun, view: RunView | None) -> str:
        return duration(view.elapsed_s(now)) if view else ""

    states = of_run(lambda _, view: state_words(view))
    styles = of_run(lambda _, view: _style(view))
    return [
        Column(heading="run", cells=of_run(lambda run, _: run.digest)),
        *varying_columns(plan, first),
        Column(heading="task", cells=tuple(task.task for task in tasks)),
        Column(heading="state", cells=states, styles=styles),
        numbers("base", [number(task.baseline) for task in tasks]),
        numbers("best", [number(task.best) for task in tasks]),
        numbers("gain", [number(task.improvement, signed=True) for task in tasks]),
        numbers("subs", [str(task.num_submissions) for task in tasks], drop=1),
        failed_column(tasks),
        numbers("left", of_run(left)),
        numbers("elapsed", of_run(elapsed), drop=4),
    ]


def task_views(run: PlannedRun, view: RunView | None) -> list[TaskView]:
    """The run's tasks in the spec's order, empty ones where nothing is known."""
    return [(view.tasks.get(name) if view else None) or TaskView(task=name) for name in run.tasks]


def numbers(heading: str, cells: Iterable[str], *, drop: int = 0) -> Column:
    """A column of numbers."""
    return Column(heading=heading, cells=tuple(cells), is_number=True, drop=drop)


def failed_column(tasks: Sequence[TaskView]) -> Column:
    """Submissions without a score; the first to be left out while there are none."""
    some = any(task.num_failed for task in tasks)
    return numbers("failed", [str(task.num_failed) for task in tasks], drop=3 if some else 9)


def _style(view: RunView | None) -> str:
    if view is None:
        return "dim"
    if view.end is None:
        return _STYLES.get(view.state, "")
    if view.is_infrastructure:
        return "bold red"
    return "green" if view.end.value in ("completed", "timed_out") else "magenta"


def _hidden_words(views: Mapping[str, RunView], hidden: Sequence[PlannedRun]) -> str:
    counts = Counter(state_words(views.get(run.run_id)) for run in hidden)
    return f"… and {len(hidden)} more: " + ", ".join(f"{n} {s}" for s, n in counts.most_common())


def _run_changes(old: RunView | None, new: RunView) -> list[str]:
    if old is not None and old.attempt != new.attempt:
        old = None
    lines = []
    if old is None and new.attempt > 0:
        lines.append(f"attempt {new.attempt + 1}")
    if old is None or (old.state, old.end) != (new.state, new.end):
        detail = f" ({new.end_detail})" if new.end_detail else ""
        lines.append(state_words(new) + (detail if new.end else ""))
    for name, task in new.tasks.items():
        lines += _task_changes((old.tasks.get(name) if old else None) or TaskView(task=name), task)
    if new.num_rejected > (old.num_rejected if old else 0):
        what = plural(new.num_rejected, "request")
        lines.append(f"{what} rejected so far, the last: {new.last_rejection}")
    if new.num_warnings > (old.num_warnings if old else 0):
        lines.append(f"warning: {new.last_warning}")
    if new.is_final and (old is None or not old.is_final):
        lines.append(
            f"baseline {number(new.baseline)}, best {number(new.best)}, "
            f"gain {number(new.improvement, signed=True)}, "
            f"{plural(new.num_submissions, 'submission')}, {duration(new.duration_s)}"
        )
    return lines


def _task_changes(old: TaskView, new: TaskView) -> list[str]:
    lines = []
    if (old.baseline, old.baseline_failure) != (new.baseline, new.baseline_failure):
        why = f" ({new.baseline_failure})" if new.baseline_failure else ""
        lines.append(f"{new.task} baseline {number(new.baseline)}{why}")
    if old.num_graded + old.num_failed != new.num_graded + new.num_failed:
        what = f"submission {new.last_submission_id}"
        if new.last_score is None:
            lines.append(f"{new.task} {what} has no score: {new.last_failure}")
        else:
            best = f"best {number(new.best)}, gain {number(new.improvement, signed=True)}"
            lines.append(f"{new.task} {what} scored {number(new.last_score)} ({best})")
    return lines
