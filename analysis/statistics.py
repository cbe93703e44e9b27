"""Intervals, paired tests and corrections, on arrays; scipy does the known ones.

Items are the unit: an evaluation's score is the mean of its items' scores, so its uncertainty is
that of resampling items. Two checkpoints that answered the same items are compared on these, item
by item. Everything random takes a seed. Scores here are in [0, 1]; tables show percent.
"""

import math
from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array: TypeAlias = NDArray[np.float64]
CONFIDENCE = 0.95
NUM_RESAMPLES = 10_000
MAX_EXACT_SIGNS = 16
"""Up to this many differing pairs every sign pattern is counted; above, patterns are drawn."""


MAX_EXACT_RANKS = 8
"""Up to this many pairs every order is counted."""


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


class PairedTest(NamedTuple):
    """Two checkpoints on the same items.

    Attributes:
        num_items: Items that both have a score for.
        difference: Mean of ``b - a``, in [-1, 1].
        interval: Of the difference, by resampling items.
        p_value: Two-sided, of no difference.
        method: ``mcnemar`` (exact, scores of 0 and 1 only) or ``sign_flip``.
    """

    num_items: int
    difference: float
    interval: Interval
    p_value: float
    method: str


class Correlation(NamedTuple):
    """Spearman's rank correlation and its two-sided p-value; NaN where one side is constant.

    The p-value is exact up to `MAX_EXACT_RANKS` pairs.
    """

    num_pairs: int
    rho: float
    p_value: float


def wilson(num_successes: int, num_items: int, *, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927).

    Raises:
        ValueError: There are no items, or more successes than items.
    """
    result = stats.binomtest(num_successes, num_items).proportion_ci(confidence, method="wilson")
    return Interval(float(result.low), float(result.high))


def bootstrap_mean(
    values: Sequence[float] | Array, *, seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """Percentile bootstrap interval of a mean, resampling items with replacement.

    A resample of n items is a multinomial draw of how often each distinct value comes; drawing that
    is the same distribution as drawing items, and costs what the distinct values cost.

    Raises:
        ValueError: There are no values, or one is not finite.
    """
    array = _finite(values)
    distinct, counts = np.unique(array, return_counts=True)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(len(array), counts / len(array), size=NUM_RESAMPLES)
    return _percentiles(draws @ distinct / len(array), confidence)


def score_interval(
    values: Sequence[float] | Array, *, seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """The interval of an evaluation's score: Wilson's for right and wrong, else the bootstrap's."""
    array = _finite(values)
    if np.isin(array, (0.0, 1.0)).all():
        return wilson(int(array.sum()), len(array), confidence=confidence)
    return bootstrap_mean(array, seed=seed, confidence=confidence)


def compare_paired(
    a: Sequence[float] | Array, b: Sequence[float] | Array, *, seed: int = 0
) -> PairedTest:
    """Tests ``b`` against ``a`` item by item.

    Args:
        a: Scores of one checkpoint, shape (items,).
        b: Scores of the other, same items in the same order.
        seed: Of resamples and sign patterns.

    Raises:
        ValueError: The two differ in length, are empty, or hold what is not finite.
    """
    before, after = _finite(a), _finite(b)
    if before.shape != after.shape:
        raise ValueError(f"{len(before)} and {len(after)} items cannot be paired")
    gains = after - before
    is_binary = np.isin(np.concatenate([before, after]), (0.0, 1.0)).all()
    return PairedTest(
        num_items=len(gains),
        difference=float(gains.mean()),
        interval=bootstrap_mean(gains, seed=seed),
        p_value=_mcnemar(gains) if is_binary else _sign_flip(gains, seed=seed),
        method="mcnemar" if is_binary else "sign_flip",
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number, family-wise (Holm 1979), in the given order."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return [float(value) for value in corrected]


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for the rate of false discoveries (Benjamini and Hochberg 1995)."""
    if not len(p_values):
        return []
    return [float(value) for value in stats.false_discovery_control(p_values, method="bh")]


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that of ``k`` of the samples at least one is right (Chen et al. 2021).

    Raises:
        ValueError: ``k`` is not within 1 and ``num_samples``, or more are right than there are.
    """
    if not 1 <= k <= num_samples or not 0 <= num_correct <= num_samples:
        raise ValueError(f"no pass@{k} of {num_correct} right in {num_samples}")
    wrong = num_samples - num_correct
    return 1.0 - (math.comb(wrong, k) / math.comb(num_samples, k) if wrong >= k else 0.0)


def best_of_k(scores: Sequence[float], k: int) -> float:
    """The expected highest of ``k`` scores drawn without replacement, e.g. over seeds.

    Raises:
        ValueError: ``k`` is not within 1 and the number of scores.
    """
    num = len(scores)
    if not 1 <= k <= num:
        raise ValueError(f"no best of {k} among {num}")
    ways = math.comb(num, k)
    # The i-th smallest is the highest of the draw when the other k - 1 come from those below it.
    return sum(
        score * math.comb(place, k - 1) / ways
        for place, score in enumerate(sorted(scores))
        if place >= k - 1
    )


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Spearman's rho of pairs; NaN with fewer than three pairs or a constant side."""
    first, second = _finite(x) if len(x) else np.empty(0), _finite(y) if len(y) else np.empty(0)
    if first.shape != second.shape:
        raise ValueError(f"{len(first)} and {len(second)} values cannot be paired")
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Correlation(len(first), math.nan, math.nan)
    result = stats.spearmanr(first, second)
    p_value = float(result.pvalue)
    if len(first) <= MAX_EXACT_RANKS:
        p_value = _exact_rank_p_value(first, second)
    return Correlation(len(first), float(result.statistic), p_value)


def _exact_rank_p_value(x: Array, y: Array) -> float:
    """Over all orders of ``y``; the t approximation calls three in the same order certain."""
    first, second = stats.rankdata(x), stats.rankdata(y)
    first, second = first - first.mean(), second - second.mean()
    orders = np.array(list(permutations(range(len(y)))))
    sums = np.abs(second[orders] @ first)
    return float((sums >= abs(float(second @ first)) - 1e-9).mean())


def _finite(values: Sequence[float] | Array) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError("there are no values")
    if not np.isfinite(array).all():
        raise ValueError("a value is not finite: leave items without a score out")
    return array


def _percentiles(means: Array, confidence: float) -> Interval:
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(means, (tail, 1.0 - tail))
    return Interval(float(low), float(high))


def _mcnemar(gains: Array) -> float:
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    if better + worse == 0:
        return 1.0
    return float(stats.binomtest(better, better + worse, 0.5).pvalue)


def _sign_flip(gains: Array, *, seed: int) -> float:
    """Under no difference each gain is as likely with the other sign."""
    moved = gains[gains != 0]
    if not len(moved):
        return 1.0
    observed = abs(moved.sum()) - 1e-12
    if len(moved) <= MAX_EXACT_SIGNS:
        patterns = (np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1
        sums = (2.0 * patterns - 1.0) @ moved
        return float((np.abs(sums) >= observed).mean())
    signs = np.random.default_rng(seed).integers(0, 2, (NUM_RESAMPLES, len(moved))) * 2.0 - 1.0
    return float(((np.abs(signs @ moved) >= observed).sum() + 1) / (NUM_RESAMPLES + 1))
