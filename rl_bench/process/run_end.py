"""How a run ended, judged from what is known of its agent and its driver: one pure function.

Apart from the score: a run that used its budget up is as good as one that stopped by itself.
"""

from rl_bench.config import AgentConfig, BudgetConfig
from rl_bench.events import DriverFailure, RunEnd
from rl_bench.process.agent_process import AgentExit, Cause

QUICK_END_S = 60.0
"""An agent that ends within this, submits nothing and asked no model did not work at all."""
QUICK_END_FRACTION = 0.25
"""The same for short budgets: as a part of the budget."""
OUTAGES = frozenset(
    {
        DriverFailure.AUTH,
        DriverFailure.BILLING,
        DriverFailure.RATE_LIMITED,
        DriverFailure.SERVER_ERROR,
        DriverFailure.UNREACHABLE,
        DriverFailure.TIMEOUT,
        DriverFailure.CUT,
    }
)
"""Failures of the driver that are neither the agent's doing nor a rule of the run."""


HOPELESS = frozenset({DriverFailure.AUTH, DriverFailure.BILLING})
"""Outages that last until somebody has seen to the key or the account."""


def is_worth_repeating(end: RunEnd, last_failure: DriverFailure | None) -> bool:
    """Whether another attempt at once may end otherwise; given later, the same command makes one.

    Args:
        end: Of the attempt.
        last_failure: Why the driver's latest call failed, as in `classify_end`.
    """
    if not end.is_infrastructure:
        return False
    return end is not RunEnd.DRIVER_ERROR or last_failure not in HOPELESS


def classify_end(
    exit_: AgentExit,
    *,
    agent: AgentConfig,
    budget: BudgetConfig,
    num_submissions: int,
    num_answers: int | None = None,
    last_failure: DriverFailure | None = None,
) -> RunEnd:
    """The kind of end of a run whose agent is gone.

    Args:
        exit_: The report on the agent's process tree; of the last, where there were several.
        agent: Whether it is expected to submit, and whether it needs a driver.
        budget: What counts as quick.
        num_submissions: Accepted submissions.
        num_answers: Whole answers that its driver gave; None: it has no driver.
        last_failure: Why the driver's latest call failed; None when it did not, or there was none.
    """
    if exit_.supervisor_lost:
        return RunEnd.INFRA_ERROR
    if exit_.sandbox_error:
        return RunEnd.SANDBOX_BROKEN
    if exit_.start_error:
        return RunEnd.NEVER_STARTED
    if num_answers == 0 and agent.apis and exit_.cause is not Cause.STOPPED:
        # It had nothing to work with, however long it tried.
        if last_failure is None:
            return RunEnd.NEVER_STARTED
        if last_failure in OUTAGES:
            return RunEnd.DRIVER_ERROR
    if exit_.cause is not None or exit_.killed or exit_.deadline:
        return _end_by_us(exit_, last_failure)
    has_worked = num_submissions > 0 or bool(num_answers)
    return _end_by_itself(exit_, agent, budget, last_failure, has_worked=has_worked)


def _end_by_us(exit_: AgentExit, last_failure: DriverFailure | None) -> RunEnd:
    if exit_.deadline:
        # Children that it left used the budget up; it had failed before.
        failed = not exit_.killed and exit_.exit_code not in (0, None)
        return RunEnd.AGENT_ERROR if failed else RunEnd.TIMED_OUT
    if exit_.cause is Cause.HUNG:
        return RunEnd.DRIVER_ERROR if last_failure in OUTAGES else RunEnd.HUNG_AFTER_RESULT
    if exit_.cause is Cause.LIMIT:
        return RunEnd.AGENT_ERROR
    return RunEnd.TIMED_OUT if last_failure is DriverFailure.CAPPED else RunEnd.INFRA_ERROR


def _end_by_itself(
    exit_: AgentExit,
    agent: AgentConfig,
    budget: BudgetConfig,
    last_failure: DriverFailure | None,
    *,
    has_worked: bool,
) -> RunEnd:
    if last_failure is DriverFailure.CAPPED:
        return RunEnd.TIMED_OUT
    if last_failure in OUTAGES:  # whatever the exit code: some CLIs end with 0 after a 401
        return RunEnd.DRIVER_ERROR
    if exit_.exit_code != 0:
        return RunEnd.AGENT_ERROR
    quick = exit_.wall_s < min(QUICK_END_S, QUICK_END_FRACTION * budget.wall_clock_s)
    if quick and not has_worked and agent.expects_submissions:
        return RunEnd.NEVER_STARTED
    return RunEnd.COMPLETED
