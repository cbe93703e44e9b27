"""What the overview shows: headline facts, tables by subject, plots, failures apart, all runs."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.comparisons.compare import Comparison
from analysis.html.words import count, number, signed, usd
from analysis.results import Results
from analysis.tables import Table
from rl_bench.counts import plural

_PAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,180}")
_PARTS: Sequence[tuple[str, str, tuple[str, ...], int]] = (
    ("stacks", "Stacks and tasks", ("scores-", "gains-", "cells"), 2),
    ("modes", "Modes", ("modes-", "mode-spread-", "multi-single"), 2),
    ("drivers", "Drivers and scaffolds", ("driver-", "scaffold-"), 1),
    ("levels", "Levels", ("levels", "level-", "static-"), 1),
    ("budget", "Budget and cost", ("truncations-", "costs"), 1),
    ("repeats", "Seeds and pairs", ("seeds", "pairs-"), 0),
    ("outcomes", "Outcomes", ("failures",), 1),
)
"""Anchor, title, beginnings of tables' names, and how many stand open."""
Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tables on one subject; the first ``num_open`` are not folded."""

    anchor: str
    title: str
    tables: tuple[Table, ...]
    num_open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotFile:
    """A plot beside the page: its light and dark files, relative to it; ``height`` at 500 wide."""

    title: str
    alt: str
    light: str
    dark: str
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Runs that have no page: how many have one, of how many; who; what makes the others'."""

    num_pages: int
    num_runs: int
    rule: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The page.

    Attributes:
        facts: Heading and value.
        headlines: What matters most, in sentences.
        apart: Title and rows of runs that enter no mean.
        rows: All runs, a row a run and task.
        left_out: None: every run has a page.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    headlines: tuple[str, ...]
    parts: tuple[Part, ...]
    plots: tuple[PlotFile, ...]
    apart: tuple[tuple[str, tuple[Row, ...]], ...]
    rows: tuple[Row, ...]
    left_out: LeftOut | None = None
    footer: str = ""

    @property
    def num_apart(self) -> int:
        return sum(len(rows) for _, rows in self.apart)


def overview(
    results: Results,
    comparison: Comparison,
    *,
    tables: Sequence[Table],
    plots: Sequence[PlotFile],
    routes: Mapping[tuple[str, str], str],
    paged: Collection[str],
    left_out: LeftOut | None,
    footer: str,
) -> Overview:
    """The overview of ``results``.

    Args:
        results: The results.
        comparison: Of them.
        tables: Of the comparison.
        plots: That were made.
        routes: To the best scores, by run and task.
        paged: Runs that have a page.
        left_out: Of those that have none; None: there are none.
        footer: The page's last words.
    """
    rows = tuple(_rows(results, routes, paged))
    sweeps = sorted(results.runs["sweep"].unique().to_list())
    return Overview(
        title=f"rl_bench: {', '.join(sweeps)}",
        facts=tuple(_facts(results, comparison)),
        headlines=tuple(_headlines(comparison)),
        parts=tuple(_parts(tables)),
        plots=tuple(plots),
        apart=tuple(_apart(rows)),
        rows=rows,
        left_out=left_out,
        footer=footer,
    )


def page_name(run_id: str) -> str:
    """The file of a run's page; an id that is no plain name gets one of its digest."""
    if _PAGE_NAME.fullmatch(run_id):
        return f"{run_id}.html"
    return f"run-{hashlib.sha256(run_id.encode('utf-8', 'replace')).hexdigest()[:16]}.html"


def _rows(
    results: Results, routes: Mapping[tuple[str, str], str], paged: Collection[str]
) -> Iterable[Row]:
    reasons = _breaches(results)
    failures = _failures(results)
    wanted = results.runs.drop("spec", "tasks", "baseline_scores", "mode_methods")
    for row in wanted.iter_rows(named=True):
        run_id = str(row["run_id"])
        yield {
            **row,
            "page": page_name(run_id) if run_id in paged else "",
            "digest": _short(run_id, Path(row["folder"]).name),
            "stack": f"{row['agent']}/{row['driver']}",
            "route": routes.get((run_id, str(row["task"])), ""),
            "why": row["end_detail"]
            or reasons.get(run_id, "")
            or row["baseline_failure"]
            or _unscored(row, failures.get((run_id, str(row["task"])), "")),
        }


def _short(run_id: str, name: str) -> str:
    """The digest of a run's conditions, after the sweep's name where the id has that."""
    return run_id.removesuffix(name) + name.rsplit("-", 1)[-1]


def _breaches(results: Results) -> dict[str, str]:
    """By run: what broke a rule of the whole run."""
    found = (
        results.findings.filter(
            (pl.col("severity") == "breach") & pl.col("submission_id").is_null()
        )
        .group_by("run_id")
        .agg(pl.first("summary"))
    )
    return dict(found.iter_rows())


