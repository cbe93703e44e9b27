"""How much a score moves by itself: the noise floor of a task's evaluation.

The same checkpoint is graded k times. Two gradings of one checkpoint then differ by less than the
repeatability limit in 95 of 100 cases (ISO 5725-6: 1.96 x sqrt(2) standard deviations). A gain
within it says nothing. It covers the evaluation's own noise (judge, search, batching), not the
sampling of items or of runs.
"""

import math
from collections.abc import Sequence
from statistics import stdev

COVERAGE_FACTOR = 1.96 * math.sqrt(2)


def repeatability_limit(scores: Sequence[float]) -> float | None:
    """The noise floor in points, from at least two gradings of one checkpoint, else ``None``."""
    return COVERAGE_FACTOR * stdev(scores) if len(scores) > 1 else None


def floor_of_mean(floors: Sequence[float]) -> float | None:
    """The noise floor of the mean of several tasks' scores, whose noise is independent."""
    return math.hypot(*floors) / len(floors) if floors else None


def within_noise(difference: float | None, floor: float | None) -> bool | None:
    """Whether a difference of two scores lies within the floor; ``None`` when either is unknown."""
    if difference is None or floor is None:
        return None
    return abs(difference) <= floor
