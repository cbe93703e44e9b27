"""Plots over the budget: best so far of one task, and mean gain over tasks with cuts at hours."""

import polars as pl
from matplotlib.figure import Figure

from analysis.comparisons.budget import HOURS, curves_by_stack
from analysis.comparisons.compare import Comparison
from analysis.comparisons.words import of_group, slug, task_title
from analysis.plots.style import Palette, Plot, Theme, legend_height, title
from analysis.plots.words import points
from rl_bench.counts import plural

SHORT_H = 1.0
"""Budgets below it are drawn in minutes."""


def trajectories(
    comparison: Comparison, palette: Palette, model: str, mode: str, task: str
) -> Plot | None:
    """Best score so far on a task over the share of the budget, by stack; None without runs."""
    curves = of_group(comparison.curves, model, mode).filter(
        (pl.col("task") == task) & pl.col("kept_score").is_not_null()
    )
    if curves.is_empty():
        return None
    stacks = curves["stack"].unique().sort().to_list()
    by_stack = {
        stack: curves.filter(pl.col("stack") == stack).sort("share").to_dict(as_series=True)
        for stack in stacks
    }
    base = of_group(comparison.cells, model, mode).filter(pl.col("task") == task)["baseline"].mean()
    num_runs = sum(int(series["num_runs"][0]) for series in by_stack.values())

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        if isinstance(base, float):
            axes.axhline(base, color=theme.ink, linewidth=1.0, linestyle=(0, (2, 2)))
            axes.annotate(
                "base model", (1.0, base), xycoords=("axes fraction", "data"),
                ha="right", va="bottom", fontsize=9,
            )  # fmt: skip
        for stack, series in by_stack.items():
            shares = (series["share"] * 100).to_numpy()
            color = palette.color(stack, theme)
            if palette.is_named(stack) and series["num_runs"][0] > 1:
                middle = series["kept_score"] - series["kept_gain"]
                axes.fill_between(
                    shares,
                    (middle + series["low"]).to_numpy(),
                    (middle + series["high"]).to_numpy(),
                    step="post",
                    color=color,
                    alpha=0.15,
                    linewidth=0,
                )
            axes.plot(
                shares,
                series["kept_score"].to_numpy(),
                drawstyle="steps-post",
                color=color,
                linestyle=palette.dash(stack),
                marker=palette.marker(stack),
                markevery=8,
                linewidth=1.8 if palette.is_named(stack) else 0.7,
            )
        axes.set_xlim(0, 100)
        axes.set_xlabel("Budget used (percent)")
        axes.set_ylabel("Best score so far (percent)")
        below = "mean over runs; band: middle half"
        title(figure, f"{task_title(task)}: {model}, {mode}", below)
        palette.legend(figure, theme, stacks)

    ends = {stack: float(series["kept_score"][-1]) for stack, series in by_stack.items()}
    best = max(ends, key=lambda stack: (ends[stack], stack))
    return Plot(
        name=slug("trajectories", model, mode, task),
        title=f"Best so far on {task_title(task)}: {model}, mode {mode}",
        alt=(
            f"Best score so far on {task_title(task)} over the budget of "
            f"{plural(len(stacks), 'stack')} ({plural(num_runs, 'run')}), {model}, mode "
            f"{mode}. {best} ends highest at {ends[best]:.1f} percent"
            + (f"; the base model has {base:.1f}." if isinstance(base, float) else ".")
        ),
        height_in=3.1 + legend_height(len(stacks)),
        draw=draw,
    )


def budget_curves(comparison: Comparison, palette: Palette, model: str, mode: str) -> Plot | None:
    """Mean gain over tasks by hours of budget, with the cuts marked; None without a gain."""
    found = curves_by_stack(of_group(comparison.curves, model, mode))
    if found.is_empty():
        return None
    stacks = found["stack"].unique().sort().to_list()
    by_stack = {
        stack: found.filter(pl.col("stack") == stack).sort("share").to_dict(as_series=True)
        for stack in stacks
    }
    longest = max(float(series["hours"][-1]) for series in by_stack.values())
    unit, parts = ("hours", 1) if longest >= SHORT_H else ("minutes", 60)
    cuts = [hour for hour in HOURS if hour <= longest]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        for hour in cuts:
            axes.axvline(hour * parts, color=theme.faint, linewidth=1.2)
        for stack, series in by_stack.items():
            axes.plot(
                series["hours"].to_numpy() * parts,
                series["kept_gain"].to_numpy(),
                drawstyle="steps-post",
                color=palette.color(stack, theme),
                linestyle=palette.dash(stack),
                marker=palette.marker(stack),
                markevery=8,
                linewidth=1.8 if palette.is_named(stack) else 0.7,
            )
        if cuts:
            places = [hour * parts for hour in cuts]
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.grid(visible=False, axis="x")
        axes.set_xlim(0, longest * parts)
        axes.set_xlabel(f"Budget used ({unit})")
        axes.set_ylabel("Mean gain over tasks (points)")
        title(
            figure,
            f"Score against budget: {model}, {mode}",
            "best so far" + "; lines: cuts" * bool(cuts),
        )
        palette.legend(figure, theme, stacks)

    ends = {stack: float(series["kept_gain"][-1]) for stack, series in by_stack.items()}
    halves = {
        stack: float(series["kept_gain"][len(series["kept_gain"]) // 2])
        for stack, series in by_stack.items()
    }
    best = max(ends, key=lambda stack: (ends[stack], stack))
    return Plot(
        name=slug("budget", model, mode),
        title=f"Score against budget: {model}, mode {mode}",
        alt=(
            f"Mean gain over tasks against {unit} of budget of {plural(len(stacks), 'stack')}, "
            f"{model}, mode {mode}. {best} ends highest at {points(ends[best])}, having "
            f"{points(halves[best])} at half the budget."
        ),
        height_in=3.1 + legend_height(len(stacks)),
        draw=draw,
    )
