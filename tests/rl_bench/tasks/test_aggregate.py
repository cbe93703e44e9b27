"""From item outcomes to a score: denominators, errors, and what is no score."""

import math

import pytest

from rl_bench.tasks.base import ItemOutcome, ItemStatus, aggregate


def items(*scores: float | None) -> list[ItemOutcome]:
    return [
        ItemOutcome(
            item_id=f"i{number}",
            status=ItemStatus.ENV_ERROR if score is None else ItemStatus.OK,
            score=score,
            detail={} if score is not None else {"error": "it broke"},
        )
        for number, score in enumerate(scores)
    ]


def test_items_in_error_stay_in_the_denominator() -> None:
    result = aggregate("t", items(1.0, 1.0, None, 0.0), evaluator_version="1", max_error_fraction=1)
    assert (result.score, result.num_items, result.num_errors) == (50.0, 4, 1)


def test_an_item_in_error_is_not_solved_whatever_score_it_carries() -> None:
    lost = ItemOutcome(item_id="lost", status=ItemStatus.LOST, score=1.0)
    result = aggregate("t", [*items(1.0), lost], evaluator_version="1", max_error_fraction=1)
    assert (result.score, result.num_errors) == (50.0, 1)


def test_errors_up_to_the_limit_leave_the_score() -> None:
    at_limit = aggregate("t", items(1.0, None), evaluator_version="1", max_error_fraction=0.5)
    assert (at_limit.score, at_limit.failure) == (50.0, "")
    above = aggregate("t", items(1.0, None, None), evaluator_version="1", max_error_fraction=0.5)
    assert above.score is None


def test_too_many_errors_void_the_evaluation_and_say_which() -> None:
    result = aggregate("t", items(1.0, None), evaluator_version="1")
    assert result.score is None
    assert result.failure == (
        "1 of 2 items could not be evaluated (1 env_error); most often: it broke"
    )


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_what_is_no_number_is_no_score(score: float) -> None:
    result = aggregate("t", items(1.0), evaluator_version="1", score=score)
    assert result.score is None
    assert "came out as" in result.failure


def test_two_items_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="one id"):
        aggregate("t", items(1.0) * 2, evaluator_version="1")
