"""The noise floor against figures worked out by hand."""

import pytest

from rl_bench.noise import floor_of_mean, repeatability_limit, within_noise


def test_the_floor_is_the_repeatability_limit() -> None:
    assert repeatability_limit([45.0, 47.0]) == pytest.approx(1.96 * 2**0.5 * 2**0.5)
    assert repeatability_limit([50.0, 50.0, 50.0]) == 0.0


def test_one_grading_tells_no_noise() -> None:
    assert repeatability_limit([45.0]) is None
    assert within_noise(3.0, None) is None
    assert within_noise(None, 3.0) is None


@pytest.mark.parametrize(
    ("difference", "inside"), [(0.5, True), (2.0, True), (2.1, False), (-2.0, True), (-2.1, False)]
)
def test_a_gain_is_held_against_the_floor(difference: float, inside: bool) -> None:
    assert within_noise(difference, 2.0) is inside


def test_independent_noise_averages_out_over_tasks() -> None:
    assert floor_of_mean([3.0, 4.0]) == 2.5
    assert floor_of_mean([2.0] * 4) == 1.0
    assert floor_of_mean([]) is None
