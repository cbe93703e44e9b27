"""How much a judge disagrees with itself, from several votes on each item.

This is the judge's own inconsistency on fixed answers. The noise floor of a task
(`rl_bench.noise`) covers it together with whatever else moves a score.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, variance

POINTS = 100.0


def noise_metrics(votes: Sequence[Sequence[float]]) -> dict[str, float]:
    """An evaluation's metrics of its judge's noise.

    ``judge/agreement`` is 1 less the mean distance of two votes on one item, averaged over items:
    for votes of 0 and 1, how often two of them are equal. ``judge/noise_points`` is the standard
    error, in points, that the inconsistency adds to the mean score when an item's score is the mean
    of its votes: ``100 / n * sqrt(sum s_i^2 / k_i)`` with ``s_i^2`` the variance within item *i*.
    Items with a single vote are given the mean variance of the others.

    Args:
        votes: For each judged item its votes, in [0, 1]; items without a vote are left out.

    Returns:
        Nothing where no item has two votes.
    """
    judged = [item for item in votes if item]
    repeated = [item for item in judged if len(item) > 1]
    if not repeated:
        return {}
    pooled = fmean(variance(item) for item in repeated)
    of_means = sum((variance(item) if len(item) > 1 else pooled) / len(item) for item in judged)
    return {
        "judge/agreement": fmean(1.0 - _distance(item) for item in repeated),
        "judge/noise_points": POINTS * math.sqrt(of_means) / len(judged),
    }


def _distance(votes: Sequence[float]) -> float:
    return fmean(abs(a - b) for a, b in combinations(votes, 2))
