"""A small job for graders, and its parts: what a test is not about."""

from pathlib import Path

from rl_bench.config import DataSource, ModelConfig, TaskConfig
from rl_bench.grading import GradeJob

MODEL = ModelConfig(name="m", kind="tiny")
TASK = TaskConfig(name="t", kind="gsm8k", level="L1", source=DataSource.BUILTIN, max_tokens=8)
GENERATED = TASK.model_copy(update={"name": "gsm8k_mini"})
"""A task that can be made, with its data."""


def make_job(
    content: str = "c",
    *,
    run_id: str = "r",
    submission_id: int | None = 1,
    snapshot: Path = Path("s"),
    task: TaskConfig = TASK,
    model: ModelConfig = MODEL,
) -> GradeJob:
    """The job of one submission on one task; of a baseline without a ``submission_id``."""
    return GradeJob(
        run_id=run_id,
        submission_id=submission_id,
        snapshot=snapshot,
        content_hash=content,
        tasks=(task,),
        model=model,
    )
