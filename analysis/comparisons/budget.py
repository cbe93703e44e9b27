"""What more budget brings: best-so-far over the run's clock, cut at hours, and what was spent when.

A checkpoint counts from the moment that it was accepted. Only valid submissions with a score
count, of runs that end with one: who is averaged never changes along a curve. Before a run's first
score the base model is what could be handed in, so ``kept_score`` and ``kept_gain`` start there;
``score`` and ``gain`` are over the runs that had a score by then alone, with their number. A moment
after a run's budget is no moment of that run.
"""

from collections.abc import Sequence

import polars as pl

from analysis.comparisons.cells import CELL, with_standing

HOURS = (1.0, 2.0, 4.0, 8.0, 12.0)
NUM_SHARES = 48
HOUR_S = 3600.0


def best_so_far(submissions: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Each step of each scored run: a row a valid score, in order of acceptance.

    Columns: ``run_id``, ``task``, ``budget_used_s``, ``best`` (highest valid score so far).
    """
    scored = _scored(runs).select("run_id", "task", "attempt")
    return (
        submissions.filter(pl.col("score").is_not_null() & ~pl.col("is_invalid"))
        .join(scored, on=["run_id", "task", "attempt"], how="semi")
        .sort("run_id", "task", "budget_used_s", "submission_id")
        .with_columns(best=pl.col("score").cum_max().over("run_id", "task"))
        .select("run_id", "task", "budget_used_s", "best")
    )


def budget_curves(
    submissions: pl.DataFrame, runs: pl.DataFrame, *, num_shares: int = NUM_SHARES
) -> pl.DataFrame:
    """Best so far over the share of the budget: a row a cell and share.

    Returns:
        `CELL`, ``stack``, ``level``, ``share`` (0 to 1), ``hours`` (mean over runs), ``num_runs``,
        ``num_scored`` (had a score by then), ``score``, ``gain``, ``kept_score``, ``kept_gain``,
        ``final_gain`` (of the same runs), and ``low``, ``high``: quartiles of kept gains.
    """
    shares = pl.DataFrame({"share": [step / num_shares for step in range(num_shares + 1)]})
    moments = _scored(runs).join(shares, how="cross")
    moments = moments.with_columns(at_s=pl.col("share") * pl.col("budget_s"))
    return _cut(moments, submissions, runs, "share")


def truncations(
    submissions: pl.DataFrame, runs: pl.DataFrame, *, hours: Sequence[float] = HOURS
) -> pl.DataFrame:
    """What each cell would have had, had its runs been ended earlier: a row a cell and hour.

    Columns as `budget_curves`, with ``hours`` the cut; and ``reached``: the kept gain as percent of
    the final one, null unless that is above zero.
    """
    cuts = pl.DataFrame({"cut": [float(hour) for hour in hours]})
    moments = _scored(runs).join(cuts, how="cross").with_columns(at_s=pl.col("cut") * HOUR_S)
    moments = moments.filter(pl.col("at_s") <= pl.col("budget_s") * (1 + 1e-9))
    cut = _cut(moments, submissions, runs, "cut").drop("hours").rename({"cut": "hours"})
    reached = 100 * pl.col("kept_gain") / pl.col("final_gain")
    return cut.with_columns(reached=pl.when(pl.col("final_gain") > 0).then(reached))


def curves_by_stack(curves: pl.DataFrame, moment: str = "share") -> pl.DataFrame:
    """Curves (or truncations, by ``hours``) averaged over each stack's tasks, each task once.

    Only tasks that have the moment count: ``num_tasks`` says how many.
    """
    hours = [] if moment == "hours" else [pl.mean("hours")]
    return (
        curves.filter(pl.col("kept_gain").is_not_null())
        .group_by("model", "mode", "stack", moment)
        .agg(
            *hours,
            pl.mean("kept_gain"),
            pl.len().cast(pl.Int64).alias("num_tasks"),
            pl.sum("num_runs", "num_scored"),
        )
        .sort("model", "mode", "stack", moment)
    )


def usage_by_hour(driver_calls: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """What the driver was used for in each hour of the run's clock: a row a stack, mode and hour.

    Returns:
        ``model``, ``mode``, ``agent``, ``driver``, ``stack``, ``hour`` (0: the first), ``num_runs``
        (that reached the hour and whose calls are known), and means a run: ``input_tokens``,
        ``output_tokens``, ``cost_usd`` (null where calls were made and none told it). All runs that
        ended but those of infrastructure and of broken rules are in it, scored or not.
    """
    stood = with_standing(runs).filter(pl.col("standing").is_in(["scored", "unscored"]))
    keys = ["model", "mode", "agent", "driver", "stack"]
    of_run = stood.unique("run_id", maintain_order=True).select(
        "run_id", "attempt", *keys, "budget_used_s"
    )
    calls = (
        driver_calls.join(of_run.drop("budget_used_s"), on=["run_id", "attempt"])
        .with_columns(hour=(pl.col("budget_used_s") / HOUR_S).floor().cast(pl.Int64))
        .group_by("run_id", *keys, "hour")
        .agg(
            pl.col("input_tokens", "output_tokens", "cost_usd").sum(),
            pl.col("cost_usd").count().alias("num_costs"),
            pl.len().alias("num_calls"),
        )
    )
    known = of_run.join(calls, on="run_id", how="semi")
    last = pl.max_horizontal((pl.col("budget_used_s") / HOUR_S).ceil().cast(pl.Int64) - 1, 0)
    reached = known.with_columns(hour=pl.int_ranges(0, last + 1)).explode("hour")
    sums = pl.sum("input_tokens", "output_tokens", "cost_usd", "num_costs", "num_calls")
    return (
        reached.join(calls.drop(keys), on=["run_id", "hour"], how="left")
        .sort(*keys, "hour", "run_id")
        .group_by(*keys, "hour", maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("num_runs"), sums)
        .with_columns(
            pl.col("input_tokens", "output_tokens") / pl.col("num_runs"),
            cost_usd=pl.when((pl.col("num_costs") > 0) | (pl.col("num_calls") == 0)).then(
                pl.col("cost_usd") / pl.col("num_runs")
            ),
        )
        .drop("num_costs", "num_calls")
    )


def _scored(runs: pl.DataFrame) -> pl.DataFrame:
    return (
        with_standing(runs)
        .filter(pl.col("standing") == "scored")
        .select(
            "run_id",
            "attempt",
            *CELL,
            "stack",
            "level",
            "budget_s",
            "baseline_score",
            final_score="best_score",
        )
    )


def _cut(
    moments: pl.DataFrame, submissions: pl.DataFrame, runs: pl.DataFrame, moment: str
) -> pl.DataFrame:
    """Best so far at each moment of each run, averaged by cell and moment."""
    steps = best_so_far(submissions, runs).sort("budget_used_s")
    at = moments.sort("at_s").join_asof(
        steps,
        left_on="at_s",
        right_on="budget_used_s",
        by=["run_id", "task"],
        strategy="backward",
        check_sortedness=False,
    )
    base = pl.col("baseline_score")
    at = at.with_columns(
        kept=pl.coalesce("best", base),
        gain=pl.col("best") - base,
        kept_gain=pl.coalesce("best", base) - base,
        final_gain=pl.col("final_score") - base,
    )
    return (
        at.sort(*CELL, moment, "run_id")
        .group_by(*CELL, moment, maintain_order=True)
        .agg(
            pl.first("stack", "level"),
            (pl.mean("at_s") / HOUR_S).alias("hours"),
            pl.len().cast(pl.Int64).alias("num_runs"),
            pl.col("best").count().cast(pl.Int64).alias("num_scored"),
            pl.mean("best").alias("score"),
            pl.mean("gain"),
            pl.mean("kept").alias("kept_score"),
            pl.mean("kept_gain", "final_gain"),
            pl.col("kept_gain").quantile(0.25, "linear").alias("low"),
            pl.col("kept_gain").quantile(0.75, "linear").alias("high"),
        )
    )
