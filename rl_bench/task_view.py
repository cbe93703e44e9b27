"""`TaskView`: one task of a run, folded from its verdicts; and what an evaluation says in words.

A failure is never a score: what could not be graded is counted in ``num_failed`` and leaves
``best`` alone. So does a submission that a rule found invalid: its verdict stays, and it is never
the best.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from rl_bench.context_fit import context_remark
from rl_bench.events import Evaluation
from rl_bench.noise import within_noise


def score_of(evaluation: Evaluation) -> float | None:
    """The evaluation's score, or None when it has none or it is no finite number."""
    score = evaluation.score
    return score if score is not None and math.isfinite(score) else None


def failure_of(evaluation: Evaluation) -> str:
    """Why an evaluation has no score; empty when it has one."""
    if score_of(evaluation) is not None:
        return ""
    return evaluation.failure or "no score"


def missing_items(evaluation: Evaluation) -> str:
    """Its items without a verdict, by kind: ``12 of 805 unjudged``; empty when each has one."""
    if not evaluation.num_errors:
        return ""
    kinds = Counter(item.status for item in evaluation.items if item.score is None)
    counts = kinds.most_common() or [("without a verdict", evaluation.num_errors)]
    return ", ".join(f"{num} of {evaluation.num_items} {kind}" for kind, num in counts)


def difference(score: float | None, baseline: float | None) -> float | None:
    """``score - baseline`` in points, or None when either is missing."""
    return None if score is None or baseline is None else score - baseline


@dataclass(slots=True, kw_only=True)
class TaskView:
    """One task of a run, in its last attempt.

    Attributes:
        baseline: The base model's score, 0 to 100; None until graded, or when that failed.
        baseline_scores: When it was graded more than once, the scores whose mean ``baseline`` is.
        noise_floor: What two gradings of one checkpoint differ by, points, see `rl_bench.noise`;
            None when the base model was graded once.
        baseline_missing: Its items without a verdict in words, see `missing_items`.
        baseline_outgrown: What did not fit the model's context, see `rl_bench.context_fit`.
        first, first_submission_id: The earliest valid submission with a score: what later ones
            built on.
        best: The highest score of a valid submission; None while there is none.
        best_submission_id: The first submission, by its id, that has ``best``.
        best_unchanged: That submission was the base model itself.
        num_submissions: Accepted for this task.
        last_missing: The latest graded submission's items without a verdict in words.
        num_incomplete: Submissions with a score although some items have no verdict, and the words
            for the latest of them in ``incomplete_example``.
        queue_s: Seconds that evaluations waited for a grader, the baseline's included.
        load_s: Seconds spent loading weights.
        grading_s: Seconds of evaluation proper.
    """

    task: str
    baseline: float | None = None
    baseline_failure: str = ""
    baseline_scores: tuple[float, ...] = ()
    baseline_num_errors: int | None = None
    baseline_missing: str = ""
    baseline_outgrown: str = ""
    noise_floor: float | None = None
    first: float | None = None
    first_submission_id: int | None = None
    best: float | None = None
    best_submission_id: int | None = None
    best_unchanged: bool = False
    num_submissions: int = 0
    last_submission_id: int | None = None
    last_score: float | None = None
    last_failure: str = ""
    last_missing: str = ""
    num_incomplete: int = 0
    incomplete_example: str = ""
    queue_s: float = 0.0
    load_s: float = 0.0
    grading_s: float = 0.0
    num_items: int | None = None
    evaluator_version: str = ""
    _graded: dict[int, float] = field(default_factory=dict)
    _failed: set[int] = field(default_factory=set)
    _base: set[int] = field(default_factory=set)
    _invalid: set[int] = field(default_factory=set)

    @property
    def improvement(self) -> float | None:
        """``best`` less ``baseline``, in points."""
        return difference(self.best, self.baseline)

    @property
    def within_noise(self) -> bool | None:
        """Whether ``improvement`` lies within the noise floor; None when either is unknown."""
        return within_noise(self.improvement, self.noise_floor)

    @property
    def num_graded(self) -> int:
        """Submissions with a score."""
        return len(self._graded)

    @property
    def num_failed(self) -> int:
        """Submissions whose evaluation gave no score."""
        return len(self._failed)

    @property
    def num_invalid(self) -> int:
        """Accepted submissions that a finding calls a breach of the rules."""
        return len(self._invalid)

    @property
    def num_pending(self) -> int:
        """Accepted and not graded yet."""
        return self.num_submissions - self.num_graded - self.num_failed

    def _take(self, evaluation: Evaluation) -> None:
        self.queue_s += evaluation.queue_s
        self.load_s += evaluation.load_s
        self.grading_s += evaluation.duration_s
        self.num_items = evaluation.num_items
        self.evaluator_version = evaluation.evaluator_version

    def fold_baseline(self, evaluation: Evaluation) -> None:
        """Takes the base model's evaluation."""
        self._take(evaluation)
        self.baseline = score_of(evaluation)
        self.baseline_failure = failure_of(evaluation)
        self.baseline_scores = evaluation.repeat_scores
        self.baseline_num_errors = evaluation.num_errors
        self.baseline_missing = missing_items(evaluation)
        self.baseline_outgrown = context_remark(evaluation)
        self.noise_floor = evaluation.noise_floor

    def fold_submission(self, evaluation: Evaluation, *, submission_id: int, is_base: bool) -> None:
        """Takes a submission's evaluation; a score above ``best`` becomes the best.

        A second verdict counts only when the first was a failure, which it then replaces.
        """
        if submission_id in self._graded:
            return
        self._take(evaluation)
        score = score_of(evaluation)
        self.last_submission_id = submission_id
        self.last_score = score
        self.last_failure = failure_of(evaluation)
        self.last_missing = missing_items(evaluation)
        self._failed.discard(submission_id)
        if is_base:
            self._base.add(submission_id)
        if score is None:
            self._failed.add(submission_id)
            return
        self._graded[submission_id] = score
        if self.last_missing:
            self.num_incomplete += 1
            self.incomplete_example = f"submission {submission_id}: {self.last_missing}"
        self._count(submission_id, score)

    def fold_invalid(self, submission_id: int) -> None:
        """Takes that a submission broke a rule; it may have been graded before."""
        self._invalid.add(submission_id)
        if submission_id in {self.first_submission_id, self.best_submission_id}:
            self.first, self.first_submission_id = None, None
            self.best, self.best_submission_id, self.best_unchanged = None, None, False
            for graded, score in self._graded.items():
                self._count(graded, score)

    def _count(self, submission_id: int, score: float) -> None:
        if submission_id in self._invalid:
            return
        if self.first_submission_id is None or submission_id < self.first_submission_id:
            self.first, self.first_submission_id = score, submission_id
        # Gradings end in any order: of equals the first submission is best, as agents are told.
        best, holder = self.best, self.best_submission_id
        is_tie = score == best and holder is not None and submission_id < holder
        if best is None or score > best or is_tie:
            self.best = score
            self.best_submission_id = submission_id
            self.best_unchanged = submission_id in self._base
