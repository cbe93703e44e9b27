"""The live table and the plain lines show states, scores and what does not fit."""

import io
import re
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType

from rl_bench.agent_lines import count, driver_words, usd
from rl_bench.agent_view import DriverUse
from rl_bench.events import AgentStarted, DriverFailure, ModeVerdict, RunEnd
from rl_bench.grading_status import GradingStatus, Phase
from rl_bench.progress import Progress, changes, heartbeat, render, totals
from rl_bench.run_table import Column, duration, fit, planned, table_text, title
from rl_bench.run_view import RunView, fold_all
from tests.rl_bench.agent_story import (
    BWRAP,
    NO_SANDBOX,
    audited,
    call,
    failed_call,
    finding,
)
from tests.rl_bench.conftest import MakeStory, Story
from tests.rl_bench.terminal import shown_by

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def text_of(
    views: dict[str, RunView], stories: list[Story], *, max_rows: int = 24, width: int = 160
) -> str:
    plan = planned({story.run_id: story.spec for story in stories})
    return str_of(render(views, plan, now=NOW, max_rows=max_rows, width=width), width=width)


def str_of(table: RenderableType, *, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_table_shows_scores_and_missing_ones_apart(story: MakeStory) -> None:
    good = story("aaaa").start().baseline(0.0).submit(1, 41.5).submit(2, None, failure="x")
    waiting = story("bbbb")
    text = text_of({"aaaa": fold_all("aaaa", good.entries)}, [good, waiting])
    (line,) = (line for line in text.splitlines() if line.startswith("aaaa"))
    assert line.split()[1:8] == ["alfworld", "running", "0.0", "41.5", "+41.5", "2", "1"]
    (line,) = (line for line in text.splitlines() if line.startswith("bbbb"))
    assert line.split()[1:] == ["alfworld", "pending", "–", "–", "–", "0", "0", "10:00"]
    assert text.startswith("2 runs · agent reference · driver none · mode sft_only · model tiny")
    assert "0/2 runs finished · 1 active · 1 waiting · 2 submissions" in text


def test_pending_runs_wait_though_they_have_a_view(story: MakeStory) -> None:
    stories = [story(f"run{i:02}") for i in range(6)]
    stories[4].start().baseline(0.0)
    views = {s.run_id: fold_all(s.run_id, s.entries) for s in stories}
    text = text_of(views, stories, max_rows=3)
    assert "run04" in text, "the one that is active"
    assert "0/6 runs finished · 1 active · 5 waiting" in text
    plan = planned({s.run_id: s.spec for s in stories[:4]})
    assert heartbeat(views, plan, now=NOW) == totals({}, plan, now=NOW)


def test_multi_shows_every_task(story: MakeStory) -> None:
    run = story("m", tasks=("alfworld", "gsm8k")).start().baseline(1.0, 2.0).submit(1, 3.0, None)
    lines = text_of({"m": fold_all("m", run.entries)}, [run]).splitlines()
    assert [line.split()[0] for line in lines if "alfworld" in line] == ["m"]
    assert lines[0].startswith("1 run · agent reference")
    assert lines[3].split()[:4] == ["gsm8k", "2.0", "–", "–"]


def test_more_runs_than_fit_shows_active_ones_and_counts(story: MakeStory) -> None:
    stories = [story(f"run{i:02}") for i in range(30)]
    for done in stories[:10]:
        done.start().baseline(0.0).finish()
    for active in stories[20:23]:
        active.start().baseline(0.0)
    views = {s.run_id: fold_all(s.run_id, s.entries) for s in stories if s.entries}
    text = text_of(views, stories, max_rows=5)
    shown = {line.split()[0] for line in text.splitlines() if "alfworld" in line}
    assert shown == {"run08", "run09", "run20", "run21", "run22"}
    assert "… and 25 more: 17 pending, 8 completed" in text
    assert "10/30 runs finished · 3 active · 17 waiting" in text


def grading(run_id: str, *, done: int, submission_id: int | None) -> GradingStatus:
    return GradingStatus(
        run_id=run_id,
        submission_id=submission_id,
        task="alfworld",
        phase=Phase.PLAYING,
        done=done,
        total=134,
    )


def test_the_table_tells_how_far_a_grading_is(story: MakeStory) -> None:
    base, submits, trains = (story(name).start() for name in ("base", "subm", "trai"))
    submits.baseline(0.0)
    trains.baseline(0.0)  # the last look at its grading was just before its end
    done = story("done").start().baseline(0.0).finish()
    stories = [base, submits, trains, done, story("none")]
    views = {run.run_id: fold_all(run.run_id, run.entries) for run in stories if run.entries}
    gradings = {
        run.run_id: grading(run.run_id, done=57, submission_id=1 if run is submits else None)
        for run in stories
    }
    plan = planned({run.run_id: run.spec for run in stories})
    lines = str_of(render(views, plan, now=NOW, gradings=gradings, width=160)).splitlines()
    states = {line.split()[0]: line for line in lines if "alfworld" in line}
    assert " baseline 57/134 " in states["base"]
    assert " running, grading 57/134 " in states["subm"]
    assert not any("57/134" in states[name] for name in ("trai", "done", "none"))


def test_a_retry_is_no_end(story: MakeStory) -> None:
    run = story("r").start().baseline(0.0).finish(RunEnd.INFRA_ERROR, final=False)
    assert "retrying (infra_error)" in text_of({"r": fold_all("r", run.entries)}, [run])


def test_changes_tell_each_thing_once(story: MakeStory) -> None:
    run = story("abcdefgh1").start().baseline(5.0)
    plan = planned({run.run_id: run.spec})
    first = {run.run_id: fold_all(run.run_id, run.entries)}
    label = "alfworld: "
    assert changes({}, first, plan) == [
        label + "running",
        label + "baseline 5.0 (1 of 3 env_error)",
    ]
    assert changes(first, first, plan) == []
    run.submit(1, 20.0).reject().warn("disk is filling").finish(RunEnd.TIMED_OUT, detail="why")
    second = {run.run_id: fold_all(run.run_id, run.entries)}
    told = changes(first, second, plan)
    assert told[:4] == [
        label + "timed_out (why)",
        label + "submission 1 scored 20.0 (best 20.0, gain +15.0, 1 of 3 env_error)",
        label + "1 request rejected so far, the last: adapter_only: m",
        label + "warning: disk is filling",
    ]
    assert told[4].startswith(label + "baseline 5.0, best 20.0, gain +15.0, 1 submission, ")


def test_lines_name_a_task_once_and_only_what_tells_runs_apart(story: MakeStory) -> None:
    runs = [story(f"r{n}", seed=n).start().baseline(5.0) for n in range(2)]
    several = story("m", tasks=("alfworld", "gsm8k")).start().baseline(1.0, 2.0)
    after = {run.run_id: fold_all(run.run_id, run.entries) for run in (*runs, several)}
    assert changes({}, after, planned({run.run_id: run.spec for run in runs})) == [
        "alfworld seed 0: running",
        "alfworld seed 0: baseline 5.0 (1 of 3 env_error)",
        "alfworld seed 1: running",
        "alfworld seed 1: baseline 5.0 (1 of 3 env_error)",
    ]
    assert changes({}, after, planned({"m": several.spec})) == [
        "2 tasks: running",
        "2 tasks: alfworld baseline 1.0 (1 of 3 env_error)",
        "2 tasks: gsm8k baseline 2.0 (1 of 3 env_error)",
    ]


def test_changes_tell_the_noise_where_it_was_measured(story: MakeStory) -> None:
    run = story("r").start().baseline(50.0, repeat_scores=(49.0, 51.0)).submit(1, 50.4).finish()
    told = changes({}, {"r": fold_all("r", run.entries)}, planned({"r": run.spec}))
    assert told[1].endswith("baseline 50.0 (1 of 3 env_error, noise floor 3.9 from 2 gradings)")
    assert "(best 50.4, gain +0.4 within the noise, 1 of 3 env_error)" in told[2]
    assert "best 50.4, gain +0.4 within the noise, 1 submission" in told[3]
    assert "+0.4~" in text_of({"r": fold_all("r", run.entries)}, [run])


def test_changes_name_a_failure_and_a_new_attempt(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    plan = planned({"r": run.spec})
    first = {"r": fold_all("r", run.entries)}
    run.submit(1, None, failure="engine died")
    second = {"r": fold_all("r", run.entries)}
    assert changes(first, second, plan)[0].endswith("submission 1 has no score: engine died")
    run.start(1)
    third = {"r": fold_all("r", run.entries)}
    assert [line.rsplit(": ")[-1] for line in changes(second, third, plan)] == [
        "attempt 2",
        "baseline",
    ]


def test_without_a_terminal_lines_are_plain_and_stamped(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    out = io.StringIO()
    with Progress(planned({"r": run.spec}), console=Console(file=out, width=40)) as progress:
        progress.update({})
        for _ in range(3):
            progress.update({"r": fold_all("r", run.entries)})
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].endswith(
        "1 run · agent reference · driver none · mode sft_only · model tiny · seed 0"
    )
    assert "0/1 run finished" in lines[1]
    assert lines[2].endswith("alfworld: running")
    assert all(line[10] == "T" and line[19:21] == "Z " for line in lines)
    assert "\x1b" not in out.getvalue()


def test_a_resume_tells_only_what_is_new(story: MakeStory) -> None:
    done = story("done").start().baseline(5.0).submit(1, 20.0).finish()
    before = {"done": fold_all("done", done.entries)}
    fresh = story("new", seed=1).start()
    plan = planned({"done": done.spec, "new": fresh.spec})
    out = io.StringIO()
    with Progress(plan, console=Console(file=out), known=before) as progress:
        progress.say("2 runs")
        progress.update({**before, "new": fold_all("new", fresh.entries)})
    told = [line[21:] for line in out.getvalue().splitlines()][1:]
    assert told[0] == "2 runs"
    assert told[1] == "alfworld seed 1: baseline"
    assert told[2].startswith("1/2 runs finished")
    assert len(told) == 3


def test_what_was_broken_off_waits_until_it_begins_anew(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    before = {"r": fold_all("r", run.entries)}
    out = io.StringIO()
    with Progress(planned({"r": run.spec}), console=Console(file=out), known=before) as progress:
        progress.update(before)
        waiting = out.getvalue()
        progress.update({"r": fold_all("r", run.start(attempt=1).entries)})
    assert "0 active · 1 waiting" in waiting
    assert "running" not in waiting
    assert "alfworld: attempt 2" in out.getvalue().removeprefix(waiting)


def test_on_a_terminal_the_table_is_live(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    out = io.StringIO()
    console = Console(file=out, width=140, height=30, force_terminal=True)
    with Progress(planned({"r": run.spec}), console=console) as progress:
        progress.update({"r": fold_all("r", run.entries)})
    assert "running" in out.getvalue()
    assert "\x1b[" in out.getvalue()


@pytest.mark.parametrize(("width", "height"), [(100, 30), (40, 8)])
def test_the_live_table_is_gone_at_the_end(story: MakeStory, width: int, height: int) -> None:
    stories = [story(f"r-{n}", seed=n).start().baseline(5.0) for n in range(9)]
    views = {run.run_id: fold_all(run.run_id, run.entries) for run in stories}
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True)
    with Progress(planned({run.run_id: run.spec for run in stories}), console=console) as progress:
        progress.update({})
        progress.say("the baselines come")
        progress.update(views)
        shown = shown_by(out.getvalue(), width=width, height=height)
        assert any("9 runs" in line for line in shown)
    stamped, *rest = shown_by(out.getvalue(), width=width, height=height)
    assert stamped.endswith("the baselines come")
    assert "".join(rest) == ""


def test_a_dumb_terminal_gets_plain_lines(
    story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    run = story("r").start().baseline(5.0)
    out = io.StringIO()
    console = Console(file=out, width=140, height=30, force_terminal=True, no_color=True)
    with Progress(planned({"r": run.spec}), console=console) as progress:
        progress.update({"r": fold_all("r", run.entries)})
    assert "0/1 run finished" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_live_numbers_and_headings_are_whole(story: MakeStory, width: int) -> None:
    stories = [story(f"long-label-1234567{n}", seed=n) for n in range(4)]
    for n, run in enumerate(stories):
        run.start().baseline(1.5).submit(1, 100.0 - n)
    views = {run.run_id: fold_all(run.run_id, run.entries) for run in stories}
    lines = text_of(views, stories, width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[1].split()[:8] == ["run", "seed", "task", "state", "base", "best", "gain", "subs"]
    assert "left" in lines[1].split()
    for n, line in enumerate(lines[2:6]):
        assert line.split()[4:7] == ["1.5", f"{100.0 - n:.1f}", f"+{98.5 - n:.1f}"]
        assert line == line.rstrip()


def test_a_narrow_table_leaves_out_columns_then_shortens_words_and_never_numbers() -> None:
    columns = [
        Column(heading="task", cells=("a_long_task_name", "b")),
        Column(heading="best", cells=("100.0", "7.0"), is_number=True),
        Column(heading="left", cells=("1:00:00", "0:01"), is_number=True, drop=1),
        Column(heading="subs", cells=("3", "4"), is_number=True, drop=2),
    ]
    assert fit(columns, width=40) == columns
    assert [c.heading for c in fit(columns, width=33)] == ["task", "best", "left"]
    kept = fit(columns, width=14)
    assert [c.heading for c in kept] == ["task", "best"]
    assert str(table_text(kept, width=14)).splitlines() == [
        "task      best",
        "a_long…  100.0",
        "b          7.0",
    ]
    assert str(table_text(kept, width=5)) == str(table_text(kept, width=13))


def test_title_tells_only_what_all_runs_share(story: MakeStory) -> None:
    specs = {f"r{n}": story(f"r{n}", seed=n).spec for n in range(2)}
    assert title(planned(specs)) == (
        "2 runs · agent reference · driver none · mode sft_only · model tiny"
    )


def test_a_quiet_time_off_a_terminal_has_a_heartbeat(story: MakeStory) -> None:
    stories = [story(f"r{n}", seed=n).start().baseline(5.0).submit(1, 20.0) for n in range(6)]
    views = {run.run_id: fold_all(run.run_id, run.entries) for run in stories}
    times = {"now": 100.0}
    out = io.StringIO()
    plan = planned({run.run_id: run.spec for run in stories})
    with Progress(plan, console=Console(file=out), clock=lambda: times["now"]) as progress:
        progress.update(views)
        num_before = len(out.getvalue().splitlines())
        for now in (129.0, 130.0, 131.0, 159.0):
            times["now"] = now
            progress.update(views, [grading("r1", done=7, submission_id=2)])
    told = out.getvalue().splitlines()[num_before:]
    assert len(told) == 1
    assert "0/6 runs finished · 6 active" in told[0]
    label = "alfworld seed 3: running, best 20.0, "
    assert re.search(re.escape(label) + r"\d+:\d\d left; and 2 more$", told[0])
    assert "seed 1: running, grading 7/134, best 20.0, " in told[0]
    assert "seed 4" not in told[0]


def test_durations() -> None:
    assert [duration(s) for s in (0, 59.9, 61, 3600, 12 * 3600)] == [
        "0:00",
        "0:59",
        "1:01",
        "1:00:00",
        "12:00:00",
    ]


def lines_of(story: Story, *more: Story, width: int = 160) -> list[str]:
    views = {s.run_id: fold_all(s.run_id, s.entries) for s in (story, *more) if s.entries}
    return text_of(views, [story, *more], width=width).splitlines()


def test_tokens_and_cost_show_where_a_driver_is_used(story: MakeStory) -> None:
    plain = story("plain").start().baseline(5.0)
    assert "cost" not in lines_of(plain)[1]
    dear = story("dear").start().baseline(5.0).add(call(tokens=(1_234_567, 1000), cost_usd=2.5))
    partly = story("part").start().baseline(5.0).add(call(), call(tokens=(None, None)))
    lines = lines_of(plain, dear, partly)
    assert lines[1].split()[-4:] == ["tokens", "cost", "left", "elapsed"]
    cells = {line.split()[0]: line.split() for line in lines if "alfworld" in line}
    assert cells["dear"][-4:-2] == ["1.2M", "$2.50"]
    assert cells["part"][-4:-2] == ["110", "$1.00"]
    assert not {"1.2M", "–"} & set(cells["plain"][-3:])
    assert "drivers $3.50" in lines[-1] + lines[-2]


def test_cost_that_is_not_whole_is_marked(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(call(tokens=(None, None), cost_usd=None))
    run.add(call())
    (line,) = (line for line in lines_of(run) if line.startswith("r "))
    assert "110+" in line.split()
    assert "$0.50+" in line.split()


def test_no_sandbox_is_told_loudly_and_a_sandbox_once(story: MakeStory) -> None:
    bare = story("bare").start().baseline(5.0).add(NO_SANDBOX)
    boxed = story("boxed").start().baseline(5.0).add(BWRAP)
    assert "NO SANDBOX in 1 run" in lines_of(bare, boxed)
    assert not any("SANDBOX" in line for line in lines_of(boxed))
    assert not any("SANDBOX" in line for line in lines_of(bare.finish()))
    views = {s.run_id: fold_all(s.run_id, s.entries) for s in (bare, boxed)}
    plan = planned({"bare": bare.spec, "boxed": boxed.spec})
    told = [line.split(": ", 1)[1] for line in changes({}, views, plan)]
    assert "NO SANDBOX: it reads every file; it reaches the network" in told
    assert "sandbox bwrap 0.8.0" in told
    assert changes(views, views, plan) == []


def test_a_driver_that_does_not_answer_is_told_while_the_run_goes_on(story: MakeStory) -> None:
    run = story("r-abc").start().baseline(5.0).add(call())
    failure = failed_call(DriverFailure.RATE_LIMITED, status=429, detail="slow down")
    assert not any("answer" in line for line in lines_of(run.add(failure, failure)))
    alarm = "abc: the driver does not answer, 3 calls failed in a row: rate_limited, HTTP 429"
    assert f"{alarm} slow down" in lines_of(run.add(failure))
    assert not any("answer" in line for line in lines_of(run.add(call())))


def test_alarms_leave_room_for_themselves(story: MakeStory) -> None:
    failure = failed_call(DriverFailure.AUTH, status=401, detail="a long explanation " * 20)
    stories = [story(f"run{i:02}").start().baseline(0.0) for i in range(10)]
    for run in stories:
        run.add(NO_SANDBOX, failure, failure, failure)
    views = {run.run_id: fold_all(run.run_id, run.entries) for run in stories}
    plain = text_of(views, stories, max_rows=10, width=100).splitlines()
    assert len([line for line in plain if "alfworld" in line]) == 5
    assert len([line for line in plain if "does not answer" in line]) == 3
    assert "… and 7 runs more" in plain
    assert all(len(line) <= 100 for line in plain)


def test_driver_failures_are_told_at_first_then_ever_more_seldom(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    plan = planned({"r": run.spec})
    before = {"r": fold_all("r", run.entries)}
    told = []
    for n in range(20):
        kind = DriverFailure.AUTH if n == 10 else DriverFailure.SERVER_ERROR
        run.add(failed_call(kind, status=500))
        after = {"r": fold_all("r", run.entries)}
        told += [line.split(": ", 1)[1] for line in changes(before, after, plan)]
        before = after
    failed = " of the driver failed so far, the last: "
    assert told == [
        f"1 of 1 call{failed}server_error, HTTP 500",
        f"2 of 2 calls{failed}server_error, HTTP 500",
        f"4 of 4 calls{failed}server_error, HTTP 500",
        f"8 of 8 calls{failed}server_error, HTTP 500",
        f"11 of 11 calls{failed}auth, HTTP 500",
        f"12 of 12 calls{failed}server_error, HTTP 500",
        f"16 of 16 calls{failed}server_error, HTTP 500",
    ]


def test_sessions_findings_and_an_invalid_end_are_told(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0)
    plan = planned({"r": run.spec})
    first = {"r": fold_all("r", run.entries)}
    run.add(AgentStarted(pid=2, argv=("true",), session=1), call())
    run.add(finding("info"), finding("warning", summary="a"), finding("warning", summary="b"))
    run.add(audited(ModeVerdict.BREACH, summary="GRPO ran")).finish(RunEnd.INVALID)
    second = {"r": fold_all("r", run.entries)}
    told = [line.split(": ", 1)[1] for line in changes(first, second, plan)]
    assert told[:4] == [
        "invalid (GRPO ran)",
        "the agent was started again, session 2",
        "finding, warning: known_model: b (and 1 more)",
        "mode sft_only: breach (GRPO ran)",
    ]
    assert told[4].startswith("counts for nothing: baseline 5.0, best 90.0, gain +85.0, 1 sub")
    assert told[4].endswith("; driver: 1 call, 100 tokens in, 10 out, $0.50")
    (line,) = (line for line in lines_of(run) if line.startswith("r "))
    assert {"90.0!", "+85.0!"} <= set(line.split())
    assert "1/1 run finished · 0 active · 0 waiting · 1 submission · 1 invalid" in text_of(
        second, [run]
    )


def test_a_clean_mode_names_the_methods(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(audited(ModeVerdict.CLEAN))
    told = changes({}, {"r": fold_all("r", run.entries)}, planned({"r": run.spec}))
    assert told[1].endswith(": mode sft_only: clean (sft)")


def test_a_heartbeat_tells_what_was_spent(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).add(call())
    told = heartbeat({"r": fold_all("r", run.entries)}, planned({"r": run.spec}), now=NOW)
    assert told.endswith(" left, $0.50")


def test_a_drivers_use_in_words_tells_only_what_is_known() -> None:
    use = DriverUse()
    use.fold(failed_call(DriverFailure.AUTH, status=401))
    assert driver_words(use) == "1 call (1 failed)"
    use.fold(call())
    assert driver_words(use) == "2 calls (1 failed), 100 tokens in, 10 out, $0.50"
    use.fold(call(tokens=(None, None), cost_usd=None))
    assert driver_words(use).endswith("$0.50 (at least: some calls told no tokens)")


def test_counts_and_dollars() -> None:
    counts = [count(n) for n in (None, 0, 999, 1000, 12_345, 999_949, 999_950, 1_250_000)]
    assert counts == ["–", "0", "999", "1.0k", "12.3k", "999.9k", "1.0M", "1.2M"]
    assert [usd(x) for x in (None, 0.0, 0.004, 0.5, 1234.5)] == [
        "–",
        "$0.00",
        "<$0.01",
        "$0.50",
        "$1234.50",
    ]
