"""Tables of what one factor does: mode, driver, scaffold, level, budget, seeds, cost."""

from dataclasses import replace

import polars as pl

from analysis.comparisons.budget import curves_by_stack
from analysis.comparisons.compare import Comparison
from analysis.comparisons.factors import Factor
from analysis.comparisons.words import (
    CONTRAST_NOTE,
    N_NOTE,
    contrast_columns,
    count,
    of_group,
    paper,
    slug,
    titled,
    where,
)
from analysis.tables import Cell, Column, Table, from_frame

_COST_NOTES = (
    (
        "num_priced",
        "The driver's calls at the gateway, of scored runs whose cost is known; where it is of "
        "none, tokens, hours and gain are of all scored runs. A run on several tasks: in equal "
        "parts.",
    ),
    ("why", "Why none: a point has no price."),
    ("is_at_least", "At least: some calls told no usage."),
    (
        "wasted_usd",
        "Without a score: spent on runs and attempts that gave none; a dash, where it is not "
        "known.",
    ),
)
"""What is said under the costs, by the column that it is about."""


def modes_table(comparison: Comparison, model: str) -> Table:
    """Modes by task (the study's Table 16) of one base model."""
    return from_frame(
        titled(comparison.modes.filter(pl.col("model") == model)),
        [
            *where("task", "mode"),
            count("num_stacks", "Stacks"),
            count("num_scored", "n"),
            Column(key="score", header="Score", unit="percent", kind="number", digits=2),
            Column(key="gain", header="Gain", unit="points", kind="signed", digits=2),
            Column(key="best", header="Best run", unit="percent", kind="number", digits=2),
            paper("published_best", "Best, paper"),
            count("num_shared", "Shared stacks"),
            Column(key="shared_score", header="Score, shared stacks", kind="number", digits=2),
        ],
        name=slug("modes", model),
        title=f"Modes by task: {model}",
        footnotes=[
            N_NOTE,
            "Shared stacks have every single-task mode of the task: only their scores compare "
            "modes on equal terms.",
        ],
        spare=("published_best",),
    )


def mode_spread_table(comparison: Comparison, model: str) -> Table:
    """How far the modes lie apart, by task."""
    return from_frame(
        titled(comparison.mode_spread.filter(pl.col("model") == model)),
        [
            *where("task", "lowest", "highest"),
            Column(key="low_score", header="Lowest", unit="percent", kind="number", digits=2),
            Column(key="high_score", header="Highest", unit="percent", kind="number", digits=2),
            Column(key="spread", header="Spread", unit="points", kind="number", digits=2),
            count("num_shared", "Shared stacks"),
        ],
        name=slug("mode-spread", model),
        title=f"Spread between modes by task: {model}",
        footnotes=["Over the stacks that have every single-task mode of the task."],
    )


def sensitivity_table(comparison: Comparison, vary: Factor) -> Table:
    """Spread of gains when the driver varies within a scaffold, or the reverse, by task."""
    is_driver = vary == "driver"
    name, held, varied = _words(vary)
    return from_frame(
        titled(comparison.drivers if is_driver else comparison.scaffolds),
        [
            *where("model", "mode"),
            Column(key="held", header=held),
            *where("task"),
            count("num_options", f"{varied}s"),
            Column(key="lowest", header="Lowest"),
            Column(key="low_gain", header="Its gain", unit="points", kind="signed", digits=2),
            Column(key="highest", header="Highest"),
            Column(key="high_gain", header="Its gain", unit="points", kind="signed", digits=2),
            Column(key="spread", header="Spread", unit="points", kind="number", digits=2),
            count("num_scored", "n, least"),
        ],
        name=f"{name}-spread",
        title=f"Spread of gains by {varied.lower()} within one {held.lower()}",
        footnotes=["n, least: scored runs of the option that has the fewest."],
    )


def sensitivity_pairs_table(comparison: Comparison, vary: Factor) -> Table:
    """Every two drivers within a scaffold, or the reverse, paired on common tasks."""
    name, held, varied = _words(vary)
    return from_frame(
        comparison.driver_pairs if vary == "driver" else comparison.scaffold_pairs,
        [
            *where("model", "mode"),
            Column(key="held", header=held),
            *contrast_columns("num_tasks", "Tasks"),
        ],
        name=f"{name}-pairs",
        title=f"{varied}s compared within one {held.lower()}, on the same tasks",
        footnotes=[CONTRAST_NOTE],
    )


def levels_table(comparison: Comparison) -> Table:
    """Gains by stack and level."""
    return from_frame(
        comparison.levels,
        [
            *where("model", "mode", "stack", "level"),
            count("num_tasks", "Tasks"),
            count("num_scored", "n"),
            Column(key="gain", header="Gain", unit="points", kind="signed", digits=2),
            Column(key="headroom_share", header="Share of headroom", unit="%", kind="number"),
        ],
        name="levels",
        title="Gains by level of the task",
        footnotes=["Means over tasks. Headroom: what the base model leaves to 100."],
    )


def level_contrasts_table(comparison: Comparison) -> Table:
    """Levels compared, paired on stacks."""
    return from_frame(
        comparison.level_contrasts,
        [*where("model", "mode"), *contrast_columns("num_stacks", "Stacks")],
        name="level-contrasts",
        title="Levels compared, on the same stacks",
        footnotes=[CONTRAST_NOTE],
    )


