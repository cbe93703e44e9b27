"""What tasks check alike: too few rows, and how items ended."""

import pytest

from rl_bench.errors import MissingDataError, PreflightError
from rl_bench.tasks.base import ItemOutcome, ItemStatus
from rl_bench.tasks.checks import check_count, completion_endings, episode_endings


def item(number: int, **detail: str) -> ItemOutcome:
    return ItemOutcome(item_id=str(number), status=ItemStatus.OK, score=0.0, detail=detail)


def test_more_than_a_whole_data_set_has_is_to_be_lowered() -> None:
    with pytest.raises(PreflightError, match=r"134 eval rows found, 135 wanted.*to 134$") as caught:
        check_count("t", split="eval", found=134, wanted=135, complete=134, cure="Fetch them")
    assert not isinstance(caught.value, MissingDataError)


@pytest.mark.parametrize(("found", "wanted"), [(0, None), (0, 5), (3, 5)])
def test_what_is_incomplete_is_to_be_had(found: int, wanted: int | None) -> None:
    with pytest.raises(MissingDataError, match="Fetch them"):
        check_count("t", split="eval", found=found, wanted=wanted, complete=134, cure="Fetch them")


@pytest.mark.parametrize(("found", "wanted"), [(1, None), (5, 5), (6, 5)])
def test_enough_is_enough(found: int, wanted: int | None) -> None:
    check_count("t", split="train", found=found, wanted=wanted)


def test_endings_are_in_percent_of_all_items() -> None:
    reasons = ("stop", "length", "prompt_too_long", "prompt_too_long")
    static = [item(n, finish_reason=reason) for n, reason in enumerate(reasons)]
    assert completion_endings(static) == {
        "cut_off_percent": 25.0,
        "prompt_too_long_percent": 50.0,
    }
    played = [item(0, ended_by="context_window"), item(1, ended_by="solved"), item(2), item(3)]
    assert episode_endings(played) == {"context_window_percent": 25.0}
