"""Turning points of a run: the submissions after which it stood differently."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from analysis.case_model import TurningPoint
from analysis.route_model import Segment
from analysis.trajectories import SCORED

MIN_CHANGE = 1.0
"""Points: where the noise floor is not known, a smaller change is no turn."""
_Row = Mapping[str, Any]


def turning_points(
    tries: Sequence[_Row], runs: Sequence[_Row], segments: Sequence[Segment]
) -> Iterator[TurningPoint]:
    """The turns of each task, in order of time.

    Args:
        tries: Rows of `analysis.trajectories.trajectory` of one run.
        runs: The run's rows of table ``runs``, one a task.
        segments: Its route.
    """
    for run in runs:
        own = [row for row in tries if row["task"] == run["task"]]
        found = list(_turns(own, run, segments))
        yield from sorted(found, key=lambda turn: turn.at_s)


def _turns(tries: Sequence[_Row], run: _Row, segments: Sequence[Segment]) -> Iterator[TurningPoint]:
    least = run["noise_floor"] if run["noise_floor"] is not None else MIN_CHANGE
    scored = [row for row in tries if row["kind"] in SCORED and row["score"] is not None]
    if not scored:
        return
    yield _turn("first_score", scored[0], scored[0]["gain"], segments)
    above = next((row for row in scored if (row["gain"] or 0.0) > 0), None)
    if above is not None and above is not scored[0]:
        yield _turn("above_baseline", above, above["gain"], segments)
    later = [row for row in scored if row["best_before"] is not None]
    leap = max(later, key=_change, default=None)
    if leap is not None and _change(leap) > least:
        yield _turn("leap", leap, _change(leap), segments)
    fallen = [row for row in later if row["kind"] == "valid"]
    setback = min(fallen, key=_change, default=None)
    if setback is not None and _change(setback) < -least:
        yield _turn("setback", setback, _change(setback), segments)
    best = next((r for r in scored if r["submission_id"] == run["best_submission_id"]), None)
    if best is not None and best is not scored[0]:
        yield _turn("best", best, best["gain"], segments)


def _change(row: _Row) -> float:
    return float(row["score"] - row["best_before"])


def _turn(
    kind: Literal["first_score", "above_baseline", "leap", "setback", "best"],
    row: _Row,
    change: float | None,
    segments: Sequence[Segment],
) -> TurningPoint:
    number = row["submission_id"]
    stage = next((s.kind.value for s in segments if number in s.submissions), "")
    return TurningPoint(
        kind=kind,
        task=row["task"],
        submission_id=number,
        at_s=row["at_s"],
        score=row["score"],
        change=change,
        stage=stage,
    )
