"""How a run ended, judged from what is known of its agent's process: one pure function.

Apart from the score: a run that used its budget up is as good as one that stopped by itself.
"""

from rl_bench.config import AgentConfig, BudgetConfig
from rl_bench.events import RunEnd
from rl_bench.process import AgentExit

QUICK_END_S = 60.0
"""An agent that ends within this and submits nothing did not work at all."""
QUICK_END_FRACTION = 0.25
"""The same for short budgets: as a part of the budget."""


def classify_end(
    exit_: AgentExit, *, agent: AgentConfig, budget: BudgetConfig, num_submissions: int
) -> RunEnd:
    """The kind of end of a run whose agent is gone.

    Args:
        exit_: The report on the agent's process tree.
        agent: Whether it is expected to submit.
        budget: What counts as quick.
        num_submissions: Accepted submissions.
    """
    if exit_.supervisor_lost:
        return RunEnd.INFRA_ERROR
    if exit_.start_error:
        return RunEnd.NEVER_STARTED
    if exit_.deadline:
        return RunEnd.TIMED_OUT
    if exit_.killed:
        return RunEnd.INFRA_ERROR
    if exit_.exit_code != 0:
        return RunEnd.AGENT_ERROR
    quick = exit_.wall_s < min(QUICK_END_S, QUICK_END_FRACTION * budget.wall_clock_s)
    if quick and num_submissions == 0 and agent.expects_submissions:
        return RunEnd.NEVER_STARTED
    return RunEnd.COMPLETED
