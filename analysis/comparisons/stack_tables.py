"""Tables of stacks: stacks x tasks beside the paper's, every cell, every pair, what became of runs.

Every table shows how many runs stand behind a figure. Best values are bold; a gain within the
evaluation's noise is marked ``~``. Runs without a score are counted beside, never averaged.
"""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from analysis import published
from analysis.comparisons.cells import STANDINGS
from analysis.comparisons.compare import Comparison
from analysis.comparisons.words import (
    BEST_NOTE,
    N_NOTE,
    NOISE_NOTE,
    count,
    of_group,
    slug,
    task_sort,
    task_title,
    titled,
    where,
)
from analysis.tables import NOISE, Cell, Column, Table, from_frame

Panel = Literal["score", "gain"]


def stack_table(comparison: Comparison, model: str, mode: str, panel: Panel) -> Table:
    """Stacks x tasks (the study's Table 2), one panel: scores in percent, or gains in points.

    The first row is the base model's. A task with published figures has them in a column beside.
    """
    cells = of_group(comparison.cells, model, mode)
    tasks = task_sort(cells["task"].unique().to_list())
    told = f"published_{panel}"
    bases = published.baselines(model)
    beside = {
        task
        for task in tasks
        if cells.filter(pl.col("task") == task)[told].count()
        or (panel == "score" and task in bases)
    }
    columns = [Column(key="stack", header="Stack")]
    kind: Literal["number", "signed"] = "number" if panel == "score" else "signed"
    for task in tasks:
        title = task_title(task)
        columns.append(Column(key=task, header=title, kind=kind, digits=2))
        if task in beside:
            key, header = f"{task}_paper", f"{title}, paper"
            columns.append(Column(key=key, header=header, kind=kind, digits=2, is_published=True))
    rows = [_base_row(cells, tasks, beside, bases)] if panel == "score" else []
    by_cell = {(row["stack"], row["task"]): row for row in cells.iter_rows(named=True)}
    best = {task: cells.filter(pl.col("task") == task)[panel].max() for task in tasks}
    for stack in cells["stack"].unique().sort():
        row = [Cell(value=stack)]
        for task in tasks:
            found = by_cell.get((stack, task))
            row.append(_stack_cell(found, panel, best[task]))
            if task in beside:
                row.append(Cell(value=None if found is None else found[told]))
        rows.append(tuple(row))
    unit = "percent" if panel == "score" else "points over the base model"
    notes = [N_NOTE, NOISE_NOTE, BEST_NOTE]
    if beside:
        notes.append(f"Paper: {published.source()}.")
    notes += _mixed_notes(cells)
    return Table(
        name=slug(f"{panel}s", model, mode),
        title=f"{panel.capitalize()}s by stack and task: {model}, mode {mode} ({unit})",
        columns=tuple(columns),
        rows=tuple(rows),
        footnotes=tuple(notes),
        num_head_rows=int(panel == "score"),
    )


def _base_row(
    cells: pl.DataFrame, tasks: Sequence[str], beside: set[str], bases: dict[str, float]
) -> tuple[Cell, ...]:
    row = [Cell(value="Base model")]
    for task in tasks:
        of_task = cells.filter((pl.col("task") == task) & pl.col("baseline").is_not_null())
        num = int(of_task["num_scored"].sum())
        weighted = of_task.select(pl.col("baseline").dot("num_scored")).item()
        row.append(
            Cell(value=weighted / num, detail=f"n={num}")
            if num
            else Cell(detail=_no_base(cells, task))
        )
        if task in beside:
            row.append(Cell(value=bases.get(task)))
    return tuple(row)


def _no_base(cells: pl.DataFrame, task: str) -> str:
    is_scored = cells.filter(pl.col("task") == task)["num_scored"].sum() > 0
    return "not graded" if is_scored else "no scored run"


def _stack_cell(found: dict[str, object] | None, panel: Panel, best: object) -> Cell:
    if found is None:
        return Cell(detail="not run")
    value = found[panel]
    if value is None:
        return Cell(detail=_counted(found) if not found["num_scored"] else "no baseline")
    assert isinstance(value, float)
    return Cell(
        value=value,
        is_best=value == best,
        mark=NOISE if found["within_noise"] else "",
        detail=_counted(found),
    )


