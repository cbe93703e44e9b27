"""What a finished run tells its ledger, as benchmarks write it: no agent, no grading."""

from rl_bench.config import RunSpec
from rl_bench.events import (
    AgentExited,
    AgentStarted,
    BaselineGraded,
    Evaluation,
    Event,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    StateChanged,
    SubmissionAccepted,
    SubmissionGraded,
)

GAP_S = 60.0
"""Between two submissions, on the run's clock."""


def finished_run(
    run_id: str, spec: RunSpec, *, sweep: str, verdict: Evaluation, num_submissions: int
) -> list[Event]:
    """All events of a run; its baseline and each of its submissions got ``verdict``."""
    events: list[Event] = [
        RunStarted(run_id=run_id, sweep=sweep, attempt=0, spec=spec),
        StateChanged(state=RunState.BASELINE),
        BaselineGraded(content_hash="base", evaluations=(verdict,)),
        StateChanged(state=RunState.RUNNING),
        AgentStarted(pid=1, argv=("true",)),
    ]
    for number in range(1, num_submissions + 1):
        events += [
            SubmissionAccepted(
                submission_id=number,
                model_path="output/m",
                content_hash=f"hash{number}",
                tasks=(verdict.task,),
                budget_used_s=GAP_S * number,
            ),
            SubmissionGraded(submission_id=number, evaluations=(verdict,)),
        ]
    return [
        *events,
        AgentExited(exit_code=0, killed=False, budget_used_s=GAP_S * num_submissions),
        StateChanged(state=RunState.FINISHED),
        RunFinished(end=RunEnd.COMPLETED),
    ]
