"""One row a stack, mode and task: the cell of every comparison, and what may enter it.

A cell's means are over its *scored* runs: those that count (`runs.counts`) and have a valid score.
All others stand beside, by name: ``unscored`` (counts, and no valid submission has a score),
``invalid``, ``infrastructure`` and ``unfinished``. None of them is ever a zero.

Two spreads are told apart. Over seeds (``seed_low``, ``seed_high``): how much another run of the
stack would differ; needs two scored runs. Over items (``item_low``, ``item_high``, see
`analysis.comparisons.item_tests`): how much another set of questions would differ, these
checkpoints given.
"""

from collections.abc import Sequence

import polars as pl
from scipy import stats

from analysis import published
from analysis.statistics import CONFIDENCE

CELL = ("model", "mode", "task", "agent", "driver")
"""What makes a cell."""
STANDINGS = ("scored", "unscored", "invalid", "infrastructure", "unfinished")
CONDITIONS = ("budget", "evaluator_version", "protocol", "source")
"""What should be one within a cell; ``mixed`` names those that are not."""


def stack_name() -> pl.Expr:
    """``agent/driver``, as a sweep's ``stacks`` name it."""
    return pl.col("agent") + "/" + pl.col("driver")


def with_standing(runs: pl.DataFrame) -> pl.DataFrame:
    """Table ``runs`` with ``stack``, ``standing``, ``floor``, ``floor_source``, ``succeeded``.

    ``floor`` is the run's own noise floor, else the published one of its task (points), else null;
    ``floor_source`` says which (``measured``, ``published``). ``succeeded``: of a run that counts,
    whether its gain is above zero and the floor; null where the gain is unknown but for a run that
    counts and has no score, which did not succeed.
    """
    counts, has_score = pl.col("counts"), pl.col("best_score").is_not_null()
    gain = pl.col("improvement")
    floors = {task: floor for task in runs["task"].unique() if (floor := published.noise(task))}
    told = pl.col("task").replace_strict(floors, default=None, return_dtype=pl.Float64)
    measured = pl.col("noise_floor")
    return runs.with_columns(
        stack=stack_name(),
        standing=pl.when(counts & has_score)
        .then(pl.lit("scored"))
        .when(counts)
        .then(pl.lit("unscored"))
        .when(pl.col("is_invalid"))
        .then(pl.lit("invalid"))
        .when(pl.col("is_infrastructure"))
        .then(pl.lit("infrastructure"))
        .otherwise(pl.lit("unfinished")),
        floor=pl.coalesce(measured, told),
        floor_source=pl.when(measured.is_not_null())
        .then(pl.lit("measured"))
        .when(told.is_not_null())
        .then(pl.lit("published")),
    ).with_columns(
        succeeded=pl.when(counts & has_score)
        .then((gain > 0) & (gain > pl.col("floor").fill_null(0.0)))
        .when(counts)
        .then(pl.lit(False))
    )


def cells(runs: pl.DataFrame) -> pl.DataFrame:
    """All cells of table ``runs``, sorted by `CELL`.

    Columns beyond `CELL`, ``stack`` and ``level``:
        num_runs, num_scored, num_unscored, num_invalid, num_infrastructure, num_unfinished; seeds:
            of the scored runs, sorted; mixed: conditions that differ among the scored runs.
        baseline, score, gain: Means over scored runs; percent, percent, points. num_gains: runs
            behind ``gain`` (a run without a baseline has a score and no gain).
        score_sd, score_min, score_max, gain_sd; seed_low, seed_high, gain_seed_low, gain_seed_high:
            standard deviations, extremes and Student's 95% intervals over seeds; null below two
            runs.
        best_run: ``run_id`` of ``score_max``.
        noise_floor, noise_source, within_noise: Of the mean gain: root of the summed squares of the
            runs' floors over their number, points; null unless every run has one. ``noise_source``:
            ``measured``, ``published`` or ``mixed``.
        published_baseline, published_score, published_gain: The study's; null where not at hand.
    """
    stood = runs if "standing" in runs.columns else with_standing(runs)
    made = (
        stood.group_by(CELL, maintain_order=True)
        .agg(
            pl.first("stack", "level"),
            pl.len().alias("num_runs"),
            *(
                (pl.col("standing") == name).sum().cast(pl.Int64).alias(f"num_{name}")
                for name in STANDINGS
            ),
            *_figures(),
        )
        .with_columns(pl.col("num_runs").cast(pl.Int64), within_noise=_within())
    )
    made = _with_seed_intervals(made, "score", "num_scored", "seed")
    made = _with_seed_intervals(made, "gain", "num_gains", "gain_seed")
    return _with_published(made).sort(CELL)


