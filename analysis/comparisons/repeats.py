"""What several seeds bring, and what a point costs.

pass@k and best-of-k are over a cell's runs, as if k of them were drawn: a run that counts and has
no valid score did not succeed. Costs are the driver's, at the gateway's prices, USD; of a run on
several tasks each task bears an equal part.
"""

from collections.abc import Sequence

import polars as pl

from analysis.comparisons.cells import CELL, with_standing
from analysis.statistics import best_of_k, pass_at_k

KS = (1, 2, 3, 4, 5, 8, 10, 16, 20)
SEEDS_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(CELL, pl.String),
        "stack": pl.String,
        "k": pl.Int64,
        "num_runs": pl.Int64,
        "num_scored": pl.Int64,
        "num_succeeded": pl.Int64,
        "pass_at_k": pl.Float64,
        "best_score": pl.Float64,
        "best_gain": pl.Float64,
    }
)


def over_seeds(runs: pl.DataFrame, *, ks: Sequence[int] = KS) -> pl.DataFrame:
    """pass@k and best-of-k: a row a cell and each of ``ks`` that its runs suffice for.

    Returns:
        `SEEDS_SCHEMA`: ``num_runs`` that count, ``num_scored``, ``num_succeeded`` (gain above zero
        and the noise floor); ``pass_at_k`` (percent: of k runs one succeeds), ``best_score``
        (percent) and ``best_gain`` (points): the expected highest of k scored runs, null when fewer
        have one.
    """
    stood = with_standing(runs).filter(pl.col("standing").is_in(["scored", "unscored"]))
    rows = []
    for key, frame in stood.sort(*CELL, "seed", "run_id").group_by(CELL, maintain_order=True):
        known = frame["succeeded"].drop_nulls()
        scores = frame["best_score"].drop_nulls().to_list()
        gains = frame.filter(pl.col("standing") == "scored")["improvement"].drop_nulls().to_list()
        num_succeeded = int(known.sum())
        for k in ks:
            if k > frame.height:
                break
            rows.append(
                (
                    *key,
                    frame["stack"][0],
                    k,
                    frame.height,
                    len(scores),
                    num_succeeded,
                    100 * pass_at_k(len(known), num_succeeded, k) if k <= len(known) else None,
                    best_of_k(scores, k) if k <= len(scores) else None,
                    best_of_k(gains, k) if k <= len(gains) else None,
                )
            )
    return pl.DataFrame(rows, schema=SEEDS_SCHEMA, orient="row")


def costs(runs: pl.DataFrame) -> pl.DataFrame:
    """What each cell cost and what a point of gain cost: a row a cell.

    Returns:
        `CELL`, ``stack``, ``num_scored``, ``num_priced`` (scored runs with a known cost and gain);
        ``cost_usd``, ``tokens`` (input and output), ``hours``: means over priced runs, or over
        scored ones with a known gain where none is priced; ``gain``: theirs, points;
        ``usd_per_point``, ``hours_per_point``: null unless the gain is above zero and the noise
        floor; ``why`` the first is, in words; ``is_at_least``: some calls told no usage;
        ``wasted_usd``: what runs without a score, of infrastructure, invalid or unfinished, and
        earlier attempts cost in all.
    """
    part = pl.col("tasks").list.len().clip(lower_bound=1)
    stood = with_standing(runs).with_columns(
        cost=pl.col("cost_usd") / part,
        total=pl.coalesce("total_cost_usd", "cost_usd") / part,
        used_h=pl.col("budget_used_s") / 3600 / part,
        all_tokens=(pl.col("input_tokens") + pl.col("output_tokens")) / part,
    )
    scored = pl.col("standing") == "scored"
    known = scored & pl.col("improvement").is_not_null()
    priced = known & pl.col("cost").is_not_null()
    used = priced | (known & ~priced.any())
    floors = pl.col("floor").fill_null(0.0).filter(used)
    of_cell = (
        stood.sort(*CELL, "run_id")
        .group_by(CELL, maintain_order=True)
        .agg(
            pl.first("stack", "level"),
            scored.sum().cast(pl.Int64).alias("num_scored"),
            priced.sum().cast(pl.Int64).alias("num_priced"),
            pl.col("cost").filter(priced).mean().alias("cost_usd"),
            pl.col("all_tokens").filter(used).mean().alias("tokens"),
            pl.col("used_h").filter(used).mean().alias("hours"),
            pl.col("improvement").filter(used).mean().alias("gain"),
            (floors.pow(2).sum().sqrt() / floors.len()).alias("floor"),
            (pl.col("driver_unknown_calls").filter(priced) > 0).any().alias("is_at_least"),
            (pl.col("total").sum() - pl.col("cost").filter(scored).sum()).alias("wasted_usd"),
            pl.col("total").count().alias("told"),
            pl.col("driver_calls").filter(scored).sum().alias("calls"),
        )
    )
    gained = (pl.col("gain") > 0) & (pl.col("gain") > pl.col("floor"))
    return of_cell.with_columns(
        usd_per_point=pl.when(gained).then(pl.col("cost_usd") / pl.col("gain")),
        hours_per_point=pl.when(gained).then(pl.col("hours") / pl.col("gain")),
        wasted_usd=pl.when(pl.col("told") > 0).then("wasted_usd"),
        why=pl.when(pl.col("num_scored") == 0)
        .then(pl.lit("no scored run"))
        .when(pl.col("gain").is_null())
        .then(pl.lit("gain not known"))
        .when(pl.col("gain") <= 0)
        .then(pl.lit("no gain"))
        .when(~gained)
        .then(pl.lit("gain within noise"))
        .when((pl.col("num_priced") == 0) & (pl.col("calls") == 0))
        .then(pl.lit("no driver was called"))
        .when(pl.col("num_priced") == 0)
        .then(pl.lit("cost not known"))
        .otherwise(pl.lit("")),
    ).drop("floor", "told", "calls")
