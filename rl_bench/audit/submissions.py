"""A run's submissions in its last attempt, as far as an audit asks for them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_bench.events import BaselineGraded, Entry, Evaluation, SubmissionAccepted, SubmissionGraded


@dataclass(slots=True, kw_only=True)
class Submission:
    """One accepted submission.

    Attributes:
        used_s: When it was accepted, on the run's clock.
        gains: Score less baseline, points, by task; tasks without either are left out.
    """

    submission_id: int
    content_hash: str
    model_path: str
    used_s: float
    unchanged: bool
    gains: dict[str, float] = field(default_factory=dict)

    @property
    def gain(self) -> float | None:
        """The mean over tasks; None when nothing was scored."""
        return sum(self.gains.values()) / len(self.gains) if self.gains else None


def submissions_of(entries: Sequence[Entry]) -> list[Submission]:
    """All of them, in order."""
    baseline: dict[str, float] = {}
    found: dict[int, Submission] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, BaselineGraded):
            baseline = dict(_scores(event.evaluations))
        elif isinstance(event, SubmissionAccepted):
            found[event.submission_id] = Submission(
                submission_id=event.submission_id,
                content_hash=event.content_hash,
                model_path=event.model_path,
                used_s=event.budget_used_s,
                unchanged=event.unchanged,
            )
        elif isinstance(event, SubmissionGraded) and event.submission_id in found:
            submission, scores = found[event.submission_id], _scores(event.evaluations)
            told = {
                task: score - baseline[task] for task, score in scores.items() if task in baseline
            }
            # As everywhere, a score stands whatever is told after it.
            submission.gains = told | submission.gains
    return list(found.values())


def best_of(submissions: Sequence[Submission]) -> Submission | None:
    """The one with the highest gain, the first of equals; None when none has a score."""
    scored = [s for s in submissions if s.gain is not None and not s.unchanged]
    return max(scored, key=lambda s: s.gain or 0.0, default=None)


def _scores(evaluations: Sequence[Evaluation]) -> Mapping[str, float]:
    return {e.task: e.score for e in evaluations if e.score is not None and math.isfinite(e.score)}
