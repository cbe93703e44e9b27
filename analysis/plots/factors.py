"""Plots of one factor: slopes between drivers or between scaffolds, and the modes' spread."""

import polars as pl
from matplotlib.figure import Figure

from analysis.comparisons.compare import Comparison
from analysis.comparisons.factors import MODE_ORDER, Factor
from analysis.comparisons.words import of_group, slug, task_sort, task_title
from analysis.plots.style import Palette, Plot, Theme, legend_height, title
from analysis.plots.words import clipped, points
from rl_bench.counts import plural


def slopes(comparison: Comparison, model: str, mode: str, vary: Factor) -> Plot | None:
    """Gains from option to option of one factor within each option of the other, a line a task.

    None unless some option of the held factor has two of the varied one.
    """
    held = "agent" if vary == "driver" else "driver"
    cells = of_group(comparison.cells, model, mode).filter(pl.col("gain").is_not_null())
    groups = {
        str(key[0]): frame
        for key, frame in cells.group_by(held, maintain_order=True)
        if frame[vary].n_unique() > 1
    }
    if not groups:
        return None
    tasks = task_sort(pl.concat(groups.values())["task"].unique().to_list())
    palette = Palette([task_title(task) for task in tasks])
    places = _places(groups, vary)
    found = of_group(comparison.drivers if vary == "driver" else comparison.scaffolds, model, mode)

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        axes.axhline(0.0, color=theme.ink, linewidth=0.8)
        for name, frame in groups.items():
            for task in tasks:
                of_task = frame.filter(pl.col("task") == task)
                line = sorted(
                    (places[name, option], gain)
                    for option, gain in of_task.select(vary, "gain").iter_rows()
                )
                label = task_title(task)
                axes.plot(
                    [place for place, _ in line],
                    [gain for _, gain in line],
                    color=palette.color(label, theme),
                    marker=palette.marker(label),
                    linestyle=palette.dash(label),
                )
        for name in groups:
            middle = [place for (group, _), place in places.items() if group == name]
            axes.text(
                sum(middle) / len(middle), 1.01, clipped(name, 18), ha="center", va="bottom",
                transform=axes.get_xaxis_transform(), fontsize=9, fontweight="bold",
            )  # fmt: skip
        axes.set_xticks(
            list(places.values()),
            [clipped(option, 18) for _, option in places],
            rotation=35,
            ha="right",
            rotation_mode="anchor",
        )
        axes.set_ylabel("Gain (points)")
        what = "Drivers within a scaffold" if vary == "driver" else "Scaffolds within a driver"
        title(figure, f"{what}: {model}, {mode}")
        palette.legend(figure, theme, [task_title(task) for task in tasks])

    widest = found.sort("spread", "held", "task").row(-1, named=True)
    what = "driver within a scaffold" if vary == "driver" else "scaffold within a driver"
    return Plot(
        name=slug("driver-slopes" if vary == "driver" else "scaffold-slopes", model, mode),
        title=f"Gains by {what}: {model}, mode {mode}",
        alt=(
            f"Gains by {what}, {plural(len(tasks), 'task')}, {model}, mode {mode}. Widest "
            f"spread: {widest['spread']:.1f} points within {widest['held']} on "
            f"{task_title(widest['task'])}, from {widest['lowest']} "
            f"({points(widest['low_gain'])}) to {widest['highest']} "
            f"({points(widest['high_gain'])})."
        ),
        height_in=3.6 + legend_height(len(tasks)),
        draw=draw,
    )


def mode_spread(comparison: Comparison, model: str) -> Plot | None:
    """Scores by mode and task over the stacks that have all modes; None with one mode."""
    spread = comparison.mode_spread.filter(pl.col("model") == model)
    if spread.is_empty():
        return None
    modes = comparison.modes.filter(
        (pl.col("model") == model) & pl.col("shared_score").is_not_null()
    )
    tasks = task_sort(spread["task"].to_list())[::-1]
    names = [mode for mode in MODE_ORDER if mode in set(modes["mode"])]
    palette = Palette(names)
    scores = {
        (task, mode): score
        for task, mode, score in modes.select("task", "mode", "shared_score").iter_rows()
    }

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        for place, task in enumerate(tasks):
            of_task = [scores[task, mode] for mode in names if (task, mode) in scores]
            axes.plot(
                [min(of_task), max(of_task)], [place, place], color=theme.rest, linewidth=3,
                alpha=0.6, zorder=1,
            )  # fmt: skip
            for mode in names:
                if (task, mode) in scores:
                    axes.plot(
                        scores[task, mode],
                        place,
                        palette.marker(mode),
                        color=palette.color(mode, theme),
                        markersize=7,
                    )
        axes.set_yticks(range(len(tasks)), [task_title(task) for task in tasks])
        axes.set_ylim(-0.6, len(tasks) - 0.4)
        axes.set_xlabel("Score (percent), mean over shared stacks")
        title(figure, f"Modes by task: {model}")
        palette.legend(figure, theme, names, lines=False)

    widest = spread.sort("spread", "task").row(-1, named=True)
    return Plot(
        name=slug("modes", model),
        title=f"Scores by mode and task: {model}",
        alt=(
            f"Scores by mode on {plural(len(tasks), 'task')}, {model}. Widest spread: "
            f"{widest['spread']:.1f} points on {task_title(widest['task'])}, from "
            f"{widest['lowest']} ({widest['low_score']:.1f}) to {widest['highest']} "
            f"({widest['high_score']:.1f})."
        ),
        height_in=1.2 + 0.34 * len(tasks) + legend_height(len(names)),
        draw=draw,
    )


def _places(groups: dict[str, pl.DataFrame], vary: Factor) -> dict[tuple[str, str], float]:
    """Where each option of each group stands: by mean gain, with a gap between groups."""
    places: dict[tuple[str, str], float] = {}
    at = 0.0
    for name, frame in groups.items():
        order = frame.group_by(vary).agg(pl.mean("gain")).sort("gain", vary)[vary]
        for option in order:
            places[name, str(option)] = at
            at += 1.0
        at += 0.7
    return places
