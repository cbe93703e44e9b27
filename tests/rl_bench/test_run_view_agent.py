"""The view tells what agent and driver used and what was found, at a constant cost an entry."""

import pickle
import time
from datetime import timedelta

import pytest

from rl_bench.agent_view import AgentUse, DriverUse
from rl_bench.events import (
    AgentEvent,
    AgentExited,
    AgentStarted,
    DriverCall,
    DriverFailure,
    ModeVerdict,
    RunEnd,
)
from rl_bench.ledger import read_ledger
from rl_bench.run_view import RunView, fold_all
from tests.rl_bench.agent_story import (
    BWRAP,
    audited,
    call,
    failed_call,
    finding,
    one_of_each,
    revision,
    tool_call,
    usage,
)
from tests.rl_bench.conftest import MakeStory, Story


def view_of(story: Story) -> RunView:
    return fold_all(story.run_id, read_ledger(story.path))


def test_driver_calls_add_up(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    run.add(call(1), call(2, tokens=(1000, 30), cached=None, cost_usd=0.25))
    use = view_of(run).driver_use
    assert (use.num_calls, use.num_failed, use.num_unknown) == (2, 0, 0)
    assert (use.input_tokens, use.output_tokens, use.cached_tokens) == (1100, 40, 60)
    assert use.cost_usd == 0.75


def test_what_nobody_told_is_none_and_never_0(story: MakeStory) -> None:
    view = view_of(story("r").start().baseline(5.0))
    assert view.driver_use == DriverUse()
    assert (view.driver_use.input_tokens, view.driver_use.cost_usd) == (None, None)
    assert view.total_cost_usd is None
    assert view.agent_use.told.num_turns is None
    assert (view.sandbox, view.audit.verdict, view.num_revisions) == ("", None, 0)


def test_a_failed_call_is_told_by_its_kind(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(call())
    run.add(failed_call(DriverFailure.RATE_LIMITED, status=429, detail="slow down"))
    run.add(failed_call(DriverFailure.SERVER_ERROR, status=500))
    use = view_of(run).driver_use
    assert (use.num_calls, use.num_failed, use.num_failed_in_a_row) == (3, 2, 2)
    assert (use.last_failure, use.last_failure_detail) == ("server_error", "HTTP 500")
    assert use.num_unknown == 0
    use = view_of(run.add(call())).driver_use
    assert (use.num_failed, use.num_failed_in_a_row) == (2, 0)


def test_a_hang_up_of_the_cli_hides_no_failure_of_the_driver(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(failed_call(DriverFailure.HUNG_UP))
    use = view_of(run).driver_use
    assert (use.last_failure, use.num_failed_in_a_row) == ("hung_up", 0)
    run.add(failed_call(DriverFailure.AUTH, status=401), failed_call(DriverFailure.HUNG_UP))
    run.add(failed_call(DriverFailure.REFUSED, status=403))
    use = view_of(run).driver_use
    assert (use.last_failure, use.last_failure_detail) == ("auth", "HTTP 401")
    assert (use.num_failed, use.num_failed_in_a_row) == (4, 1)


def test_a_list_of_models_is_no_answer_of_the_driver() -> None:
    use = DriverUse()
    use.fold(failed_call(DriverFailure.UNREACHABLE))
    use.fold(call(tokens=(None, None), cached=None, cost_usd=0.0))
    assert (use.num_failed_in_a_row, use.num_unknown) == (1, 0)


@pytest.mark.parametrize(
    ("told", "num_unknown"),
    [
        (call(), 0),
        (call(tokens=(None, None), cost_usd=None), 1),
        (call(tokens=(100, None), cost_usd=0.1, failure=DriverFailure.CUT), 1),
        (failed_call(DriverFailure.HUNG_UP), 1),
        (failed_call(DriverFailure.AUTH, status=401), 0),
        (failed_call(DriverFailure.CAPPED, status=429), 0),
    ],
)
def test_calls_that_may_have_cost_something_are_counted(told: DriverCall, num_unknown: int) -> None:
    use = DriverUse()
    use.fold(told)
    assert use.num_unknown == num_unknown


def test_turns_of_a_session_add_up_and_its_totals_stand_before_them() -> None:
    use = AgentUse()
    use.start_session()
    use.fold(usage(100, 10))
    use.fold(usage(200, 20))
    assert (use.told.num_turns, use.told.input_tokens, use.told.cost_usd) == (2, 300, None)
    use.fold(usage(310, 31, totals=True, cost_usd=0.2, num_turns=4))
    told = use.told
    assert (told.num_turns, told.input_tokens, told.output_tokens) == (4, 310, 31)
    assert told.cost_usd == 0.2


def test_sessions_add_up(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(usage(100, 10, totals=True, cost_usd=0.25))
    run.add(AgentExited(exit_code=0, killed=False, budget_used_s=70, num_live_children=2))
    run.add(AgentStarted(pid=2, argv=("true",), session=1), usage(50, 5), tool_call())
    view = view_of(run)
    assert (view.agent_use.num_sessions, view.agent_use.num_live_children) == (2, 2)
    assert (view.agent_use.told.input_tokens, view.agent_use.told.cost_usd) == (150, 0.25)
    assert (view.agent_use.num_tool_calls, view.agent_use.num_events) == (1, 3)


def test_a_later_session_goes_on_with_the_budget(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    run.add(AgentExited(exit_code=0, killed=False, budget_used_s=70))
    run.add(AgentStarted(pid=2, argv=("true",), session=1))
    view = view_of(run)
    assert view.budget_known_utc is not None
    assert view.budget_left_s(view.budget_known_utc + timedelta(seconds=30)) == 500.0
    view = view_of(run.add(tool_call(at_s=100.0)))
    assert view.budget_used_s == 100.0
    # What is told after its end is of before: the clock stands still.
    run.add(AgentExited(exit_code=0, killed=False, budget_used_s=120), tool_call(at_s=119.0))
    view = view_of(run)
    assert (view.budget_used_s, view.budget_known_utc) == (120.0, None)


def test_errors_are_told_apart_from_tools_that_failed() -> None:
    use = AgentUse()
    use.fold(AgentEvent(kind="tool_result", is_error=True, budget_used_s=1))
    use.fold(AgentEvent(kind="error", name="overloaded", text="try later", budget_used_s=1))
    assert (use.num_tool_errors, use.num_errors) == (1, 1)
    assert use.last_error == "overloaded: try later"


def test_figures_that_cannot_be_counts_are_ignored() -> None:
    use = AgentUse()
    use.fold(usage(10**30, -5, cost_usd=float("nan")))
    use.fold(usage(7, 1, cost_usd=0.5))
    assert (use.told.input_tokens, use.told.output_tokens, use.told.cost_usd) == (7, 1, 0.5)


def test_findings_and_the_judgement_on_the_mode(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    run.add(finding("info"), finding("warning", summary="a"), finding("warning", summary="b"))
    audit = view_of(run).audit
    assert (audit.num_findings, audit.num_breaches, audit.run_breach) == (3, 0, "")
    assert audit.last_by_severity["warning"] == "known_model: b"
    assert (audit.verdict, audit.rules_version) == (None, "7")
    audit = view_of(run.add(audited(ModeVerdict.BREACH, summary="GRPO in sft_only"))).audit
    assert (audit.verdict, audit.rules_version, audit.methods) == ("breach", "3", ("sft",))
    assert audit.run_breach == "GRPO in sft_only"
    assert audit.num_findings == 3


def test_an_invalid_run_keeps_its_scores_and_counts_for_nothing(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0)
    run.add(audited(ModeVerdict.BREACH, summary="GRPO in sft_only"))
    view = view_of(run.finish(RunEnd.INVALID))
    assert (view.is_invalid, view.counts, view.is_finished) == (True, False, True)
    assert (view.best, view.improvement) == (90.0, 85.0)
    assert view.invalid_reason == "GRPO in sft_only"


@pytest.mark.parametrize("end", list(RunEnd))
def test_only_valid_results_count(story: MakeStory, end: RunEnd) -> None:
    run = story("r").start().baseline(5.0)
    assert not view_of(run).counts
    view = view_of(run.finish(end))
    assert view.counts is not (end.is_infrastructure or end is RunEnd.INVALID)


def test_a_submission_that_broke_a_rule_is_never_the_best(story: MakeStory) -> None:
    run = story("r", tasks=("alfworld", "gsm8k")).start().baseline(5.0, 5.0)
    run.submit(1, 90.0, 80.0).submit(2, 40.0, 50.0)
    run.add(finding("breach", summary="the instruct model", submission_id=1))
    view = view_of(run)
    task = view.tasks["alfworld"]
    assert (task.best, task.best_submission_id, task.first) == (40.0, 2, 40.0)
    assert (task.num_invalid, task.num_graded, task.num_submissions) == (1, 2, 2)
    assert view.tasks["gsm8k"].best == 50.0
    # The run itself is not invalid: the breach names the submission.
    assert view.audit.run_breach == ""
    assert view_of(run.finish()).counts


def test_a_breach_found_before_the_verdict_holds(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).accept(1).accept(2, unchanged=True)
    run.add(finding("breach", submission_id=1)).grade(1, 90.0)
    task = view_of(run).tasks["alfworld"]
    assert (task.best, task.improvement) == (None, None)
    task = view_of(run.grade(2, 5.0)).tasks["alfworld"]
    assert (task.best, task.best_unchanged, task.first_submission_id) == (5.0, True, 2)


def test_a_warning_or_an_unknown_submission_changes_no_score(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0)
    run.add(finding("warning", submission_id=1), finding("breach", submission_id=99))
    task = view_of(run).tasks["alfworld"]
    assert (task.best, task.num_invalid) == (90.0, 0)


def test_each_attempt_starts_afresh_and_what_it_cost_is_kept(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(*one_of_each())
    run.finish(RunEnd.DRIVER_ERROR, final=False).start(1)
    view = view_of(run)
    assert (view.driver_use, view.sandbox, view.num_revisions) == (DriverUse(), "", 0)
    assert view.agent_use == AgentUse()
    assert (view.audit.verdict, view.audit.num_findings) == (None, 0)
    assert view.total_cost_usd == 0.5
    view = view_of(run.baseline(5.0).add(call(cost_usd=0.125)))
    assert (view.driver_use.cost_usd, view.total_cost_usd) == (0.125, 0.625)


def test_sandbox_and_revisions(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(BWRAP, revision("c1"), revision("c2"))
    view = view_of(run)
    assert (view.sandbox, view.sandbox_version) == ("bwrap", "0.8.0")
    assert (view.num_revisions, view.last_revision) == (2, "c2")


def test_a_view_of_an_agents_work_crosses_processes(story: MakeStory) -> None:
    view = view_of(story("r").start().baseline(1.0).add(*one_of_each()))
    assert pickle.loads(pickle.dumps(view)) == view  # noqa: S301  our own bytes


def test_a_view_is_as_large_after_many_events_as_after_few(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    entries = list(run.entries)
    last = run.add(tool_call(), call()).entries[-2:]
    sizes, costs = [], []
    view = fold_all("r", entries)
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(1000):
            for entry in last:
                view.fold(entry.model_copy(update={"seq": view.next_seq}))
        costs.append(time.perf_counter() - started)
        sizes.append(len(pickle.dumps(view)))
    assert sizes[-1] - sizes[0] < 50
    assert costs[-1] < 4 * costs[0]
