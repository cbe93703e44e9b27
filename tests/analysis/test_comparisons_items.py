"""Intervals and tests over items: against `analysis.statistics`, and with planted differences."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.comparisons.cells import cells, with_standing
from analysis.comparisons.item_tests import item_means, stack_pairs, welch, with_item_intervals
from analysis.comparisons.resampling import mean_intervals, p_values_of_gains, paired_tests
from analysis.results import Results, load
from analysis.statistics import bootstrap_mean, compare_paired, holm, wilson
from tests.analysis.frames import Run, right, write


def test_right_and_wrong_have_the_same_test_as_pair_by_pair() -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.random((200, 4)) < [0.5, 0.55, 0.7, 0.5]).astype(np.float64)
    pairs = [(0, 1), (0, 2), (1, 3)]
    found = paired_tests(matrix, pairs)
    for place, (a, b) in enumerate(pairs):
        single = compare_paired(matrix[:, a], matrix[:, b])
        assert found.p_value[place] == pytest.approx(single.p_value)
        assert found.difference[place] == pytest.approx(single.difference)
        assert found.low[place] == pytest.approx(single.interval.low, abs=0.006)
        assert found.high[place] == pytest.approx(single.interval.high, abs=0.006)
        assert found.method[place] == single.method == "mcnemar"
    intervals = mean_intervals(matrix)
    assert (intervals.low[0], intervals.high[0]) == wilson(int(matrix[:, 0].sum()), 200)


def test_shares_have_the_same_test_as_pair_by_pair() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.choice([0.0, 0.25, 0.5, 1.0], (60, 3))
    found = paired_tests(matrix, [(0, 1), (1, 2)])
    for place, (a, b) in enumerate([(0, 1), (1, 2)]):
        single = compare_paired(matrix[:, a], matrix[:, b])
        assert found.p_value[place] == pytest.approx(single.p_value, abs=0.03)
        assert found.method[place] == single.method == "sign_flip"
    interval = bootstrap_mean(matrix[:, 0])
    assert mean_intervals(matrix).low[0] == pytest.approx(interval.low, abs=0.01)


def test_few_differing_items_are_counted_out_exactly() -> None:
    gains = np.zeros((50, 1))
    gains[:5, 0] = [0.25, 0.5, 0.5, 0.25, 0.75]
    assert p_values_of_gains(gains)[0] == pytest.approx(2 / 2**5)


def test_a_clear_difference_is_not_limited_by_the_number_of_flips() -> None:
    rng = np.random.default_rng(2)
    gains = rng.choice([0.25, 0.5], (200, 1))
    exact = stats.norm.sf(gains.sum() / np.sqrt((gains**2).sum())) * 2
    found = p_values_of_gains(gains)[0]
    assert exact < found < 1e-30


def test_p_values_of_no_difference_are_honest() -> None:
    rng = np.random.default_rng(3)
    gains = rng.normal(size=(80, 400)).round(2)
    share = float((p_values_of_gains(gains) < 0.05).mean())
    assert 0.02 < share < 0.09


def test_items_that_one_side_lacks_are_left_out_of_both() -> None:
    matrix = np.array([[0.0, 1.0], [np.nan, 1.0], [0.5, np.nan], [0.5, 0.5]])
    found = paired_tests(matrix, [(0, 1)])
    assert found.num_items[0] == 2
    assert found.difference[0] == 0.5
    nothing = paired_tests(np.array([[np.nan, 1.0], [1.0, np.nan]]), [(0, 1)])
    assert nothing.num_items[0] == 0
    assert np.isnan(nothing.p_value[0])
    assert np.isnan(nothing.low[0])
    assert nothing.method == [""]


def test_welch_equals_scipys() -> None:
    a, b = [50.0, 52.0, 49.0], [60.0, 58.0, 66.0, 61.0]
    theirs = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert welch(a, b) == pytest.approx(float(theirs))
    assert welch([50.0], b) is None
    assert welch([50.0, 50.0], [50.0, 50.0]) is None


def planted(folder: Path) -> Results:
    """Stack b beats a by 20 points on the same items, c equals a; d's runs do not count."""
    base, better = right(40, 100, seed=5), right(40, 100, seed=5)
    for place in [i for i, score in enumerate(better) if score == 0][:20]:
        better[place] = 1.0
    runs = [
        Run(
            name=f"{agent}{seed}", agent=agent, seed=seed, baseline=40.0, scores=[30.0, score],
            items={0: base, 1: right(30, 100, seed=8), 2: items},
            is_invalid=agent == "d",
        )
        for agent, score, items in (
            ("a", 40.0, base), ("b", 60.0, better), ("c", 40.0, base), ("d", 60.0, better)
        )
        for seed in range(2)
    ]  # fmt: skip
    return load([write(folder, runs)])


