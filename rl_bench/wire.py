"""What crosses the grading API as JSON: the request, and the bodies of all answers.

With one task, a task's figures stand at the top of an answer, as published clients read them; in
mode multi they stand under ``tasks``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import Field

from rl_bench.config import Frozen

RETRY_AFTER_S = 5
"""When a client is to try again while grading is down."""


class SubmitRequest(Frozen):
    """Body of ``POST /submit``. ``gpu`` is part of the published form and has no effect here."""

    model_path: str
    task: str | None = None
    wait: bool = True
    gpu: str | int | None = Field(default=None)


class SubmissionStatus(StrEnum):
    """Where a submission is. ``FAILED``: grading was down, it is tried again when asked for."""

    PENDING = "pending"
    GRADED = "graded"
    INVALID = "invalid"
    FAILED = "failed"


class Best(Frozen):
    """The best submission on a task so far. ``unchanged``: it is the base model itself."""

    submission_id: int
    score: float
    unchanged: bool = False


class TaskScore(Frozen):
    """A submission's figures on one task, 0 to 100 and points; None: there is none.

    ``within_noise``: the improvement is no larger than what gradings of one checkpoint differ by.
    """

    score: float | None
    baseline_score: float | None
    improvement: float | None
    within_noise: bool | None = None
    best: Best | None


class SubmissionHead(Frozen):
    """What is said of a submission beside its scores. ``message`` says why it has none."""

    submission_id: int
    status: SubmissionStatus
    model_path: str
    unchanged: bool
    total_submissions: int
    message: str = ""


class SubmissionView(SubmissionHead):
    """One submission as an agent in mode multi sees it: its figures by task."""

    tasks: Mapping[str, TaskScore]


class FlatSubmissionView(TaskScore, SubmissionHead):
    """One submission as an agent with one task sees it."""


class Waiting(Frozen):
    """What a submission has beside its view while it is graded: where to ask for the score."""

    status_url: str


class WaitingSubmission(Waiting, SubmissionView):
    """An answer to ``wait=false`` in mode multi."""


class FlatWaitingSubmission(Waiting, FlatSubmissionView):
    """An answer to ``wait=false`` in a run with one task."""


class Scores(Frozen):
    """Body of ``GET /scores``, of a run with one task."""

    baseline_score: float | None
    noise_floor: float | None
    best: Best | None
    total_submissions: int
    submissions: tuple[FlatSubmissionView, ...]


class MultiScores(Frozen):
    """Body of ``GET /scores`` in mode multi: figures by task."""

    baseline_score: Mapping[str, float | None]
    noise_floor: Mapping[str, float | None]
    best: Mapping[str, Best | None]
    total_submissions: int
    submissions: tuple[SubmissionView, ...]


class Health(Frozen):
    """Body of ``GET /health``."""

    status: Literal["ok"] = "ok"


class Refusal(Frozen):
    """Body of every 4xx and 503: what is wrong and what to do."""

    reason: str
    message: str
    cure: str = ""
    file: str = ""
    submission_id: int | None = None


class Times(Frozen):
    """Body of ``GET /time``, seconds on the run's clock."""

    remaining_s: float
    used_s: float
    budget_s: float
    queue_credit_s: float


class Reply(NamedTuple):
    """An answer before it becomes HTTP. ``retry_after_s``: for the header of that name."""

    status: int
    body: dict[str, object]
    retry_after_s: int | None = None


def view_body(view: SubmissionView, *, is_multi: bool) -> dict[str, object]:
    """The JSON of a submission, flat for one task."""
    body = view.model_dump(mode="json")
    if not is_multi:
        for figures in body.pop("tasks").values():
            body.update(figures)
    return body


def refusal(
    status: int,
    reason: str,
    message: str,
    *,
    cure: str = "",
    file: str = "",
    submission_id: int | None = None,
    retry_after_s: int | None = None,
) -> Reply:
    """An answer that says no."""
    body = Refusal(
        reason=reason, message=message, cure=cure, file=file, submission_id=submission_id
    )
    return Reply(status, body.model_dump(exclude_none=True), retry_after_s)