def _failures(results: Results) -> dict[tuple[str, str], str]:
    """By run and task: why its last submission without a score has none."""
    failed = results.submissions.filter(pl.col("failure") != "")
    found = failed.group_by("run_id", "task").agg(pl.last("failure"))
    return {(run_id, task): failure for run_id, task, failure in found.iter_rows()}


def _unscored(row: Row, failure: str) -> str:
    """Why a run that is over and counts has no valid score; empty for others."""
    if not row["counts"] or row["best_score"] is not None:
        return ""
    num = int(str(row["num_submissions"]))
    if not num:
        return "nothing was submitted"
    last = f"; the last failure: {failure}" if failure else ""
    return f"{plural(num, 'submission')}, none with a valid score{last}"


def _apart(rows: Sequence[Row]) -> Iterable[tuple[str, tuple[Row, ...]]]:
    yield "Invalid: a rule was broken", tuple(row for row in rows if row["is_invalid"])
    infra = tuple(row for row in rows if row["is_infrastructure"])
    yield "Ended by infrastructure, to be run again", infra
    yield "Not over", tuple(row for row in rows if not row["is_final"] and row["end"] is None)
    failed = (row for row in rows if row["counts"] and row["best_score"] is None)
    yield "Over, and without a valid score", tuple(failed)


def _facts(results: Results, comparison: Comparison) -> Iterable[tuple[str, str]]:
    runs = results.runs.unique("run_id", keep="first", maintain_order=True)
    yield "Runs", count(len(runs))
    yield "Runs that count", count(runs["counts"].sum())
    yield "Invalid", count(runs["is_invalid"].sum())
    yield "Suspect", count((runs["mode_verdict"] == "suspect").sum())
    yield "Infrastructure", count(runs["is_infrastructure"].sum())
    yield "Not over", count((~runs["is_final"]).sum())
    yield "Stacks", count(comparison.runs["stack"].n_unique())
    yield "Tasks", count(results.runs["task"].n_unique())
    yield "Seeds", count(runs["seed"].n_unique())
    yield "Submissions", count(results.runs["num_submissions"].sum())
    yield "Driver calls", count(runs["driver_calls"].sum())
    for name, column, words in (
        ("Tokens in", "input_tokens", count),
        ("Tokens out", "output_tokens", count),
        ("Cost, all attempts", "total_cost_usd", usd),
    ):
        if (total := _sum(runs, column)) is not None:
            yield name, words(total)


def _sum(runs: pl.DataFrame, column: str) -> float | None:
    known = runs[column].drop_nulls()
    return float(known.sum()) if len(known) else None


def _headlines(comparison: Comparison) -> Iterable[str]:
    """The best stack of each model and mode; which driver and scaffold make the widest spread."""
    for model, mode in comparison.groups:
        cells = comparison.cells.filter(
            (pl.col("model") == model) & (pl.col("mode") == mode) & pl.col("gain").is_not_null()
        )
        if cells.is_empty():
            continue
        best = cells.sort("gain", "stack", descending=[True, False]).row(0, named=True)
        noise = ", within the evaluation's noise" if best["within_noise"] else ""
        yield (
            f"{model}, mode {mode}: the largest mean gain is {signed(best['gain'])} points, of "
            f"{best['stack']} on {best['task']}, from {number(best['baseline'])} to "
            f"{number(best['score'])} (n={best['num_scored']}){noise}.{_doubt(comparison, best)}"
        )


def _doubt(comparison: Comparison, cell: Row) -> str:
    """How many of a cell's scored runs the audit suspects, in a sentence."""
    keys = ("model", "mode", "agent", "driver", "task")
    num = comparison.runs.filter(
        *(pl.col(key) == cell[key] for key in keys),
        pl.col("standing") == "scored",
        pl.col("mode_verdict") == "suspect",
    ).height
    if not num:
        return ""
    which = (
        "the run kept to its" if cell["num_scored"] == 1 else f"{num} of these runs kept to their"
    )
    return f" The audit doubts that {which} mode (suspect)."


def _parts(tables: Sequence[Table]) -> Iterable[Part]:
    left = list(tables)
    for anchor, title, beginnings, num_open in _PARTS:
        mine = tuple(table for table in left if table.name.startswith(beginnings))
        left = [table for table in left if table not in mine]
        if mine:
            yield Part(anchor=anchor, title=title, tables=mine, num_open=num_open)
    if left:
        yield Part(anchor="more", title="More", tables=tuple(left), num_open=1)


def by_run(results: Results) -> Mapping[str, list[Row]]:
    """The rows of table ``runs`` of each run."""
    found: dict[str, list[Row]] = {}
    for row in results.runs.iter_rows(named=True):
        found.setdefault(str(row["run_id"]), []).append(row)
    return found
