"""Stacks compared item by item: intervals of scores and gains, and paired tests on the same items.

Of each scored run the items of its best submission are taken, and the base model's own. An item's
score in a cell is its mean over the cell's runs; cells of one task are then joined on ``item_id``.
Items without a verdict are left out of both sides.

What this covers is the choice of items, these checkpoints given; what another seed would give is
in ``seed_p_value`` and in the cells' seed intervals. It does not cover that a best submission was
chosen by its score on these very items.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import polars as pl
from scipy import stats

from analysis.comparisons.cells import CELL, with_standing
from analysis.comparisons.resampling import (
    mean_intervals,
    mean_intervals_of_gains,
    p_values_of_gains,
    paired_tests,
)
from analysis.results import Results
from analysis.statistics import Array, holm

FAMILY = ("model", "mode")
"""Tests of one model and mode are one table: p-values are corrected over all of it."""
ITEM_CELL = {
    "item_low": pl.Float64,
    "item_high": pl.Float64,
    "gain_item_low": pl.Float64,
    "gain_item_high": pl.Float64,
    "num_items": pl.Int64,
    "p_gain": pl.Float64,
    "p_gain_holm": pl.Float64,
}
PAIR_SCHEMA = pl.Schema(
    {
        "model": pl.String,
        "mode": pl.String,
        "task": pl.String,
        "stack_a": pl.String,
        "stack_b": pl.String,
        "num_items": pl.Int64,
        "score_a": pl.Float64,
        "score_b": pl.Float64,
        "difference": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "p_value": pl.Float64,
        "method": pl.String,
        "p_holm": pl.Float64,
        "num_seeds_a": pl.Int64,
        "num_seeds_b": pl.Int64,
        "seed_p_value": pl.Float64,
    }
)


def item_means(results: Results, runs: pl.DataFrame | None = None) -> pl.DataFrame:
    """Each item's score in each cell, from the scored runs' best submissions.

    Returns:
        A row a cell and item: `CELL`, ``stack``, ``item_id``, ``score`` and ``base`` in [0, 1]
        (means over runs; null: no verdict), ``gain`` (``score - base`` run by run), ``num_runs``.
    """
    stood = with_standing(results.runs if runs is None else runs)
    keys = [*CELL, "stack"]
    scored = stood.filter(
        (pl.col("standing") == "scored") & pl.col("best_submission_id").is_not_null()
    )
    cells = scored.select(keys).unique(maintain_order=True).with_row_index("cell")
    evaluation = ["run_id", "attempt", "task", "submission_id"]
    item = ["run_id", "attempt", "task", "item_id"]
    chosen = scored.rename({"best_submission_id": "submission_id"}).join(cells, on=keys)
    wanted = chosen.lazy().select(*evaluation, "cell")

    def of_best(items: pl.LazyFrame) -> pl.LazyFrame:
        told = items.select(*evaluation, "item_id", "score")
        base = told.filter(pl.col("submission_id") == 0).select(*item, base="score")
        best = told.join(wanted, on=evaluation).join(base, on=item, how="left")
        return best.select("cell", "item_id", "score", "base")

    return (
        results.collected("items", of_best)
        .group_by("cell", "item_id")
        .agg(
            pl.mean("score", "base"),
            (pl.col("score") - pl.col("base")).mean().alias("gain"),
            pl.len().cast(pl.Int64).alias("num_runs"),
        )
        .join(cells, on="cell")
        .select(*keys, "item_id", "score", "base", "gain", "num_runs")
        .sort(*CELL, "item_id")
    )


def with_item_intervals(cells: pl.DataFrame, means: pl.DataFrame, *, seed: int = 0) -> pl.DataFrame:
    """Cells with what their items say, null where a cell has none.

    Adds ``item_low``, ``item_high`` (95% interval of ``score``, percent), ``gain_item_low``,
    ``gain_item_high`` (of ``gain``, points), ``num_items``, ``p_gain`` (two-sided, of no gain over
    the base model on the same items) and ``p_gain_holm`` (corrected within `FAMILY`).

    Args:
        cells: Of `analysis.comparisons.cells.cells`.
        means: Of `item_means`.
        seed: Of resamples and sign patterns.
    """
    keys = ["model", "mode", "task", "stack"]
    parts = [_of_task(key, frame, seed) for key, frame in _by_task(means)]
    schema = {**dict.fromkeys(keys, pl.String), **ITEM_CELL}
    found = pl.concat(parts) if parts else pl.DataFrame(schema=schema)
    found = found.with_columns(p_gain_holm=_holm_within(found, "p_gain"))
    return cells.join(found.select(list(schema)), on=keys, how="left")


def stack_pairs(
    means: pl.DataFrame, runs: pl.DataFrame | None = None, *, seed: int = 0
) -> pl.DataFrame:
    """Every two stacks of a model, mode and task on the items that both answered.

    Args:
        means: Of `item_means`.
        runs: Table ``runs``, for the tests over seeds; without it they are null.
        seed: Of resamples and sign patterns.

    Returns:
        Columns of `PAIR_SCHEMA`: scores in percent, ``difference`` (b - a), ``low`` and ``high`` in
        points; ``p_value`` over items, ``p_holm`` corrected within `FAMILY`; ``seed_p_value``:
        Welch's t-test of the runs' scores, null unless both stacks have two seeds.
    """
    parts = [_pairs_of_task(key, frame, seed) for key, frame in _by_task(means)]
    pairs = pl.concat(parts) if parts else pl.DataFrame(schema=PAIR_SCHEMA)
    pairs = pairs.with_columns(p_holm=_holm_within(pairs, "p_value"))
    if runs is not None:
        pairs = _with_seeds(pairs, with_standing(runs))
    for name in ("num_seeds_a", "num_seeds_b", "seed_p_value"):
        if name not in pairs.columns:
            pairs = pairs.with_columns(pl.lit(None, PAIR_SCHEMA[name]).alias(name))
    return pairs.select(list(PAIR_SCHEMA))


def _by_task(means: pl.DataFrame) -> Iterator[tuple[tuple[str, str, str], pl.DataFrame]]:
    for key, frame in means.group_by("model", "mode", "task", maintain_order=True):
        yield (str(key[0]), str(key[1]), str(key[2])), frame


def _matrix(frame: pl.DataFrame, values: str) -> tuple[list[str], Array]:
    """Stacks, and their values by item, shape (items, stacks); NaN where there is none."""
    wide = frame.pivot("stack", index="item_id", values=values, sort_columns=True).sort("item_id")
    stacks = [name for name in wide.columns if name != "item_id"]
    matrix = wide.select(pl.col(stacks).fill_null(float("nan"))).to_numpy()
    return stacks, np.asarray(matrix, dtype=np.float64)


def _of_task(key: tuple[str, str, str], frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    stacks, scores = _matrix(frame, "score")
    _, gains = _matrix(frame, "gain")
    of_score, of_gain = mean_intervals(scores, seed=seed), mean_intervals_of_gains(gains, seed=seed)
    return _null_nan(
        pl.DataFrame(
            {
                **dict(zip(("model", "mode", "task"), key, strict=True)),
                "stack": stacks,
                "item_low": of_score.low * 100,
                "item_high": of_score.high * 100,
                "gain_item_low": of_gain.low * 100,
                "gain_item_high": of_gain.high * 100,
                "num_items": of_score.num_items,
                "p_gain": p_values_of_gains(gains, seed=seed),
            }
        )
    )


def _pairs_of_task(key: tuple[str, str, str], frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    stacks, scores = _matrix(frame, "score")
    pairs = list(combinations(range(len(stacks)), 2))
    if not pairs:
        return pl.DataFrame(schema=_without_seeds())
    tests = paired_tests(scores, pairs, seed=seed)
    both = [~np.isnan(scores[:, a]) & ~np.isnan(scores[:, b]) for a, b in pairs]

    def mean(place: int, known: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
        return float(scores[known, place].mean()) * 100 if known.any() else float("nan")

    made = pl.DataFrame(
        {
            **dict(zip(("model", "mode", "task"), key, strict=True)),
            "stack_a": [stacks[a] for a, _ in pairs],
            "stack_b": [stacks[b] for _, b in pairs],
            "num_items": tests.num_items,
            "score_a": [mean(a, known) for (a, _), known in zip(pairs, both, strict=True)],
            "score_b": [mean(b, known) for (_, b), known in zip(pairs, both, strict=True)],
            "difference": tests.difference * 100,
            "low": tests.low * 100,
            "high": tests.high * 100,
            "p_value": tests.p_value,
            "method": tests.method,
        },
    )
    return (
        _null_nan(made).with_columns(p_holm=pl.lit(None, pl.Float64)).select(list(_without_seeds()))
    )


def _without_seeds() -> dict[str, pl.DataType | type[pl.DataType]]:
    return {name: kind for name, kind in PAIR_SCHEMA.items() if "seed" not in name}


def _null_nan(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _holm_within(frame: pl.DataFrame, name: str) -> pl.Series:
    """The column corrected by `holm` within each family; nulls are no tests."""
    corrected: list[float | None] = [None] * frame.height
    families: dict[tuple[str, ...], list[int]] = {}
    values = frame[name].to_list()
    for place, key in enumerate(frame.select(FAMILY).iter_rows()):
        if values[place] is not None:
            families.setdefault(key, []).append(place)
    for places in families.values():
        for place, value in zip(places, holm([values[i] for i in places]), strict=True):
            corrected[place] = value
    return pl.Series(corrected, dtype=pl.Float64)


def _with_seeds(pairs: pl.DataFrame, stood: pl.DataFrame) -> pl.DataFrame:
    scored = stood.filter(pl.col("standing") == "scored")
    by_cell: dict[tuple[str, ...], Sequence[float]] = {
        key: scores
        for *key_parts, scores in scored.group_by("model", "mode", "task", "stack")
        .agg("best_score")
        .iter_rows()
        for key in [tuple(key_parts)]
    }
    nums_a, nums_b, p_values = [], [], []
    for *where, a, b in pairs.select("model", "mode", "task", "stack_a", "stack_b").iter_rows():
        first, second = by_cell.get((*where, a), ()), by_cell.get((*where, b), ())
        nums_a.append(len(first))
        nums_b.append(len(second))
        p_values.append(welch(first, second))
    return pairs.with_columns(
        num_seeds_a=pl.Series(nums_a, dtype=pl.Int64),
        num_seeds_b=pl.Series(nums_b, dtype=pl.Int64),
        seed_p_value=pl.Series(p_values, dtype=pl.Float64),
    )


def welch(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Welch's two-sided p-value of equal means; None below two values a side or without spread."""
    if len(a) < 2 or len(b) < 2:
        return None
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    of_x, of_y = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    if of_x + of_y == 0:
        return None
    freedom = (of_x + of_y) ** 2 / (of_x**2 / (len(x) - 1) + of_y**2 / (len(y) - 1))
    t = abs(float(x.mean() - y.mean())) / (of_x + of_y) ** 0.5
    return float(2 * stats.t.sf(t, freedom))
