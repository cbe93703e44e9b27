"""What W&B is shown of a comparison: plain columns and rows, without a word of W&B itself.

Every table of the report, all runs, submissions and a sample of items, and the points of charts. A
missing value stays missing. Sheets are cut to what W&B shows; `contents` says what was left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import polars as pl

from analysis.comparisons.all_tables import all_tables
from analysis.comparisons.budget import curves_by_stack
from analysis.comparisons.compare import Comparison
from analysis.comparisons.words import task_title
from analysis.html.overview import page_name
from analysis.html.words import printable
from analysis.results import Results
from analysis.tables import Cell, Table
from analysis.trajectories import trajectory

Value: TypeAlias = str | int | float | bool | None

MAX_ROWS = 10_000
"""So many rows of a table W&B shows."""
MAX_ITEMS = 2_000
ITEMS_A_CELL = 20
MAX_CHARS = 500
MAX_BARS = 60
"""Charts of one task each."""
_RUN = (
    *("run_id", "sweep", "stack", "agent", "driver", "mode", "task", "level", "model", "seed"),
    *("standing", "end", "baseline_score", "first_score", "best_score", "improvement", "floor"),
    *("within_noise", "succeeded", "best_submission_id", "num_submissions", "num_graded"),
    *("num_failed", "num_invalid", "num_rejected", "num_items", "input_tokens", "output_tokens"),
    *("cost_usd", "num_revisions", "mode_verdict", "mode_methods", "num_findings"),
    *("num_breaches", "budget", "budget_s", "budget_used_s", "started_at", "duration_s"),
)
_SUBMISSION = (
    *("submission_id", "at_s", "kind", "score", "gain", "within_noise", "best_after"),
    *("is_new_best", "queue_s", "grading_s", "failure", "invalid_reason", "code_revision"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table for W&B.

    Attributes:
        key: Where it stands among the run's media, e.g. ``comparison/costs``.
        num_all: Rows before it was cut.
    """

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    num_all: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of a sheet's columns: a line for each ``stroke``, or bars where there is none."""

    key: str
    title: str
    sheet: Sheet
    x: str
    y: str
    stroke: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Where W&B has a run's own page, by ``run_id``; a run that is in neither was not mirrored.

    Attributes:
        ids: The W&B ids.
        links: Addresses; none where the entity is not known.
    """

    ids: Mapping[str, str]
    links: Mapping[str, str]


def sheets(
    results: Results, comparison: Comparison, pages: Pages, *, report: Path | None
) -> list[Sheet]:
    """All tables, the most asked for first; `contents` of them leads.

    Args:
        results: The results.
        comparison: Of them.
        pages: The runs' own pages in W&B.
        report: The report's folder; None: there is none.
    """
    made = [
        *(comparison_sheet(table) for table in all_tables(comparison)),
        runs_sheet(comparison, pages, report),
        submissions_sheet(results, comparison, pages),
        items_sheet(results, comparison),
        curves_sheet(comparison),
    ]
    kept = [sheet for sheet in made if sheet.rows]
    return [contents(kept), *kept]


def contents(made: Sequence[Sheet]) -> Sheet:
    """What each table is, and whether all of its rows are shown."""
    rows = [(s.key, s.title, len(s.rows), s.num_all, " ".join(s.notes)) for s in made]
    return _sheet("contents", "All tables", ("table", "title", "shown", "all", "notes"), rows)


def comparison_sheet(table: Table) -> Sheet:
    """A table of the report: numbers as numbers, marks and details in columns of their own."""
    places = range(len(table.columns))
    marked = [any(row[at].is_best or row[at].mark for row in table.rows) for at in places]
    detailed = [any(row[at].detail for row in table.rows) for at in places]
    labels = [column.label for column in table.columns]
    names: list[str] = []
    for at, column in enumerate(table.columns):
        name = labels[at] if labels.count(labels[at]) == 1 else f"{labels[at]} [{column.key}]"
        names += [name, *[f"{name}: mark"] * marked[at], *[f"{name}: n"] * detailed[at]]
    rows = []
    for row in table.rows:
        line: list[Value] = []
        for at, cell in enumerate(row):
            line += [_plain(cell.value), *[_mark(cell)] * marked[at], *[cell.detail] * detailed[at]]
        rows.append(tuple(line))
    return _sheet(f"comparison/{table.name}", table.title, names, rows, notes=table.footnotes)


def runs_sheet(comparison: Comparison, pages: Pages, report: Path | None) -> Sheet:
    """One row a run and task, with its own page in W&B, and its page where the report has one."""
    frame = _with_pages(comparison.runs.select(_RUN), pages)
    made = {f"runs/{path.name}" for path in report.glob("runs/*.html")} if report else set()
    names = [f"runs/{page_name(run_id)}" for run_id in frame["run_id"]]
    shown = [name if name in made else None for name in names]
    frame = frame.with_columns(report_page=pl.Series(shown, dtype=pl.String))
    return _of_frame("runs/all", "All runs, a row a run and task", frame)


def submissions_sheet(results: Results, comparison: Comparison, pages: Pages) -> Sheet:
    """Every submission; of more than `MAX_ROWS`, new bests stay before others."""
    about = comparison.runs.select("run_id", "task", "stack", "mode", "model", "seed")
    frame = trajectory(results).join(about, on=["run_id", "task"], maintain_order="left")
    frame = frame.select(*about.columns, *_SUBMISSION).with_row_index("place")
    first = frame.sort("is_new_best", descending=True, maintain_order=True).head(MAX_ROWS)
    shown = _with_pages(first.sort("place").drop("place"), pages)
    title = "All submissions in order of acceptance (scores in percent, gains in points)"
    return _of_frame("runs/submissions", title, shown, num_all=len(frame))


def items_sheet(results: Results, comparison: Comparison) -> Sheet:
    """A sample of items of each cell's best run: the base model's verdict beside the best's.

    Evenly spaced over the items by ``item_id``, at most `ITEMS_A_CELL` a cell and `MAX_ITEMS`.
    """
    best = comparison.cells.filter(pl.col("best_run").is_not_null()).select(
        "stack", "mode", "task", "model", run_id="best_run"
    )
    chosen = best.join(
        comparison.runs.select("run_id", "task", "best_submission_id"), on=["run_id", "task"]
    )
    items = results.table("items").join(chosen.lazy(), on=["run_id", "task"], maintain_order="left")
    keys = ["model", "mode", "stack", "task", "run_id", "item_id"]
    of_best = items.filter(pl.col("submission_id") == pl.col("best_submission_id")).select(
        *keys, "submission_id", "status", "score", "num_steps", "num_tokens", "detail"
    )
    of_base = items.filter(pl.col("submission_id") == 0).select(
        *keys[-3:], base_status="status", base_score="score", base_detail="detail"
    )
    num_a_cell = max(1, min(ITEMS_A_CELL, MAX_ITEMS // max(len(best), 1)))
    frame = of_best.join(of_base, on=keys[-3:], how="left").sort(keys).collect()
    place, size = pl.int_range(pl.len()).over(keys[:-1]), pl.len().over(keys[:-1])
    step = (size / num_a_cell).ceil().cast(pl.Int64)
    shown = frame.filter(place % step == 0).with_columns(
        change=pl.col("score") - pl.col("base_score")
    )
    return _of_frame(
        "runs/items",
        "Items of each cell's best run, the base model's verdict beside (scores 0 to 1)",
        shown.head(MAX_ITEMS),
        num_all=len(frame),
        notes=["A sample, evenly spaced by item; tables/items has all."],
    )


def curves_sheet(comparison: Comparison) -> Sheet:
    """Best so far over the budget by stack: gains in points, over each stack's tasks."""
    frame = curves_by_stack(comparison.curves)
    return _of_frame("charts/curves", "Best so far over the budget, by stack (points)", frame)


