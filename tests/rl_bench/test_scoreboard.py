"""What an agent is told of its submissions: the best, what is final, what a ledger restores."""

from collections.abc import Callable
from typing import Any

import pytest

from rl_bench.scoreboard import INVALID, Scoreboard, Submission
from rl_bench.wire import SubmissionStatus
from tests.rl_bench.conftest import make_evaluation, make_spec

MakeStory = Callable[..., Any]
TASK = "alfworld"


def submission(number: int, *scores: float | None, failure: str = "") -> Submission:
    """One that was given these verdicts, one after the other."""
    made = Submission(
        submission_id=number,
        model_path="output/m",
        content_hash=f"hash{number}",
        tasks=(TASK,),
        unchanged=False,
    )
    for score in scores:
        made.take([make_evaluation(score, failure=failure if score is None else "")])
    return made


def best_of(*scores: float | None) -> tuple[int, float] | None:
    """The best of submissions 1, 2, … with these scores: its id and score."""
    board = Scoreboard(make_spec())
    board.submissions = [submission(number, score) for number, score in enumerate(scores, start=1)]
    best = board.best(TASK)
    return None if best is None else (best.submission_id, best.score)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((10.0, 30.0, 20.0), (2, 30.0)),
        ((30.0, 10.0), (1, 30.0)),
        ((20.0, 30.0, 30.0), (2, 30.0)),
        ((None, 0.0, None), (2, 0.0)),
        ((None, float("nan"), float("inf")), None),
        ((), None),
    ],
)
def test_the_best_is_the_first_with_the_highest_score(
    scores: tuple[float | None, ...], best: tuple[int, float] | None
) -> None:
    assert best_of(*scores) == best


def test_a_score_is_final_and_a_failure_is_not() -> None:
    assert submission(1, 50.0, 90.0).verdicts[TASK].score == 50.0
    assert submission(1, 50.0, None).verdicts[TASK].score == 50.0
    assert submission(1, None, 40.0).verdicts[TASK].score == 40.0


def test_what_failed_is_still_to_be_graded() -> None:
    board = Scoreboard(make_spec())
    board.submissions = [
        submission(1, 50.0),
        submission(2, None, failure="the engine died"),
        submission(3, None, failure=f"{INVALID} (non_finite): it has NaN"),
        submission(4),
    ]
    assert [each.status for each in board.submissions] == [
        SubmissionStatus.GRADED,
        SubmissionStatus.FAILED,
        SubmissionStatus.INVALID,
        SubmissionStatus.PENDING,
    ]
    assert [each.submission_id for each in board.pending()] == [2, 4]


def test_a_ledger_restores_verdicts(story: MakeStory) -> None:
    board = Scoreboard(make_spec())
    board.restore(story("r").start().baseline(5.0).submit(1, 20.0).submit(2, None).entries)
    assert [each.status for each in board.submissions] == [
        SubmissionStatus.GRADED,
        SubmissionStatus.FAILED,
    ]
    assert board.baseline[TASK].score == 5.0


def test_only_the_last_attempt_is_restored(story: MakeStory) -> None:
    run = story("r").start(0).baseline(5.0).submit(1, 90.0).submit(2, 95.0).finish(final=False)
    board = Scoreboard(make_spec())
    board.restore(run.start(1).entries)
    assert (board.baseline, board.submissions) == ({}, [])
    board.restore(run.baseline(6.0).submit(1, 16.0).entries)
    best = board.best(TASK)
    assert (board.baseline[TASK].score, len(board.submissions), best and best.score) == (6.0, 1, 16)
