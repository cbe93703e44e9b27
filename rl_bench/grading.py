"""The contract between a run and whatever grades its checkpoints.

A run holds a `Grade`; whether a pool of actors or an engine in the same process stands behind it
is not its business.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rl_bench.config import ModelConfig, TaskConfig
from rl_bench.events import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeJob:
    """One checkpoint to grade.

    Attributes:
        submission_id: ``None`` for the baseline, which goes before every submission.
        snapshot: A checkpoint folder that nobody changes any more.
        content_hash: Digest of the snapshot; equal content is graded once a task.
        tasks: Grade on each of these.
        model: The base model: engine settings and context length.
    """

    run_id: str
    submission_id: int | None
    snapshot: Path
    content_hash: str
    tasks: tuple[TaskConfig, ...]
    model: ModelConfig


class Grade(Protocol):
    """Grades a job."""

    async def __call__(self, job: GradeJob) -> tuple[Evaluation, ...]:
        """One evaluation a task, in order.

        Raises:
            SubmissionError: The checkpoint is at fault.
            GraderError: The infrastructure is at fault; the job can be tried again.
        """
        ...