def correlations_table(comparison: Comparison) -> Table:
    """Static against interactive gains over stacks."""
    return from_frame(
        comparison.correlations,
        [
            *where("model", "mode"),
            count("num_stacks", "Stacks"),
            count("num_incomplete", "Left out"),
            Column(key="rho", header="Spearman's rho", kind="number", digits=2),
            Column(key="p_value", header="p", kind="p_value"),
        ],
        name="static-interactive",
        title="Do gains on static tasks (L1, L2) go with gains on interactive ones (L3)?",
        footnotes=["Left out: stacks that lack a scored task which another stack has."],
    )


def multi_single_table(comparison: Comparison) -> Table:
    """One run on all tasks against a run a task."""
    return from_frame(
        titled(comparison.multi_single),
        [
            *where("model", "stack", "task"),
            Column(key="multi_score", header="Multi", unit="percent", kind="number", digits=2),
            count("num_multi", "n multi"),
            Column(key="single_score", header="Single", unit="percent", kind="number", digits=2),
            count("num_single", "n single"),
            Column(key="difference", header="Difference", unit="points", kind="signed", digits=2),
            paper("published_difference", "Difference, paper", signed=True),
        ],
        name="multi-single",
        title="One run on all tasks (multi) against one run a task (free)",
        spare=("published_difference",),
    )


def truncations_table(comparison: Comparison, model: str, mode: str) -> Table:
    """Gains had the runs been ended at given hours, by stack, means over tasks."""
    frame = curves_by_stack(of_group(comparison.truncations, model, mode), "hours")
    hours = frame["hours"].unique().sort().to_list()
    found = {(row["stack"], row["hours"]): row for row in frame.iter_rows(named=True)}
    rows = []
    for stack in frame["stack"].unique().sort():
        row = [Cell(value=stack)]
        for hour in hours:
            cell = found.get((stack, hour))
            row.append(
                Cell(detail="beyond the budget")
                if cell is None
                else Cell(
                    value=cell["kept_gain"],
                    detail=f"{cell['num_scored']} of {cell['num_runs']} had a score",
                )
            )
        rows.append(tuple(row))
    columns = [Column(key="stack", header="Stack")]
    columns += [
        Column(key=f"h{hour:g}", header=f"{hour:g} h", unit="points", kind="signed", digits=2)
        for hour in hours
    ]
    return Table(
        name=slug("truncations", model, mode),
        title=f"Gain had runs been ended earlier: {model}, mode {mode}",
        columns=tuple(columns),
        rows=tuple(rows),
        footnotes=(
            "Best so far of runs that end with a score, mean over tasks; before a run's first "
            "score the base model stands in (gain 0).",
        ),
    )


def seeds_table(comparison: Comparison) -> Table:
    """pass@k and best-of-k."""
    return from_frame(
        titled(comparison.seeds),
        [
            *where("model", "mode", "task", "stack"),
            count("k", "k"),
            count("num_runs", "Runs"),
            count("num_scored", "Scored"),
            count("num_succeeded", "Gained"),
            Column(key="pass_at_k", header="pass@k", unit="percent", kind="number"),
            Column(key="best_score", header="Best of k", unit="percent", kind="number", digits=2),
            Column(key="best_gain", header="Its gain", unit="points", kind="signed", digits=2),
        ],
        name="seeds",
        title="What k runs bring: pass@k and best of k over seeds",
        footnotes=["Gained: by more than zero and the noise floor. Best of k: of scored runs."],
    )


def costs_table(comparison: Comparison) -> Table:
    """Cost per point gained."""
    minutes = (pl.col("hours_per_point") * 60).alias("minutes_per_point")
    table = from_frame(
        titled(comparison.costs).with_columns(minutes),
        [
            *where("model", "mode", "task", "stack"),
            count("num_priced", "n priced"),
            Column(key="cost_usd", header="Cost a run", unit="USD", kind="money", digits=2),
            Column(key="tokens", header="Tokens a run", kind="count"),
            Column(key="hours", header="Time a run", unit="h", kind="number", digits=2),
            Column(key="gain", header="Gain", unit="points", kind="signed", digits=2),
            Column(key="usd_per_point", header="A point", unit="USD", kind="money", digits=2),
            Column(key="minutes_per_point", header="A point", unit="min", kind="number", digits=2),
            Column(key="why", header="Why none"),
            Column(key="is_at_least", header="At least"),
            Column(key="wasted_usd", header="Without a score", unit="USD", kind="money", digits=2),
        ],
        name="costs",
        title="What a point of gain cost",
        spare=("cost_usd", "tokens", "usd_per_point", "why", "is_at_least", "wasted_usd"),
    )
    shown = {column.key for column in table.columns}
    return replace(table, footnotes=tuple(note for key, note in _COST_NOTES if key in shown))


def _words(vary: Factor) -> tuple[str, str, str]:
    return ("driver", "Scaffold", "Driver") if vary == "driver" else (
        "scaffold", "Driver", "Scaffold"
    )  # fmt: skip
