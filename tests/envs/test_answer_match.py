"""Whether an answer matches, by the rule itself; what an episode pays is in `test_deepsearchqa`."""

import pytest

from envs.answer_match import SET_ANSWER, SINGLE_ANSWER, match


@pytest.mark.parametrize("answer_type", [SINGLE_ANSWER, SET_ANSWER])
@pytest.mark.parametrize("reference", ["Ely", "?", ""])
@pytest.mark.parametrize("answer", ["", "  ", "—"])
def test_saying_nothing_matches_nothing(answer: str, reference: str, answer_type: str) -> None:
    assert match(answer, reference, answer_type=answer_type) == 0.0


@pytest.mark.parametrize(
    ("answer", "share"),
    [
        ("York, Ely and Ripon", 1.0),
        ("York", 2 * 1 / (1 + 3)),
        ("York, Hull", 2 * 1 / (2 + 3)),
        ("York, york, THE York", 2 * 1 / (1 + 3)),
        ("York, Ely, Ripon, Hull, Leeds", 2 * 3 / (5 + 3)),
    ],
)
def test_lists_are_worth_their_f1(answer: str, share: float) -> None:
    assert match(answer, "Ely, York and Ripon", answer_type=SET_ANSWER) == pytest.approx(share)
