"""Plots of stacks: gains by task, intervals, static against interactive, cost, driver use.

What would be a single point is no plot: tables and the overview's headlines have its figure.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from analysis.comparisons.compare import Comparison
from analysis.comparisons.words import of_group, slug, task_sort, task_title
from analysis.plots.style import Palette, Plot, Theme, legend_height, title
from analysis.plots.words import clipped, points, short_number, signed
from analysis.tables import DASH, NOISE
from rl_bench.counts import plural

ROW_IN = 0.3
MAX_DOTS = 200
"""Runs of a cell that are drawn one by one; of more only the intervals are."""


def gains_heatmap(comparison: Comparison, model: str, mode: str) -> Plot | None:
    """Stacks x tasks, coloured by gain in points; None without two gains."""
    cells = of_group(comparison.cells, model, mode)
    if cells["gain"].count() < 2:
        return None
    tasks = task_sort(cells["task"].unique().to_list())
    stacks = _by_gain(cells)
    values, noise = _grid(cells, stacks, tasks)

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        largest = max(float(np.nanmax(np.abs(values))), 1.0)
        colors = [theme.low, theme.middle, theme.high]
        scale = LinearSegmentedColormap.from_list("gain", colors, bad=theme.ground)
        norm = TwoSlopeNorm(0.0, -largest, largest)
        axes.imshow(values, cmap=scale, norm=norm, aspect="auto")
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            text = DASH if np.isnan(value) else signed(float(value))
            text += f" {NOISE}" if noise[row, column] else ""
            color = theme.ink if np.isnan(value) else _ink_on(scale(norm(value)))
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=9)
        axes.set_xticks(range(len(tasks)), [task_title(task) for task in tasks])
        axes.tick_params(axis="x", labelrotation=35)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
        axes.set_yticks(range(len(stacks)), [clipped(stack) for stack in stacks])
        axes.grid(visible=False)
        title(figure, "Gain by stack and task (points)", f"{model}, {mode}; {NOISE} within noise")

    top, low = _extreme(cells, "max"), _extreme(cells, "min")
    missing = int(np.isnan(values).sum())
    alt = (
        f"Heat map of mean gains in points of {plural(len(stacks), 'stack')} on "
        f"{plural(len(tasks), 'task')}, {model}, mode {mode}. Highest: {top}; lowest: {low}."
        + (f" {plural(missing, 'cell')} without a gain." if missing else "")
    )
    return Plot(
        name=slug("gains", model, mode),
        title=f"Gains by stack and task: {model}, mode {mode}",
        alt=alt,
        height_in=1.3 + ROW_IN * len(stacks),
        draw=draw,
        is_recolorable=False,
    )


def dots(comparison: Comparison, palette: Palette, model: str, mode: str, task: str) -> Plot | None:
    """A task's gains by stack: each run, the interval over items and the one over seeds.

    None unless there are two gains, or one with an interval.
    """
    cells = of_group(comparison.cells, model, mode).filter(
        (pl.col("task") == task) & pl.col("gain").is_not_null()
    )
    if cells["num_gains"].sum() < 2 and not cells["gain_item_low"].count():
        return None
    cells = cells.sort("gain", "stack")
    runs = of_group(comparison.runs, model, mode).filter(
        (pl.col("task") == task) & (pl.col("standing") == "scored")
    )
    rows = cells.to_dicts()
    gains = {
        stack: found["improvement"].drop_nulls().to_numpy()
        for (stack,), found in runs.group_by("stack", maintain_order=True)
    }
    floor = cells["noise_floor"].max()

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        axes.axvline(0.0, color=theme.ink, linewidth=1.0)
        if isinstance(floor, float):
            axes.axvspan(-floor, floor, color=theme.faint, alpha=0.6, linewidth=0)
        for place, row in enumerate(rows):
            color = palette.color(row["stack"], theme)
            of_run = gains.get(row["stack"], np.empty(0))
            if len(of_run) <= MAX_DOTS:
                axes.plot(of_run, np.full(len(of_run), place - 0.22), "|", color=color, alpha=0.8)
            if row["gain_item_low"] is not None:
                ends = [row["gain_item_low"], row["gain_item_high"]]
                axes.plot(ends, [place, place], color=color, linewidth=5.5, alpha=0.45)
            if row["gain_seed_low"] is not None:
                ends = [row["gain_seed_low"], row["gain_seed_high"]]
                axes.plot(ends, [place, place], color=color, linewidth=1.2, marker="|")
            axes.plot(row["gain"], place, palette.marker(row["stack"]), color=color, markersize=6)
            if row["published_gain"] is not None:
                axes.plot(row["published_gain"], place, "D", mfc="none", mec=theme.ink, ms=7)
        labels = [f"{clipped(row['stack'])}\nn={row['num_gains']}" for row in rows]
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel("Gain over the base model (points)")
        bars = "bar: 95% over items; line: 95% over seeds; ticks: runs"
        told = any(row["published_gain"] is not None for row in rows)
        title(figure, f"{task_title(task)}: {model}, {mode}", bars, "◇ paper" if told else "")

    best = rows[-1]
    return Plot(
        name=slug("dots", model, mode, task),
        title=f"Gains on {task_title(task)} by stack: {model}, mode {mode}",
        alt=(
            f"Gains on {task_title(task)} of {plural(len(rows), 'stack')} with intervals, "
            f"{model}, mode {mode}: from {points(rows[0]['gain'])} ({rows[0]['stack']}) to "
            f"{points(best['gain'])} ({best['stack']})."
        ),
        height_in=1.1 + 0.42 * len(rows),
        draw=draw,
    )


def static_against_interactive(
    comparison: Comparison, palette: Palette, model: str, mode: str
) -> Plot | None:
    """Each stack's mean gain on static against its mean one on interactive tasks; of two stacks."""
    found = of_group(comparison.static_interactive, model, mode)
    if len(found) < 2:
        return None
    rows = found.to_dicts()
    stacks = found["stack"].to_list()
    of_all = of_group(comparison.correlations, model, mode).to_dicts()
    rho = of_all[0]["rho"] if of_all else None
    num = of_all[0]["num_stacks"] if of_all else 0
    words = "too few stacks for a correlation" if rho is None else f"rho = {rho:.2f}, n = {num}"

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        axes.axhline(0.0, color=theme.ink, linewidth=0.8)
        axes.axvline(0.0, color=theme.ink, linewidth=0.8)
        for row in rows:
            axes.plot(
                row["static_gain"],
                row["interactive_gain"],
                palette.marker(row["stack"]),
                color=palette.color(row["stack"], theme),
                fillstyle="full" if row["is_complete"] else "none",
                markersize=7,
            )
        axes.set_xlabel("Mean gain on static tasks, L1 and L2 (points)")
        axes.set_ylabel("Mean gain on interactive\ntasks, L3 (points)")
        title(figure, f"Static and interactive: {model}, {mode}", f"Spearman: {words}")
        palette.legend(figure, theme, stacks, lines=False)

    return Plot(
        name=slug("static-interactive", model, mode),
        title=f"Static against interactive gains: {model}, mode {mode}",
        alt=(
            f"Mean gains of {plural(len(rows), 'stack')} on static against interactive tasks, "
            f"{model}, mode {mode}; Spearman's correlation: {words}."
        ),
        height_in=3.2 + legend_height(len(stacks)),
        draw=draw,
    )


