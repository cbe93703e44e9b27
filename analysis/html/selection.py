"""Which runs of a large sweep have a page: those that stand out, and a sample of the others.

The choice follows from the results alone: the same results give the same pages.
"""

import hashlib

import polars as pl

from analysis.results import Results

RULE = (
    "the best and the worst of every stack and task, then invalid runs, runs that failed or are "
    "not over, runs with warnings of the audit, and a sample of the others"
)
"""Who comes first, in words."""
_CELL = ("agent", "driver", "task")


def runs_with_pages(results: Results, most: int | None) -> frozenset[str]:
    """The ids of the runs that have a page; `RULE` says who comes first.

    Args:
        results: The results.
        most: So many at most; None: all.

    Raises:
        ResultsError: There are no runs.
    """
    ids = results.runs["run_id"].unique(maintain_order=True).to_list()
    if most is None or len(ids) <= most:
        return frozenset(ids)
    ranks = dict(_ranks(results).iter_rows())
    return frozenset(sorted(ids, key=lambda run_id: (ranks[run_id], _lot(run_id)))[:most])


def _ranks(results: Results) -> pl.DataFrame:
    """By run, its place in `RULE`, from 0."""
    score = pl.when("counts").then("best_score")
    stands_out = [
        (score.rank("ordinal", descending=down).over(_CELL) == 1).fill_null(value=False)
        for down in (True, False)
    ]
    warned = results.findings.filter(pl.col("severity") != "info")["run_id"].unique()
    failed = pl.col("is_infrastructure") | ~pl.col("is_final") | pl.col("best_score").is_null()
    rank = (
        pl.when(stands_out[0] | stands_out[1])
        .then(0)
        .when("is_invalid")
        .then(1)
        .when(failed)
        .then(2)
        .when(pl.col("run_id").is_in(warned.to_list()))
        .then(3)
        .otherwise(4)
    )
    ranked = results.runs.select("run_id", rank=rank)
    return ranked.group_by("run_id").agg(pl.min("rank"))


def _lot(run_id: str) -> str:
    """What decides among equals: nothing that a run's conditions have to do with."""
    return hashlib.sha256(run_id.encode("utf-8", "replace")).hexdigest()
