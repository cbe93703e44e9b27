"""The statistics against scipy's own, and against cases that can be counted by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics import (
    benjamini_hochberg,
    best_of_k,
    bootstrap_mean,
    compare_paired,
    holm,
    pass_at_k,
    rank_correlation,
    score_interval,
    wilson,
)


def test_wilson_of_a_known_proportion() -> None:
    # z = 1.96: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), n = 100, p = 0.9
    low, high = wilson(90, 100)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)
    assert wilson(0, 10).low == 0.0
    with pytest.raises(ValueError, match=r"n|k"):
        wilson(3, 2)


def test_bootstrap_equals_scipys() -> None:
    values = np.random.default_rng(1).choice([0.0, 0.25, 0.5, 1.0], 300)
    ours = bootstrap_mean(values, seed=3)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(4)
    ).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.003)
    assert ours.high == pytest.approx(theirs.high, abs=0.003)
    assert bootstrap_mean(values, seed=3) == ours


def test_the_interval_fits_the_scores() -> None:
    assert score_interval([1.0, 0.0, 1.0, 1.0]) == wilson(3, 4)
    assert score_interval([0.5, 0.0, 1.0, 1.0], seed=1) == bootstrap_mean([0.5, 0, 1, 1], seed=1)
    with pytest.raises(ValueError, match="not finite"):
        score_interval([math.nan])
    with pytest.raises(ValueError, match="no values"):
        score_interval([])


def test_right_and_wrong_are_compared_by_mcnemar() -> None:
    a = [0.0] * 12 + [1.0] * 88
    b = [1.0] * 10 + [0.0] * 2 + [1.0] * 85 + [0.0] * 3
    result = compare_paired(a, b)
    assert result.method == "mcnemar"
    assert result.difference == pytest.approx(0.07)
    assert result.p_value == pytest.approx(stats.binomtest(10, 13).pvalue)
    assert compare_paired(a, a).p_value == 1.0


def test_few_graded_scores_are_compared_exactly() -> None:
    a, b = np.array([0.1, 0.4, 0.3, 0.5, 0.2]), np.array([0.3, 0.5, 0.2, 0.9, 0.6])
    gains = b - a
    as_extreme = [
        abs(sum(sign * gain for sign, gain in zip(signs, gains, strict=True))) >= gains.sum() - 1e-9
        for signs in itertools.product((-1, 1), repeat=5)
    ]
    result = compare_paired(a, b)
    assert result.method == "sign_flip"
    assert result.p_value == pytest.approx(np.mean(as_extreme))


def test_many_graded_scores_are_compared_like_scipy() -> None:
    rng = np.random.default_rng(0)
    a = rng.random(200)
    b = np.clip(a + rng.normal(0.02, 0.15, 200), 0, 1)
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(y - x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=9_999,
        rng=np.random.default_rng(1),
    )
    assert compare_paired(a, b).p_value == pytest.approx(theirs.pvalue, abs=0.02)


def test_pairs_must_fit() -> None:
    with pytest.raises(ValueError, match="2 and 1 items"):
        compare_paired([1, 0], [1])


def test_corrections() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert benjamini_hochberg([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert holm([]) == benjamini_hochberg([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_corrected_values_keep_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(new >= old for old, new in zip(p_values, corrected, strict=True))
    pairs = sorted(zip(p_values, corrected, strict=True))
    assert all(one[1] <= two[1] for one, two in itertools.pairwise(pairs))


@given(st.integers(1, 8), st.data())
def test_pass_at_k_counts_every_draw(num: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, num)), data.draw(st.integers(1, num))
    samples = [True] * correct + [False] * (num - correct)
    draws = list(itertools.combinations(samples, k))
    assert pass_at_k(num, correct, k) == pytest.approx(np.mean([any(draw) for draw in draws]))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=7), st.data())
def test_best_of_k_counts_every_draw(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    draws = list(itertools.combinations(scores, k))
    assert best_of_k(scores, k) == pytest.approx(np.mean([max(draw) for draw in draws]))


def test_rank_correlation() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0], [10.0, 30.0, 20.0, 40.0]
    result = rank_correlation(x, y)
    assert result.num_pairs == 4
    assert result.rho == pytest.approx(0.8)
    orders = [stats.spearmanr(x, order).statistic for order in itertools.permutations(y)]
    assert result.p_value == pytest.approx(np.mean([abs(rho) >= 0.8 - 1e-9 for rho in orders]))
    assert rank_correlation([1, 2, 3], [1, 2, 3]).p_value == pytest.approx(1 / 3)
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]).rho)
    assert math.isnan(rank_correlation([], []).rho)