def score_against_cost(
    comparison: Comparison, palette: Palette, model: str, mode: str
) -> Plot | None:
    """Mean gain against mean cost a run: a point a stack and task; None without two."""
    found = of_group(comparison.costs, model, mode).filter(
        (pl.col("num_priced") > 0) & (pl.col("cost_usd") > 0)
    )
    if len(found) < 2:
        return None
    rows = found.sort("cost_usd", "stack", "task").to_dicts()
    stacks = found["stack"].unique().sort().to_list()

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        axes.axhline(0.0, color=theme.ink, linewidth=0.8)
        for stack in stacks:
            mine = [row for row in rows if row["stack"] == stack]
            axes.plot(
                [row["cost_usd"] for row in mine],
                [row["gain"] for row in mine],
                palette.marker(stack),
                color=palette.color(stack, theme),
                linestyle="none",
                alpha=0.85,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"${value:,.3g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("Driver cost a run (USD, log scale)")
        axes.set_ylabel("Gain (points)")
        title(figure, f"Gain against cost: {model}, {mode}", "a point a stack and task")
        palette.legend(figure, theme, stacks, lines=False)

    priced = [row for row in rows if row["usd_per_point"] is not None]
    cheapest = min(priced, key=lambda row: float(row["usd_per_point"])) if priced else None
    best = (
        f"cheapest point: ${cheapest['usd_per_point']:.2f} by {cheapest['stack']} on "
        f"{task_title(cheapest['task'])}"
        if cheapest
        else "no gain outside the noise"
    )
    return Plot(
        name=slug("cost", model, mode),
        title=f"Gain against cost: {model}, mode {mode}",
        alt=(
            f"Gain against the driver's cost a run, {plural(len(rows), 'cell')} (stack and "
            f"task), from ${rows[0]['cost_usd']:.2f} to ${rows[-1]['cost_usd']:.2f}; {best}."
        ),
        height_in=3.1 + legend_height(len(stacks)),
        draw=draw,
    )


def usage(comparison: Comparison, palette: Palette, model: str, mode: str) -> Plot | None:
    """The driver's tokens and cost in each hour of the run's clock, by stack; of two points."""
    found = of_group(comparison.usage, model, mode)
    if len(found) < 2:
        return None
    stacks = found["stack"].unique().sort().to_list()
    by_stack = {
        stack: found.filter(pl.col("stack") == stack).sort("hour").to_dict(as_series=True)
        for stack in stacks
    }
    has_cost = found["cost_usd"].count() > 0

    def draw(figure: Figure, theme: Theme) -> None:
        panels = figure.subplots(2 if has_cost else 1, 1, sharex=True, squeeze=False)[:, 0]
        for stack, series in by_stack.items():
            hours = series["hour"].to_numpy() + 0.5
            tokens = (series["input_tokens"] + series["output_tokens"]).to_numpy()
            lines = [tokens, series["cost_usd"].cast(pl.Float64).to_numpy()]
            for axes, values in zip(panels, lines, strict=False):
                axes.plot(
                    hours,
                    values,
                    color=palette.color(stack, theme),
                    linestyle=palette.dash(stack),
                    marker=palette.marker(stack),
                    markersize=3.5,
                )
        panels[0].yaxis.set_major_formatter(lambda value, _: short_number(value))
        panels[0].set_ylabel("Tokens a run and hour")
        title(figure, f"Use of the driver by hour: {model}, {mode}")
        if has_cost:
            panels[1].set_ylabel("Cost a run\nand hour (USD)")
        panels[-1].set_xlabel("Budget used (hours)")
        for axes in panels:
            axes.set_ylim(bottom=0)
        palette.legend(figure, theme, stacks)

    tokens = found.select(
        total=(pl.col("input_tokens") + pl.col("output_tokens")) * pl.col("num_runs")
    )["total"]
    num_hours = 1 + max(map(int, found["hour"]), default=0)
    return Plot(
        name=slug("usage", model, mode),
        title=f"Tokens and cost by hour: {model}, mode {mode}",
        alt=(
            f"The driver's tokens{' and cost' if has_cost else ''} by hour of "
            f"{plural(len(stacks), 'stack')}, {model}, mode {mode}; "
            f"{short_number(float(tokens.sum()))} tokens in all over "
            f"{plural(num_hours, 'hour')}."
        ),
        height_in=(4.4 if has_cost else 2.8) + legend_height(len(stacks)),
        draw=draw,
    )


def _by_gain(cells: pl.DataFrame) -> list[str]:
    """Stacks, the highest mean gain first."""
    means = cells.group_by("stack").agg(pl.mean("gain"))
    return means.sort("gain", "stack", descending=[True, False], nulls_last=True)["stack"].to_list()


def _grid(
    cells: pl.DataFrame, stacks: Sequence[str], tasks: Sequence[str]
) -> tuple[
    np.ndarray[tuple[int, int], np.dtype[np.float64]],
    np.ndarray[tuple[int, int], np.dtype[np.bool_]],
]:
    values = np.full((len(stacks), len(tasks)), np.nan)
    noise = np.zeros(values.shape, dtype=np.bool_)
    rows, columns = {s: i for i, s in enumerate(stacks)}, {t: i for i, t in enumerate(tasks)}
    for stack, task, gain, within in cells.select(
        "stack", "task", "gain", "within_noise"
    ).iter_rows():
        if gain is not None:
            values[rows[stack], columns[task]] = gain
            noise[rows[stack], columns[task]] = bool(within)
    return values, noise


def _extreme(cells: pl.DataFrame, end: str) -> str:
    row = (
        cells.drop_nulls("gain")
        .sort("gain", "stack", "task")
        .row(-1 if end == "max" else 0, named=True)
    )
    return f"{row['stack']} on {task_title(row['task'])}, {points(row['gain'])}"


def _ink_on(color: tuple[float, float, float, float]) -> str:
    """Black or white, whichever stands out on a colour."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3]
    )
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "#ffffff"
