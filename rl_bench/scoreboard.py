"""What is known of a run's submissions and their scores, and how the agent is shown it.

Plain state, no waiting and no files: `rl_bench.grading_desk` changes it, and a ledger rebuilds it.
A missing score stays missing: it is never a zero, never best, and a later failure does not take a
score away.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rl_bench.config import RunSpec, TaskConfig
from rl_bench.events import (
    BaselineGraded,
    Entry,
    Evaluation,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.noise import within_noise
from rl_bench.wire import Best, SubmissionStatus, SubmissionView, TaskScore, view_body

INVALID = "invalid_submission"
"""How the failure of an evaluation begins when the checkpoint, not the grader, was at fault."""


def score_of(verdict: Evaluation | None) -> float | None:
    """The verdict's score; None when there is none or it is no finite number."""
    if verdict is None or verdict.score is None or not math.isfinite(verdict.score):
        return None
    return verdict.score


def failures(tasks: Iterable[TaskConfig], failure: str) -> tuple[Evaluation, ...]:
    """A verdict without a score for each of ``tasks``."""
    return tuple(
        Evaluation(
            task=task.name,
            score=None,
            failure=failure[:1000],
            num_items=0,
            num_errors=0,
            evaluator_version="",
        )
        for task in tasks
    )


@dataclass(slots=True, kw_only=True)
class Submission:
    """An accepted submission and what is known of it; ``verdicts`` by task."""

    submission_id: int
    model_path: str
    content_hash: str
    tasks: tuple[str, ...]
    unchanged: bool
    verdicts: dict[str, Evaluation] = field(default_factory=dict)
    is_grading: bool = False

    @property
    def status(self) -> SubmissionStatus:
        """Where it is now."""
        if self.is_grading or not self.verdicts:
            return SubmissionStatus.PENDING
        if any(verdict.failure.startswith(INVALID) for verdict in self.verdicts.values()):
            return SubmissionStatus.INVALID
        if all(score_of(self.verdicts.get(task)) is not None for task in self.tasks):
            return SubmissionStatus.GRADED
        return SubmissionStatus.FAILED

    @property
    def is_final(self) -> bool:
        """Nothing more will be graded."""
        return self.status in {SubmissionStatus.GRADED, SubmissionStatus.INVALID}

    @property
    def message(self) -> str:
        """Why a score is missing; empty when none is."""
        texts = (verdict.failure for verdict in self.verdicts.values())
        return next((text for text in texts if text), "")

    def take(self, evaluations: Iterable[Evaluation]) -> None:
        """Adds verdicts; one with a score is final."""
        for verdict in evaluations:
            if score_of(self.verdicts.get(verdict.task)) is None:
                self.verdicts[verdict.task] = verdict


class Scoreboard:
    """The submissions of one attempt at a run, in order, and its baseline.

    Attributes:
        baseline: The base model's verdicts by task.
        submissions: ``submissions[i]`` has the id ``i + 1``.
        is_multi: Answers have a part a task.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._names = tuple(task.name for task in spec.tasks)
        self.is_multi = spec.mode.name == "multi" or len(self._names) > 1
        self.baseline: dict[str, Evaluation] = {}
        self.submissions: list[Submission] = []

    def restore(self, entries: Iterable[Entry]) -> None:
        """Takes over what a ledger holds of its last attempt."""
        for entry in entries:
            match entry.event:
                case RunStarted():
                    self.baseline, self.submissions = {}, []
                case BaselineGraded() as event:
                    self.baseline = {verdict.task: verdict for verdict in event.evaluations}
                case SubmissionAccepted() as event:
                    self.submissions.append(
                        Submission(
                            submission_id=event.submission_id,
                            model_path=event.model_path,
                            content_hash=event.content_hash,
                            tasks=event.tasks,
                            unchanged=event.unchanged,
                        )
                    )
                case SubmissionGraded() as event:
                    submission = self.find(event.submission_id)
                    if submission is not None:
                        submission.take(event.evaluations)

    def find(self, submission_id: int) -> Submission | None:
        """The submission with that id."""
        matches = (sub for sub in self.submissions if sub.submission_id == submission_id)
        return next(matches, None)

    def pending(self) -> list[Submission]:
        """Accepted, but without a final verdict."""
        return [submission for submission in self.submissions if not submission.is_final]

    def known(self, submission: Submission, *, base_hash: str) -> tuple[Evaluation, ...]:
        """Scores that the same content has already, marked as reused."""
        found: dict[str, Evaluation] = {}
        sources: list[Mapping[str, Evaluation]] = [
            other.verdicts
            for other in self.submissions
            if other.content_hash == submission.content_hash
        ]
        if submission.content_hash == base_hash:
            sources.insert(0, self.baseline)
        for verdicts in sources:
            for name in submission.tasks:
                verdict = verdicts.get(name)
                if verdict is not None and score_of(verdict) is not None and name not in found:
                    free = {"reused": True, "queue_s": 0.0, "load_s": 0.0, "duration_s": 0.0}
                    found[name] = verdict.model_copy(update=free)
        return tuple(found.values())

    def best(self, task: str) -> Best | None:
        """The first submission with the highest score on ``task``."""
        best: Best | None = None
        for submission in self.submissions:
            score = score_of(submission.verdicts.get(task))
            if score is not None and (best is None or score > best.score):
                best = Best(
                    submission_id=submission.submission_id,
                    score=score,
                    unchanged=submission.unchanged,
                )
        return best and best.model_copy(update={"score": round(best.score, 2)})

    def body(self, submission: Submission) -> dict[str, object]:
        """The submission as JSON for the agent."""
        view = SubmissionView(
            submission_id=submission.submission_id,
            status=submission.status,
            model_path=submission.model_path,
            unchanged=submission.unchanged,
            total_submissions=len(self.submissions),
            message=submission.message,
            tasks={name: self._figures(submission, name) for name in submission.tasks},
        )
        return view_body(view, is_multi=self.is_multi)

    def scores(self) -> dict[str, object]:
        """Everything as JSON for the agent; `scores.json` holds the same."""
        best = {name: self.best(name) for name in self._names}
        baseline = {name: _rounded(score_of(self.baseline.get(name))) for name in self._names}
        noise = {name: _rounded(self._noise_floor(name)) for name in self._names}
        shown = {name: found and found.model_dump(mode="json") for name, found in best.items()}
        first = self._names[0]
        return {
            "baseline_score": baseline if self.is_multi else baseline[first],
            "noise_floor": noise if self.is_multi else noise[first],
            "best": shown if self.is_multi else shown[first],
            "total_submissions": len(self.submissions),
            "submissions": [self.body(submission) for submission in self.submissions],
        }

    def _figures(self, submission: Submission, task: str) -> TaskScore:
        score = score_of(submission.verdicts.get(task))
        baseline = score_of(self.baseline.get(task))
        improvement = None if score is None or baseline is None else score - baseline
        return TaskScore(
            score=_rounded(score),
            baseline_score=_rounded(baseline),
            improvement=_rounded(improvement),
            within_noise=within_noise(improvement, self._noise_floor(task)),
            best=self.best(task),
        )

    def _noise_floor(self, task: str) -> float | None:
        verdict = self.baseline.get(task)
        return None if verdict is None else verdict.noise_floor


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
