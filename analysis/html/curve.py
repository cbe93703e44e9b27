"""A run's scores over its budget as places in a drawing; the template draws them as SVG.

Colours are the page's classes, so that the drawing follows light and dark.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from analysis.html.words import clock, number
from analysis.run_tables import Row
from rl_bench.counts import plural

WIDTH, HEIGHT = 720.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 14.0, 34.0
_HOURS = (
    1 / 360,
    1 / 120,
    1 / 60,
    1 / 30,
    1 / 12,
    1 / 4,
    1 / 2,
    1.0,
    2.0,
    3.0,
    6.0,
    12.0,
    24.0,
    48.0,
    96.0,
)
_MAX_TICKS = 7


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line and its words."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A submission: ``kind`` is ``valid``, ``best`` or ``invalid``."""

    x: float
    y: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One task's drawing.

    Attributes:
        steps: The path of the best so far; empty without a valid score.
        baseline: Where the base model's score is; None: it has none.
        summary: The drawing in words.
    """

    task: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    steps: str
    baseline: float | None
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    summary: str


def curve(submissions: Sequence[Row], *, task: str, baseline: float | None, end_s: float) -> Curve:
    """The drawing of one run and task.

    Args:
        submissions: Its rows of table ``submissions``.
        task: The task.
        baseline: The base model's score.
        end_s: Until when, on the run's clock.
    """
    own = [row for row in submissions if row["task"] == task and row["score"] is not None]
    scored = sorted(own, key=itemgetter("budget_used_s", "submission_id"))
    end_s = max([end_s, 60.0, *(row["budget_used_s"] for row in scored)])
    scores = [*(row["score"] for row in scored), *([] if baseline is None else [baseline])]
    low, high, step = _bounds(scores)

    def x(at_s: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * at_s / end_s, 1)

    def y(score: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - score) / (high - low), 1)

    steps: list[str] = []
    marks: list[Mark] = []
    best: float | None = None
    for row in scored:
        at, score = x(row["budget_used_s"]), row["score"]
        kind = "invalid" if row["is_invalid"] else "valid"
        if kind == "valid" and (best is None or score > best):
            steps.append(f"M{at} {y(score)}" if best is None else f"H{at} V{y(score)}")
            best, kind = score, "best"
        told = (
            f"submission {row['submission_id']}: {number(score)} at {clock(row['budget_used_s'])}"
        )
        marks.append(Mark(at, y(score), kind, told + (", invalid" if row["is_invalid"] else "")))
    if steps:
        steps.append(f"H{x(end_s)}")
    num = math.floor((high - low) / step + 1e-9)
    return Curve(
        task=task,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=HEIGHT - BOTTOM,
        steps=" ".join(steps),
        baseline=None if baseline is None else y(baseline),
        marks=tuple(marks),
        x_ticks=_times(end_s, x),
        y_ticks=tuple(
            Tick(y(low + i * step), number(low + i * step, 0 if step >= 1 else 1))
            for i in range(num + 1)
        ),
        summary=_summary(task, baseline, best, marks),
    )


def _summary(task: str, baseline: float | None, best: float | None, marks: Sequence[Mark]) -> str:
    scores = plural(len(marks), "score")
    return f"{task}: base model {number(baseline)}, {scores}, best valid {number(best)}"


def _bounds(scores: Sequence[float]) -> tuple[float, float, float]:
    """Low, high and grid step that hold every score."""
    low, high = (min(scores), max(scores)) if scores else (0.0, 100.0)
    room = max((high - low) * 0.1, 1.0)
    low, top = max(low - room, min(low, 0.0)), high + room
    rough = (top - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    top = math.ceil(top / step) * step
    return math.floor(low / step) * step, 100.0 if high <= 100.0 < top else top, step


def _times(end_s: float, x: Callable[[float], float]) -> tuple[Tick, ...]:
    step_h = next((h for h in _HOURS if end_s / 3600 / h <= _MAX_TICKS), end_s / 3600 / _MAX_TICKS)
    num = int(end_s / 3600 / step_h + 1e-9)
    return tuple(Tick(x(i * step_h * 3600), _time(i * step_h)) for i in range(num + 1))


def _time(hours: float) -> str:
    if hours == 0:
        return "0"
    if hours >= 1:
        return f"{hours:g} h"
    seconds = round(hours * 3600)
    return f"{seconds} s" if seconds % 60 else f"{seconds // 60} min"