def charts(comparison: Comparison) -> list[Chart]:
    """A curve of each model and mode, and bars of the gains on each of their tasks."""
    curves = curves_by_stack(comparison.curves)
    made = []
    for model, mode in comparison.groups:
        points = _of(curves, model, mode).select("stack", "hours", gain="kept_gain")
        title = f"Best so far: {model}, mode {mode} (mean gain in points by hour of the budget)"
        sheet = _of_frame(f"charts/best-so-far-{model}-{mode}", title, points)
        made.append(
            Chart(key=sheet.key, title=title, sheet=sheet, x="hours", y="gain", stroke="stack")
        )
    made += [chart for group in comparison.groups for chart in _bars(comparison, *group)][:MAX_BARS]
    return [chart for chart in made if chart.sheet.rows]


def _bars(comparison: Comparison, model: str, mode: str) -> list[Chart]:
    cells = _of(comparison.cells, model, mode).filter(pl.col("gain").is_not_null())
    made = []
    for task in cells["task"].unique().sort():
        gains = cells.filter(pl.col("task") == task).select("stack", "gain")
        title = f"Gain on {task_title(task)}: {model}, mode {mode} (points)"
        sheet = _of_frame(f"charts/gain-{task}-{model}-{mode}", title, gains)
        made.append(Chart(key=sheet.key, title=title, sheet=sheet, x="stack", y="gain"))
    return made


def headline(comparison: Comparison) -> dict[str, Value]:
    """Figures for the run's summary: runs by what became of them, and the highest gain."""
    runs = comparison.runs
    figures: dict[str, Value] = {"num_runs": runs["run_id"].n_unique(), "num_results": len(runs)}
    for name, num in runs["standing"].value_counts(sort=True).iter_rows():
        figures[f"num_{name}"] = int(num)
    gains = comparison.cells.filter(pl.col("gain").is_not_null()).sort("gain", descending=True)
    if len(gains):
        top = gains.row(0, named=True)
        figures["best_gain"] = top["gain"]
        figures["best_gain_of"] = f"{top['stack']} on {top['task']}, mode {top['mode']}"
    return figures


def _of(frame: pl.DataFrame, model: str, mode: str) -> pl.DataFrame:
    return frame.filter((pl.col("model") == model) & (pl.col("mode") == mode))


def _with_pages(frame: pl.DataFrame, pages: Pages) -> pl.DataFrame:
    def told(by_run: Mapping[str, str]) -> pl.Expr:
        old, new = list(by_run), list(by_run.values())
        return pl.col("run_id").replace_strict(old, new, default=None, return_dtype=pl.String)

    return frame.with_columns(wandb_page=told(pages.links), wandb_run=told(pages.ids))


def _of_frame(
    key: str,
    title: str,
    frame: pl.DataFrame,
    *,
    num_all: int | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    rows = [tuple(map(_plain, row)) for row in frame.head(MAX_ROWS).iter_rows()]
    total = len(frame) if num_all is None else num_all
    return _sheet(key, title, frame.columns, rows, num_all=total, notes=notes)


def _sheet(
    key: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Value, ...]],
    *,
    num_all: int | None = None,
    notes: Sequence[str] = (),
) -> Sheet:
    return Sheet(
        key=key,
        title=title,
        columns=tuple(columns),
        rows=tuple(rows[:MAX_ROWS]),
        num_all=len(rows) if num_all is None else num_all,
        notes=tuple(notes),
    )


def _mark(cell: Cell) -> str:
    return " ".join(filter(None, ("best" if cell.is_best else "", cell.mark)))


def _plain(value: object) -> Value:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    text = printable(value)
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"
