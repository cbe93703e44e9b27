"""How a run ended, from what is known of its agent and its driver."""

import pytest

from rl_bench.config import AgentConfig, Api, BudgetConfig
from rl_bench.events import DriverFailure, RunEnd
from rl_bench.process.agent_process import AgentExit, Cause
from rl_bench.process.run_end import OUTAGES, classify_end, is_worth_repeating

BUDGET = BudgetConfig(name="test", wall_clock_s=100)
AGENT = AgentConfig(name="test", argv=("true",))
DRIVEN = AGENT.model_copy(update={"apis": (Api.OPENAI,)})
DONE = AgentExit(exit_code=0, wall_s=60)
FAILED = AgentExit(exit_code=1, wall_s=60)
TIMED_OUT = AgentExit(exit_code=-15, killed=True, deadline=True, cause=Cause.DEADLINE)
STOPPED = AgentExit(killed=True, cause=Cause.STOPPED)
HUNG = AgentExit(killed=True, cause=Cause.HUNG, exit_code=-9)


@pytest.mark.parametrize(
    ("exit_", "num_submissions", "end"),
    [
        (AgentExit(exit_code=0, wall_s=6), 0, RunEnd.NEVER_STARTED),
        (AgentExit(exit_code=0, wall_s=6), 1, RunEnd.COMPLETED),
        (AgentExit(exit_code=0, wall_s=60), 0, RunEnd.COMPLETED),
        (AgentExit(exit_code=1, wall_s=6), 0, RunEnd.AGENT_ERROR),
        (AgentExit(exit_code=-9, wall_s=60), 3, RunEnd.AGENT_ERROR),
        (TIMED_OUT, 0, RunEnd.TIMED_OUT),
        (AgentExit(exit_code=0, killed=True, deadline=True), 0, RunEnd.TIMED_OUT),
        (AgentExit(killed=True), 0, RunEnd.INFRA_ERROR),
        (STOPPED, 3, RunEnd.INFRA_ERROR),
        (AgentExit(killed=True, supervisor_lost=True), 2, RunEnd.INFRA_ERROR),
        (AgentExit(start_error="no such file"), 0, RunEnd.NEVER_STARTED),
        (AgentExit(sandbox_error="it ended"), 3, RunEnd.SANDBOX_BROKEN),
        (HUNG, 3, RunEnd.HUNG_AFTER_RESULT),
        (AgentExit(killed=True, cause=Cause.LIMIT, reason="5 processes"), 3, RunEnd.AGENT_ERROR),
        # What it left running used the budget up.
        (AgentExit(exit_code=0, deadline=True, cause=Cause.DEADLINE), 1, RunEnd.TIMED_OUT),
        (AgentExit(exit_code=2, deadline=True, cause=Cause.DEADLINE), 1, RunEnd.AGENT_ERROR),
        (AgentExit(exit_code=0, cause=Cause.LIMIT, reason="5 processes"), 1, RunEnd.AGENT_ERROR),
        (AgentExit(exit_code=0, cause=Cause.STOPPED), 1, RunEnd.INFRA_ERROR),
    ],
)
def test_without_a_driver(exit_: AgentExit, num_submissions: int, end: RunEnd) -> None:
    found = classify_end(exit_, agent=AGENT, budget=BUDGET, num_submissions=num_submissions)
    assert found is end


def test_control_that_submits_nothing_has_completed() -> None:
    noop = AGENT.model_copy(update={"expects_submissions": False})
    exit_ = AgentExit(exit_code=0, wall_s=0.1)
    end = classify_end(exit_, agent=noop, budget=BUDGET, num_submissions=0)
    assert end is RunEnd.COMPLETED


AUTH, CAPPED, HUNG_UP = DriverFailure.AUTH, DriverFailure.CAPPED, DriverFailure.HUNG_UP


@pytest.mark.parametrize(
    ("exit_", "num_answers", "last_failure", "end"),
    [
        (DONE, 5, None, RunEnd.COMPLETED),
        (FAILED, 5, None, RunEnd.AGENT_ERROR),
        # Some CLIs exit with 0 after a 401.
        (DONE, 5, AUTH, RunEnd.DRIVER_ERROR),
        (FAILED, 5, AUTH, RunEnd.DRIVER_ERROR),
        (FAILED, 5, DriverFailure.BAD_REQUEST, RunEnd.AGENT_ERROR),
        (DONE, 5, HUNG_UP, RunEnd.COMPLETED),
        (DONE, 5, DriverFailure.REFUSED, RunEnd.COMPLETED),
        (HUNG, 5, None, RunEnd.HUNG_AFTER_RESULT),
        (HUNG, 5, HUNG_UP, RunEnd.HUNG_AFTER_RESULT),
        (HUNG, 5, DriverFailure.RATE_LIMITED, RunEnd.DRIVER_ERROR),
        # The cap is a part of the budget.
        (DONE, 5, CAPPED, RunEnd.TIMED_OUT),
        (FAILED, 5, CAPPED, RunEnd.TIMED_OUT),
        (STOPPED, 5, CAPPED, RunEnd.TIMED_OUT),
        (STOPPED, 5, AUTH, RunEnd.INFRA_ERROR),
        # The budget was used up, whatever the driver did in its last call.
        (TIMED_OUT, 5, AUTH, RunEnd.TIMED_OUT),
        # It never had a driver to work with.
        (DONE, 0, None, RunEnd.NEVER_STARTED),
        (FAILED, 0, None, RunEnd.NEVER_STARTED),
        (TIMED_OUT, 0, None, RunEnd.NEVER_STARTED),
        (TIMED_OUT, 0, DriverFailure.RATE_LIMITED, RunEnd.DRIVER_ERROR),
        (DONE, 0, AUTH, RunEnd.DRIVER_ERROR),
        (FAILED, 0, DriverFailure.BAD_REQUEST, RunEnd.AGENT_ERROR),
        (STOPPED, 0, None, RunEnd.INFRA_ERROR),
        (AgentExit(sandbox_error="it ended"), 0, None, RunEnd.SANDBOX_BROKEN),
        (AgentExit(start_error="no such file"), 0, None, RunEnd.NEVER_STARTED),
        (AgentExit(supervisor_lost=True, killed=True), 5, AUTH, RunEnd.INFRA_ERROR),
    ],
)
def test_with_a_driver(
    exit_: AgentExit, num_answers: int, last_failure: DriverFailure | None, end: RunEnd
) -> None:
    found = classify_end(
        exit_,
        agent=DRIVEN,
        budget=BUDGET,
        num_submissions=1,
        num_answers=num_answers,
        last_failure=last_failure,
    )
    assert found is end


@pytest.mark.parametrize("failure", list(DriverFailure))
def test_only_an_outage_is_the_drivers_fault(failure: DriverFailure) -> None:
    found = classify_end(
        FAILED, agent=DRIVEN, budget=BUDGET, num_submissions=1, num_answers=9, last_failure=failure
    )
    assert (found is RunEnd.DRIVER_ERROR) == (failure in OUTAGES)


@pytest.mark.parametrize("failure", list(DriverFailure))
def test_a_refused_key_is_not_tried_again_at_once(failure: DriverFailure) -> None:
    is_hopeless = failure in {DriverFailure.AUTH, DriverFailure.BILLING}
    assert is_worth_repeating(RunEnd.DRIVER_ERROR, failure) is not is_hopeless
    assert is_worth_repeating(RunEnd.INFRA_ERROR, failure)
    assert not is_worth_repeating(RunEnd.COMPLETED, failure)
