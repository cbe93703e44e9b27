"""Intervals and paired tests of many checkpoints at once, on one matrix of items.

The same as `analysis.statistics` does pair by pair, for tables with thousands of pairs: one set of
resamples, and one of sign patterns, serves all columns of a matrix. Right and wrong have Wilson's
interval and McNemar's exact test here as there (it is the sign flip of gains of one size), and few
differing items are counted out exactly.

Sign flips cannot tell a p-value below one over their number, and a correction for a thousand tests
would then leave nothing. Hoeffding's inequality bounds the exact p-value from above by
2 exp(-S^2 / (2 sum d^2)) for S the sum of differences d; the smaller of the two stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics import (
    CONFIDENCE,
    MAX_EXACT_SIGNS,
    NUM_RESAMPLES,
    Array,
    wilson,
)

CHUNK = 1_000
"""Resamples worked on at a time: bounds memory."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What `mean_intervals` found, one entry a column; NaN where it has no values.

    Attributes:
        num_items: Values in the column.
        mean, low, high: In the values' own unit.
    """

    num_items: NDArray[np.int64]
    mean: Array
    low: Array
    high: Array


def mean_intervals(values: Array, *, seed: int = 0) -> Columns:
    """Intervals of the means of a matrix's columns, resampling its rows.

    Args:
        values: Shape (items, columns); NaN: the column lacks the item.
        seed: Of the resamples.
    """
    known = ~np.isnan(values)
    binary = (np.isin(values, (0.0, 1.0)) | ~known).all(axis=0) & known.any(axis=0)
    found = mean_intervals_of_gains(values, seed=seed, skip=binary)
    for place in np.flatnonzero(binary):
        num = int(found.num_items[place])
        right = int(np.nansum(values[:, place]))
        found.low[place], found.high[place] = wilson(right, num)
    return found


def mean_intervals_of_gains(
    gains: Array, *, seed: int = 0, skip: NDArray[np.bool_] | None = None
) -> Columns:
    """`mean_intervals` by resampling alone: a gain of 0 or 1 is no proportion.

    Args:
        gains: Shape (items, columns); NaN: the column lacks the item.
        seed: Of the resamples.
        skip: Columns whose interval is not wanted; it stays NaN.
    """
    known = ~np.isnan(gains)
    filled, num = np.where(known, gains, 0.0), known.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = filled.sum(axis=0) / num
    low, high = np.full(len(num), np.nan), np.full(len(num), np.nan)
    wanted = num > 0 if skip is None else (num > 0) & ~skip
    some = np.flatnonzero(wanted)
    if len(some):
        means = _resampled_means(filled[:, some], known[:, some], seed)
        tail = (1.0 - CONFIDENCE) / 2
        # A resample may miss all of the few items that a column has: it says nothing then.
        quantile = np.nanquantile if np.isnan(means).any() else np.quantile
        low[some], high[some] = quantile(means, (tail, 1.0 - tail), axis=0)
    return Columns(num, mean, low, high)


@dataclass(frozen=True, slots=True)
class Tests:
    """What `paired_tests` found, one entry a pair; NaN where a pair has no common item.

    Attributes:
        num_items: Items that both have.
        difference, low, high: Of ``b - a``, in the values' own unit.
        p_value: Two-sided, of no difference.
        method: ``mcnemar``, ``sign_flip`` or empty.
    """

    num_items: NDArray[np.int64]
    difference: Array
    low: Array
    high: Array
    p_value: Array
    method: list[str]


def paired_tests(values: Array, pairs: Sequence[tuple[int, int]], *, seed: int = 0) -> Tests:
    """Tests pairs ``(a, b)`` of a matrix's columns item by item.

    Args:
        values: Scores in [0, 1], shape (items, columns); NaN: the column lacks the item.
        pairs: Places of columns.
        seed: Of resamples and sign patterns.
    """
    first = np.array([a for a, _ in pairs], dtype=np.intp)
    second = np.array([b for _, b in pairs], dtype=np.intp)
    gains = values[:, second] - values[:, first]
    found = mean_intervals_of_gains(gains, seed=seed)
    binary = _is_one_size(gains)
    p_value = p_values_of_gains(gains, seed=seed)
    method = [
        "" if not num else "mcnemar" if flag else "sign_flip"
        for num, flag in zip(found.num_items, binary, strict=True)
    ]
    return Tests(found.num_items, found.mean, found.low, found.high, p_value, method)


def p_values_of_gains(gains: Array, *, seed: int = 0) -> Array:
    """Two-sided p-values of no gain, one a column of ``gains`` (items, columns); NaN: no item."""
    binary = _is_one_size(gains)
    p_values = np.where(binary, _mcnemar(gains), _sign_flips(gains, ~binary, seed))
    p_values[np.isnan(gains).all(axis=0)] = np.nan
    return p_values


def _is_one_size(gains: Array) -> NDArray[np.bool_]:
    return np.asarray((np.isin(gains, (-1.0, 0.0, 1.0)) | np.isnan(gains)).all(axis=0))


def _resampled_means(filled: Array, known: NDArray[np.bool_], seed: int) -> Array:
    """Shape (resamples, columns)."""
    complete = bool(known.all())
    values, there = filled.astype(np.float32), known.astype(np.float32)
    parts = []
    for weights in _weights(len(filled), seed):
        sums = weights @ values
        with np.errstate(invalid="ignore"):
            parts.append(sums / (len(filled) if complete else weights @ there))
    return np.concatenate(parts).astype(np.float64)


def _weights(num_items: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """How often each item comes in each resample, `CHUNK` resamples at a time."""
    for part in _drawn(num_items, seed):
        yield part.astype(np.float32)


@lru_cache(maxsize=8)
def _drawn(num_items: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    rng = np.random.default_rng(seed)
    starts = np.arange(CHUNK)[:, None] * num_items
    parts = []
    for _ in range(NUM_RESAMPLES // CHUNK):
        drawn = rng.integers(0, num_items, (CHUNK, num_items)) + starts
        counts = np.bincount(drawn.ravel(), minlength=CHUNK * num_items)
        parts.append(counts.reshape(CHUNK, num_items).astype(np.uint8))
    return tuple(parts)


def _mcnemar(gains: Array) -> Array:
    better, worse = (gains > 0).sum(axis=0), (gains < 0).sum(axis=0)
    both = better + worse
    lower = stats.binom.cdf(np.minimum(better, worse), np.maximum(both, 1), 0.5)
    return np.asarray(np.where(both == 0, 1.0, np.minimum(1.0, 2.0 * lower)))


def _sign_flips(gains: Array, wanted: NDArray[np.bool_], seed: int) -> Array:
    filled = np.nan_to_num(gains)
    moved = (filled != 0).sum(axis=0)
    p_values = np.ones(gains.shape[1])
    for place in np.flatnonzero(wanted & (moved > 0) & (moved <= MAX_EXACT_SIGNS)):
        p_values[place] = _exact_flips(filled[filled[:, place] != 0, place])
    many = np.flatnonzero(wanted & (moved > MAX_EXACT_SIGNS))
    if len(many):
        differences = filled[:, many]
        observed = np.abs(differences.sum(axis=0))
        hits = np.zeros(len(many), dtype=np.int64)
        rng = np.random.default_rng(seed)
        for _ in range(NUM_RESAMPLES // CHUNK):
            signs = rng.integers(0, 2, (CHUNK, len(filled)), dtype=np.int8) * 2.0 - 1.0
            hits += (np.abs(signs @ differences) >= observed - 1e-12).sum(axis=0)
        bound = 2.0 * np.exp(-(observed**2) / (2.0 * (differences**2).sum(axis=0)))
        p_values[many] = np.minimum((hits + 1) / (NUM_RESAMPLES + 1), bound)
    return p_values


def _exact_flips(moved: Array) -> float:
    """The share of all sign patterns whose sum is as far from zero."""
    signs = 2.0 * _patterns(len(moved)) - 1.0
    return float((np.abs(signs @ moved) >= abs(moved.sum()) - 1e-12).mean())


@lru_cache(maxsize=MAX_EXACT_SIGNS)
def _patterns(num: int) -> NDArray[np.int8]:
    patterns: NDArray[np.int8] = ((np.arange(2**num)[:, None] >> np.arange(num)) & 1).astype(
        np.int8
    )
    return patterns
