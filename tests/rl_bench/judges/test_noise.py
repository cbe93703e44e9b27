"""A judge's noise: by hand, by known cases, and against a simulation."""

import random
from statistics import fmean, stdev

import pytest

from rl_bench.judges.noise import noise_metrics


def test_one_vote_an_item_says_nothing() -> None:
    assert noise_metrics([]) == {}
    assert noise_metrics([[1.0], [0.0], []]) == {}


def test_a_judge_that_agrees_with_itself_adds_nothing() -> None:
    assert noise_metrics([[1.0, 1.0], [0.0, 0.0, 0.0]]) == {
        "judge/agreement": 1.0,
        "judge/noise_points": 0.0,
    }


def test_by_hand() -> None:
    # Items: variance 1/2 over 2 votes, 0 over 2, 1/3 over 3; agreement 0, 1, 1/3.
    metrics = noise_metrics([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0, 1.0]])
    assert metrics["judge/agreement"] == pytest.approx((0 + 1 + 1 / 3) / 3)
    assert metrics["judge/noise_points"] == pytest.approx(100 * (0.25 + 0 + 1 / 9) ** 0.5 / 3)


def test_a_single_vote_is_as_noisy_as_the_others() -> None:
    metrics = noise_metrics([[0.0, 1.0], [1.0], []])
    assert metrics["judge/noise_points"] == pytest.approx(100 * (0.25 + 0.5) ** 0.5 / 2)


def test_it_is_the_spread_of_scores_over_gradings() -> None:
    draw = random.Random(0)
    chances = [draw.choice([0.05, 0.5, 0.9]) for _ in range(100)]

    def grade() -> list[list[float]]:
        return [[float(draw.random() < chance) for _ in range(3)] for chance in chances]

    gradings = [grade() for _ in range(300)]
    spread = stdev(100 * fmean(fmean(votes) for votes in grading) for grading in gradings)
    told = fmean(noise_metrics(grading)["judge/noise_points"] for grading in gradings)
    assert told == pytest.approx(spread, rel=0.1)