def test_planted_differences_are_found_and_equals_are_not(tmp_path: Path) -> None:
    results = planted(tmp_path)
    runs = with_standing(results.runs)
    means = item_means(results, runs)
    assert set(means["stack"]) == {"a/d", "b/d", "c/d"}
    assert means["num_runs"].unique().to_list() == [2]
    pairs = stack_pairs(means, runs)
    found = {(row["stack_a"], row["stack_b"]): row for row in pairs.to_dicts()}
    assert set(found) == {("a/d", "b/d"), ("a/d", "c/d"), ("b/d", "c/d")}
    gap, same = found["a/d", "b/d"], found["a/d", "c/d"]
    assert gap["difference"] == pytest.approx(20.0)
    assert gap["low"] > 0
    assert gap["p_value"] == pytest.approx(2 / 2**20)
    assert gap["num_items"] == 100
    assert (gap["num_seeds_a"], gap["num_seeds_b"]) == (2, 2)
    assert (same["difference"], same["p_value"], same["p_holm"]) == (0.0, 1.0, 1.0)
    assert pairs["p_holm"].to_list() == pytest.approx(holm(pairs["p_value"].to_list()))


def test_cells_get_the_intervals_of_their_items(tmp_path: Path) -> None:
    results = planted(tmp_path)
    runs = with_standing(results.runs)
    found = with_item_intervals(cells(runs), item_means(results, runs))
    rows = {row["stack"]: row for row in found.to_dicts()}
    low, high = wilson(40, 100)
    assert rows["a/d"]["item_low"] == pytest.approx(100 * low)
    assert rows["a/d"]["item_high"] == pytest.approx(100 * high)
    assert rows["a/d"]["p_gain"] == 1.0
    assert rows["b/d"]["p_gain"] == pytest.approx(2 / 2**20)
    assert rows["b/d"]["p_gain_holm"] == pytest.approx(3 * 2 / 2**20)
    assert rows["b/d"]["gain_item_low"] > 0
    assert rows["d/d"]["item_low"] is None
    assert rows["d/d"]["num_items"] is None


def test_items_are_joined_by_their_ids_not_their_order(tmp_path: Path) -> None:
    ids = [f"q{place}" for place in range(30)]
    scores = right(12, 30, seed=1)
    runs = [
        Run(name="a", agent="a", scores=[40.0], items={1: scores}, item_ids=ids),
        Run(name="b", agent="b", scores=[40.0], items={1: scores[::-1]}, item_ids=ids[::-1]),
        Run(name="c", agent="c", scores=[40.0], items={1: [*scores[:20], *[None] * 10]},
            item_ids=ids),
    ]  # fmt: skip
    results = load([write(tmp_path, runs)])
    pairs = stack_pairs(item_means(results))
    assert pairs["difference"].to_list() == [0.0, 0.0, 0.0]
    assert pairs["num_items"].to_list() == [30, 20, 20]
    assert pairs["seed_p_value"].to_list() == [None] * 3


def test_no_items_no_tests(tmp_path: Path) -> None:
    results = load([write(tmp_path, [Run(name="a", scores=[60.0])])])
    means = item_means(results)
    assert means.is_empty()
    assert stack_pairs(means).is_empty()
    found = with_item_intervals(cells(results.runs), means)
    assert found.select(pl.col("item_low", "p_gain", "num_items").null_count()).row(0) == (1, 1, 1)
