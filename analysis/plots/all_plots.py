"""Which plots a comparison has, in the order in which people ask for them."""

import polars as pl

from analysis.comparisons.compare import Comparison
from analysis.comparisons.words import of_group, task_sort
from analysis.plots import budget, factors, stacks
from analysis.plots.style import Palette, Plot


def stack_palette(comparison: Comparison) -> Palette:
    """Colours of stacks: those with the highest mean gains have their own, listed by name."""
    means = comparison.cells.group_by("stack").agg(pl.mean("gain"))
    ranked = means.sort("gain", "stack", descending=[True, False], nulls_last=True)["stack"]
    first, rest = ranked[:7].sort().to_list(), ranked[7:].sort().to_list()
    return Palette([*first, *rest])


def all_plots(comparison: Comparison) -> list[Plot]:
    """Every plot that has something to show."""
    palette = stack_palette(comparison)
    plots: list[Plot | None] = []
    for model, mode in comparison.groups:
        plots += [
            stacks.gains_heatmap(comparison, model, mode),
            budget.budget_curves(comparison, palette, model, mode),
            factors.slopes(comparison, model, mode, "driver"),
            factors.slopes(comparison, model, mode, "agent"),
            stacks.static_against_interactive(comparison, palette, model, mode),
            stacks.score_against_cost(comparison, palette, model, mode),
            stacks.usage(comparison, palette, model, mode),
        ]
    plots += [
        factors.mode_spread(comparison, model)
        for model in comparison.modes["model"].unique().sort()
    ]
    for model, mode in comparison.groups:
        tasks = of_group(comparison.cells, model, mode)["task"].unique().to_list()
        for task in task_sort(tasks):
            plots += [
                stacks.dots(comparison, palette, model, mode, task),
                budget.trajectories(comparison, palette, model, mode, task),
            ]
    return [plot for plot in plots if plot is not None]
