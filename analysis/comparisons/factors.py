"""What one factor of the study does: mode, driver, scaffold, level of the task, one task or many.

All of it is computed on cells (`analysis.comparisons.cells`), so that a cell counts once whatever
its seeds, and from published cells just as well. Contrasts are paired: only what both sides have is
compared, and how much that was stands beside. Gains and differences are points.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import polars as pl

from analysis import published
from analysis.statistics import compare_paired, holm, rank_correlation

Factor = Literal["driver", "agent"]
MODE_ORDER = ("free", "sft_only", "rl_only", "multi")
LEVELS = ("L1", "L2", "L3")
STATIC, INTERACTIVE = ("L1", "L2"), ("L3",)
"""Single answers against episodes."""


def with_gain(cells: pl.DataFrame) -> pl.DataFrame:
    """The cells that have a gain."""
    return cells.filter(pl.col("gain").is_not_null())


def modes(cells: pl.DataFrame) -> pl.DataFrame:
    """Modes of each model and task (the study's Table 16): a row a (model, task, mode).

    ``num_stacks``, ``num_scored`` runs; ``score``, ``gain``: means over stacks; ``best``: the
    highest run's score, ``published_best``: the study's highest for the mode. ``shared_score`` and
    ``shared_gain`` are means over the ``num_shared`` stacks that have every one of the task's
    single-task modes, which alone are comparable between modes; null without such a stack, and for
    ``multi``, which `multi_single` compares.
    """
    scored = cells.filter(pl.col("score").is_not_null())
    single = pl.col("mode") != "multi"
    of_stack = scored.group_by("model", "task", "agent", "driver").agg(
        pl.col("mode").filter(single).n_unique().alias("has")
    )
    of_task = scored.group_by("model", "task").agg(
        pl.col("mode").filter(single).n_unique().alias("all")
    )
    shared = single & (pl.col("has") == pl.col("all"))
    made = (
        scored.join(of_stack, on=["model", "task", "agent", "driver"])
        .join(of_task, on=["model", "task"])
        .sort("model", "task", "mode", "agent", "driver")
        .group_by("model", "task", "mode", maintain_order=True)
        .agg(
            pl.first("level"),
            pl.len().cast(pl.Int64).alias("num_stacks"),
            pl.sum("num_scored"),
            pl.mean("score", "gain"),
            pl.max("score_max").alias("best"),
            shared.sum().cast(pl.Int64).alias("num_shared"),
            pl.col("score").filter(shared).mean().alias("shared_score"),
            pl.col("gain").filter(shared).mean().alias("shared_gain"),
        )
    )
    told = (
        published.figures()
        .group_by("model", "task", "mode")
        .agg(pl.max("score").alias("published_best"))
    )
    order = {name: place for place, name in enumerate(MODE_ORDER)}
    place = pl.col("mode").replace_strict(order, default=len(order), return_dtype=pl.Int64)
    return made.join(told, on=["model", "task", "mode"], how="left").sort("model", "task", place)


def mode_spread(of_modes: pl.DataFrame) -> pl.DataFrame:
    """By model and task, how far the modes lie apart: a row each where two modes can be compared.

    ``lowest``, ``highest`` mode, their ``low_score``, ``high_score`` and ``spread`` (points), over
    the ``num_shared`` stacks that have all modes of the task.
    """
    return (
        of_modes.filter(pl.col("shared_score").is_not_null())
        .sort("model", "task", "shared_score", "mode")
        .group_by("model", "task", maintain_order=True)
        .agg(
            pl.first("level", "num_shared"),
            pl.len().cast(pl.Int64).alias("num_modes"),
            pl.first("mode").alias("lowest"),
            pl.last("mode").alias("highest"),
            pl.first("shared_score").alias("low_score"),
            pl.last("shared_score").alias("high_score"),
        )
        .filter(pl.col("num_modes") > 1)
        .with_columns(spread=pl.col("high_score") - pl.col("low_score"))
    )


def sensitivity(cells: pl.DataFrame, vary: Factor) -> pl.DataFrame:
    """How far a task's gains lie apart when one factor varies and the other is held.

    Returns:
        A row a (model, mode, held option, task) with two options or more: ``held``,
        ``num_options``, ``lowest``, ``highest``, ``low_gain``, ``high_gain``, ``spread``, and
        ``num_scored`` runs of the least covered option.
    """
    held = "agent" if vary == "driver" else "driver"
    return (
        with_gain(cells)
        .sort("model", "mode", held, "task", "gain", vary)
        .group_by("model", "mode", held, "task", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("num_options"),
            pl.min("num_scored"),
            pl.first(vary).alias("lowest"),
            pl.last(vary).alias("highest"),
            pl.first("gain").alias("low_gain"),
            pl.last("gain").alias("high_gain"),
        )
        .filter(pl.col("num_options") > 1)
        .with_columns(spread=pl.col("high_gain") - pl.col("low_gain"))
        .rename({held: "held"})
    )


def sensitivity_pairs(cells: pl.DataFrame, vary: Factor, *, seed: int = 0) -> pl.DataFrame:
    """Every two options of one factor, the other held, paired on the tasks that both have.

    Returns:
        A row a (model, mode, held option, a, b): ``gain_a``, ``gain_b`` (means over the common
        tasks) and the columns of `contrast`, ``p_holm`` corrected within model and mode.
    """
    held = "agent" if vary == "driver" else "driver"
    rows: list[dict[str, object]] = []
    for key, frame in with_gain(cells).group_by("model", "mode", held, maintain_order=True):
        by_option = _by(frame, vary, "task")
        where = dict(zip(("model", "mode", "held"), key, strict=True))
        rows += [{**where, **row} for row in _pairs(by_option, sorted(by_option), seed=seed)]
    return _corrected(rows, ("model", "mode", "held"), "tasks")


def level_means(cells: pl.DataFrame) -> pl.DataFrame:
    """Gains by model, mode, stack and level: a row each.

    ``gain`` is the mean over the ``num_tasks`` tasks that the stack has of the level;
    ``headroom_share`` the mean share (percent) of what was left to 100 that was gained.
    """
    share = 100 * pl.col("gain") / (100 - pl.col("baseline"))
    return (
        with_gain(cells)
        .with_columns(share=pl.when(pl.col("baseline") < 100).then(share))
        .group_by("model", "mode", "stack", "level")
        .agg(
            pl.mean("gain"),
            pl.mean("share").alias("headroom_share"),
            pl.len().cast(pl.Int64).alias("num_tasks"),
            pl.sum("num_scored"),
        )
        .sort("model", "mode", "stack", "level")
    )


def level_contrasts(cells: pl.DataFrame, *, seed: int = 0) -> pl.DataFrame:
    """Every two levels, paired on the stacks that have both: as `sensitivity_pairs`."""
    rows: list[dict[str, object]] = []
    for key, frame in level_means(cells).group_by("model", "mode", maintain_order=True):
        by_level = _by(frame, "level", "stack")
        where = dict(zip(("model", "mode"), key, strict=True))
        order = [level for level in LEVELS if level in by_level]
        rows += [{**where, **row} for row in _pairs(by_level, order, seed=seed)]
    return _corrected(rows, ("model", "mode"), "stacks")


def static_interactive(cells: pl.DataFrame) -> pl.DataFrame:
    """Each stack's mean gain on static (L1, L2) and on interactive (L3) tasks.

    Returns:
        A row a (model, mode, stack) with at least one of each: ``static_gain``,
        ``interactive_gain``, ``num_static``, ``num_interactive`` tasks, and ``is_complete``: the
        stack has every task that any stack of the model and mode has.
    """
    gained = with_gain(cells)
    is_static, is_interactive = pl.col("level").is_in(STATIC), pl.col("level").is_in(INTERACTIVE)
    num_tasks = gained.group_by("model", "mode").agg(pl.n_unique("task").alias("num_tasks"))
    return (
        gained.group_by("model", "mode", "stack")
        .agg(
            pl.col("gain").filter(is_static).mean().alias("static_gain"),
            pl.col("gain").filter(is_interactive).mean().alias("interactive_gain"),
            is_static.sum().cast(pl.Int64).alias("num_static"),
            is_interactive.sum().cast(pl.Int64).alias("num_interactive"),
            pl.n_unique("task").alias("has"),
        )
        .filter((pl.col("num_static") > 0) & (pl.col("num_interactive") > 0))
        .join(num_tasks, on=["model", "mode"])
        .with_columns(is_complete=pl.col("has") == pl.col("num_tasks"))
        .drop("has", "num_tasks")
        .sort("model", "mode", "stack")
    )


def static_interactive_correlation(points: pl.DataFrame) -> pl.DataFrame:
    """Spearman's rank correlation over complete stacks, by model and mode.

    ``num_stacks``, ``num_incomplete`` (left out), ``rho`` and ``p_value`` (exact for few stacks);
    both null below three stacks or where one side is constant.
    """
    schema = {
        "model": pl.String,
        "mode": pl.String,
        "num_stacks": pl.Int64,
        "num_incomplete": pl.Int64,
        "rho": pl.Float64,
        "p_value": pl.Float64,
    }
    rows = []
    for (model, mode), frame in points.group_by("model", "mode", maintain_order=True):
        whole = frame.filter("is_complete")
        found = rank_correlation(
            whole["static_gain"].to_list(), whole["interactive_gain"].to_list()
        )
        rows.append(
            (
                model,
                mode,
                whole.height,
                frame.height - whole.height,
                found.rho,
                found.p_value,
            )
        )
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.col("rho", "p_value").fill_nan(None)
    )


def multi_single(cells: pl.DataFrame, *, single: str = "free") -> pl.DataFrame:
    """One run on all tasks against one run a task: a row a (model, stack, task) that has both.

    ``multi_score``, ``single_score``, ``multi_gain``, ``single_gain``, ``difference`` (multi less
    single, points of score), ``num_multi``, ``num_single`` runs; ``published_difference``.
    """
    keys = ["model", "agent", "driver", "stack", "task"]

    def part(mode: str, prefix: str) -> pl.DataFrame:
        return cells.filter((pl.col("mode") == mode) & pl.col("score").is_not_null()).select(
            *keys,
            pl.col("score").alias(f"{prefix}_score"),
            pl.col("gain").alias(f"{prefix}_gain"),
            pl.col("num_scored").alias(f"num_{prefix}"),
        )

    figures = published.figures().select("model", "agent", "driver", "task", "mode", "score")
    of = ["model", "agent", "driver", "task"]
    multi = figures.filter(pl.col("mode") == "multi").drop("mode")
    told = multi.join(
        figures.filter(pl.col("mode") == single).drop("mode"), on=of, suffix="_single"
    ).select(*of, published_difference=pl.col("score") - pl.col("score_single"))
    return (
        part("multi", "multi")
        .join(part(single, "single"), on=keys)
        .with_columns(difference=pl.col("multi_score") - pl.col("single_score"))
        .join(told, on=of, how="left")
        .sort(keys)
    )


def contrast(differences: Sequence[float], *, seed: int = 0) -> dict[str, object]:
    """Mean of paired differences (points), its interval and sign-flip p-value.

    ``low``, ``high`` and ``p_value`` are None below two pairs: one pair shows no spread.
    """
    if len(differences) < 2:
        only = differences[0] if differences else None
        return {"difference": only, "low": None, "high": None, "p_value": None}
    shares = [value / 100 for value in differences]
    test = compare_paired([0.0] * len(shares), shares, seed=seed)
    return {
        "difference": test.difference * 100,
        "low": test.interval.low * 100,
        "high": test.interval.high * 100,
        "p_value": test.p_value,
    }


def _by(frame: pl.DataFrame, option: str, unit: str) -> dict[str, dict[str, float]]:
    """Gains by option and unit."""
    found: dict[str, dict[str, float]] = {}
    for name, place, gain in frame.select(option, unit, "gain").iter_rows():
        found.setdefault(str(name), {})[str(place)] = float(gain)
    return found


def _pairs(
    gains: Mapping[str, Mapping[str, float]], order: Sequence[str], *, seed: int
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for a, b in combinations(order, 2):
        common = sorted(gains[a].keys() & gains[b].keys())
        if not common:
            continue
        rows.append(
            {
                "a": a,
                "b": b,
                "num_pairs": len(common),
                "units": common,
                "gain_a": sum(gains[a][unit] for unit in common) / len(common),
                "gain_b": sum(gains[b][unit] for unit in common) / len(common),
                **contrast([gains[b][unit] - gains[a][unit] for unit in common], seed=seed),
            }
        )
    return rows


def _corrected(
    rows: Sequence[Mapping[str, object]], keys: Sequence[str], units: str
) -> pl.DataFrame:
    """The rows as a frame, with ``p_holm`` within model and mode."""
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        **dict.fromkeys(keys, pl.String),
        "a": pl.String,
        "b": pl.String,
        "num_pairs": pl.Int64,
        "units": pl.List(pl.String),
        **dict.fromkeys(("gain_a", "gain_b", "difference", "low", "high", "p_value"), pl.Float64),
    }
    frame = pl.DataFrame(list(rows), schema=schema)
    corrected: dict[int, float] = {}
    for _, places in (
        frame.with_row_index("place")
        .filter(pl.col("p_value").is_not_null())
        .group_by("model", "mode", maintain_order=True)
    ):
        for place, value in zip(places["place"], holm(places["p_value"].to_list()), strict=True):
            corrected[place] = value
    values = [corrected.get(place) for place in range(frame.height)]
    return frame.with_columns(p_holm=pl.Series(values, dtype=pl.Float64)).rename(
        {"num_pairs": f"num_{units}", "units": units}
    )