def _counted(found: dict[str, object]) -> str:
    """``n=3``, and what became of the others: ``n=3 of 5: 1 invalid, 1 infrastructure``."""
    others = [f"{found[f'num_{name}']} {name}" for name in STANDINGS[1:] if found[f"num_{name}"]]
    scored = found["num_scored"]
    return f"n={scored} of {found['num_runs']}: {', '.join(others)}" if others else f"n={scored}"


def _mixed_notes(cells: pl.DataFrame) -> list[str]:
    return [
        f"{row['stack']} on {task_title(row['task'])} averages runs that differ in {row['mixed']}."
        for row in cells.filter(pl.col("mixed") != "").iter_rows(named=True)
    ]


def cells_table(comparison: Comparison) -> Table:
    """Every cell with both intervals: over items and over seeds."""
    frame = comparison.cells.with_columns(pl.col("seeds").list.len().alias("num_seeds"))
    return from_frame(
        titled(frame),
        [
            *where("model", "mode", "task", "stack"),
            count("num_runs", "Runs"),
            count("num_scored", "Scored"),
            count("num_seeds", "Seeds"),
            Column(key="score", header="Score", unit="percent", kind="number", digits=2),
            Column(key="item_low", header="Items 95% low", kind="number"),
            Column(key="item_high", header="Items 95% high", kind="number"),
            Column(key="seed_low", header="Seeds 95% low", kind="number"),
            Column(key="seed_high", header="Seeds 95% high", kind="number"),
            Column(key="gain", header="Gain", unit="points", kind="signed", digits=2),
            Column(key="gain_item_low", header="Gain, items 95% low", kind="signed"),
            Column(key="gain_item_high", header="Gain, items 95% high", kind="signed"),
            Column(key="gain_sd", header="Gain SD over seeds", unit="points", kind="number"),
            Column(key="noise_floor", header="Noise floor", unit="points", kind="number"),
            Column(key="p_gain_holm", header="p of no gain (Holm)", kind="p_value"),
            count("num_items", "Items"),
        ],
        name="cells",
        title="Every stack, mode and task, with intervals over items and over seeds",
        footnotes=[
            "Items: other questions, these checkpoints. Seeds: other runs of the stack, where "
            "there are two or more.",
            NOISE_NOTE,
            BEST_NOTE,
        ],
        noise="within_noise",
        spare=(
            *("item_low", "item_high", "seed_low", "seed_high", "gain_item_low", "gain_item_high"),
            *("gain_sd", "noise_floor", "p_gain_holm"),
        ),
    )


def pairs_table(comparison: Comparison, model: str, mode: str) -> Table:
    """Every two stacks on the same items."""
    return from_frame(
        titled(of_group(comparison.pairs, model, mode)),
        [
            *where("task"),
            Column(key="stack_a", header="A"),
            Column(key="stack_b", header="B"),
            Column(key="score_a", header="A", unit="percent", kind="number", digits=2),
            Column(key="score_b", header="B", unit="percent", kind="number", digits=2),
            Column(key="difference", header="B less A", unit="points", kind="signed", digits=2),
            Column(key="low", header="95% low", kind="signed"),
            Column(key="high", header="95% high", kind="signed"),
            count("num_items", "Items"),
            Column(key="p_holm", header="p over items (Holm)", kind="p_value"),
            count("num_seeds_a", "n A"),
            count("num_seeds_b", "n B"),
            Column(key="seed_p_value", header="p over seeds", kind="p_value"),
        ],
        name=slug("pairs", model, mode),
        title=f"Stacks compared on the same items: {model}, mode {mode}",
        footnotes=[
            "p over items: these checkpoints on other questions, corrected over this table. p over "
            "seeds: other runs of the stacks (Welch), needs two runs a side, not corrected.",
        ],
    )


def failures_table(comparison: Comparison) -> Table:
    """What became of the runs."""
    return from_frame(
        comparison.failures,
        [
            *where("model", "mode", "stack"),
            count("num_runs", "Runs"),
            *(count(f"num_{name}", name.capitalize()) for name in STANDINGS),
            Column(key="ends", header="Ends"),
            count("num_attempts", "Attempts"),
            count("num_submissions", "Submissions"),
            count("num_failed", "Failed gradings"),
            count("num_invalid_submissions", "Invalid submissions"),
            count("num_rejected", "Rejected requests"),
        ],
        name="failures",
        title="What became of the runs",
        footnotes=["Only scored runs are in means."],
    )