def _figures() -> list[pl.Expr]:
    scored = pl.col("standing") == "scored"

    def of(column: str) -> pl.Expr:
        return pl.col(column).filter(scored)

    gains = of("improvement")
    floors = pl.col("floor").filter(scored & pl.col("improvement").is_not_null())
    sources = pl.col("floor_source").filter(scored).drop_nulls().unique(maintain_order=True)
    mixed = [
        pl.when(of(name).n_unique() > 1).then(pl.lit(name)).otherwise(pl.lit(""))
        for name in CONDITIONS
    ]
    return [
        of("seed").unique().sort().alias("seeds"),
        pl.concat_str(mixed, separator=" ").str.strip_chars().str.replace_all(" +", ", ")
        .alias("mixed"),
        of("baseline_score").mean().alias("baseline"),
        of("best_score").mean().alias("score"),
        of("best_score").std().alias("score_sd"),
        of("best_score").min().alias("score_min"),
        of("best_score").max().alias("score_max"),
        pl.col("run_id").filter(scored).sort_by(of("best_score"), descending=True,
            maintain_order=True).first().alias("best_run"),
        gains.mean().alias("gain"),
        gains.std().alias("gain_sd"),
        gains.count().cast(pl.Int64).alias("num_gains"),
        pl.when((floors.null_count() == 0) & (floors.len() > 0))
        .then(floors.pow(2).sum().sqrt() / floors.len())
        .alias("noise_floor"),
        pl.when(sources.len() > 1).then(pl.lit("mixed")).otherwise(sources.first())
        .alias("noise_source"),
    ]  # fmt: skip


def _within() -> pl.Expr:
    return pl.col("gain").abs() <= pl.col("noise_floor")


def _with_seed_intervals(made: pl.DataFrame, mean: str, num: str, name: str) -> pl.DataFrame:
    """Student's intervals of means over seeds."""
    sizes = [n for n in made[num].unique() if n > 1]
    factors = {n: float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) / n**0.5 for n in sizes}
    factor = pl.col(num).replace_strict(factors, default=None, return_dtype=pl.Float64)
    half = pl.col(f"{mean}_sd") * factor
    return made.with_columns(
        (pl.col(mean) - half).alias(f"{name}_low"), (pl.col(mean) + half).alias(f"{name}_high")
    )


def _with_published(made: pl.DataFrame) -> pl.DataFrame:
    figures = published.figures().select(
        *CELL, published_score="score", published_gain="gain"
    )  # fmt: skip
    bases = [
        {"model": model, "task": task, "published_baseline": score}
        for model in made["model"].unique()
        for task, score in published.baselines(model).items()
    ]
    schema = {"model": pl.String, "task": pl.String, "published_baseline": pl.Float64}
    return made.join(figures, on=CELL, how="left").join(
        pl.DataFrame(bases, schema=schema), on=["model", "task"], how="left"
    )


def published_cells(levels: Sequence[tuple[str, str]] = ()) -> pl.DataFrame:
    """The study's own figures as cells, so that its claims come out of the same functions.

    Args:
        levels: ``(task, level)`` pairs; a task that is not among them has a null level.
    """
    figures = published.figures().filter(pl.col("agent").is_not_null())
    return figures.with_columns(
        stack=stack_name(),
        level=pl.col("task").replace_strict(dict(levels), default=None, return_dtype=pl.String),
        num_scored=pl.lit(1, pl.Int64),
        num_gains=pl.col("gain").is_not_null().cast(pl.Int64),
        within_noise=pl.lit(None, pl.Boolean),
    ).sort(CELL)


def failures(runs: pl.DataFrame) -> pl.DataFrame:
    """What became of the runs of each stack and mode: a row a (model, mode, agent, driver).

    Counted by run, a run on several tasks once (``num_scored`` when any task has a score):
    ``num_runs``, ``num_<standing>``, ``num_attempts`` (all), ``ends`` (e.g. ``timed_out 3``, most
    frequent first, ``still running`` for none). Counted by task: ``num_submissions``,
    ``num_failed`` gradings, ``num_invalid_submissions``. ``num_rejected`` requests by run.
    """
    stood = runs if "standing" in runs.columns else with_standing(runs)
    rank = {name: place for place, name in enumerate(STANDINGS)}
    by_run = stood.group_by("model", "mode", "agent", "driver", "run_id", maintain_order=True).agg(
        pl.first("stack"),
        pl.col("standing").sort_by(pl.col("standing").replace_strict(rank)).first(),
        pl.first("end").fill_null("still running"),
        pl.first("num_attempts", "num_rejected"),
        pl.sum("num_submissions", "num_failed", "num_invalid"),
    )
    keys = ["model", "mode", "agent", "driver"]
    ends = (
        by_run.group_by(*keys, "end")
        .len("times")
        .sort("times", "end", descending=[True, False])
        .group_by(keys, maintain_order=True)
        .agg(ends=pl.format("{} {}", "end", "times").str.join(", "))
    )
    counted = by_run.group_by(keys, maintain_order=True).agg(
        pl.first("stack"),
        pl.len().cast(pl.Int64).alias("num_runs"),
        *(
            (pl.col("standing") == name).sum().cast(pl.Int64).alias(f"num_{name}")
            for name in STANDINGS
        ),
        pl.sum("num_attempts", "num_rejected", "num_submissions", "num_failed"),
        pl.sum("num_invalid").alias("num_invalid_submissions"),
    )
    return counted.join(ends, on=keys, how="left").sort(keys)
