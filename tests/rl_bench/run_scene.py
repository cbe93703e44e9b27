"""A whole run of the real kind in a folder, but for what grades it."""

import asyncio
from pathlib import Path
from typing import Any

from rl_bench.config import AuditConfig, RunSpec
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.paths import SweepPaths
from rl_bench.run import Run
from tests.rl_bench.grading_scene import write_checkpoint


def make_run(
    spec: RunSpec, root: Path, *, sweep: str = "s", value: float = 5.0, **more: Any
) -> Run:
    """The run ``r`` of the sweep ``root/SWEEP``, on a base model of weights ``value`` in ``root``.

    ``more``: other arguments of `Run` than the usual ones.
    """
    base = root / "base"
    if not base.exists():
        write_checkpoint(base, value=value)
    usual: dict[str, Any] = {
        "paths": SweepPaths(root / sweep),
        "cache": root / "cache",
        "base_model": base,
        "num_threads": 1,
        "agents_dir": root / "agents",
        "audit": AuditConfig(name="test"),
        "keep_models": "all",
        "grade": one_point,
    }
    return Run(spec, run_id="r", sweep=sweep, **(usual | more))


async def one_point(job: GradeJob) -> tuple[Evaluation, ...]:
    """Score 1 on every task, and no items."""
    await asyncio.sleep(0)
    return tuple(
        Evaluation(task=task.name, score=1.0, num_items=1, num_errors=0, evaluator_version="1")
        for task in job.tasks
    )
