"""The live table and the plain lines show states, scores and what does not fit."""

import io
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console, RenderableType

from rl_bench.events import RunEnd
from rl_bench.grading_status import GradingStatus, Phase
from rl_bench.progress import Progress, changes, render
from rl_bench.run_table import Column, duration, fit, planned, table_text, title
from rl_bench.run_view import RunView, fold_all

MakeStory = Callable[..., Any]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def text_of(
    views: dict[str, RunView], stories: list[Any], *, max_rows: int = 24, width: int = 160
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
    label = "reference/none sft_only alfworld seed 0: "
    assert changes({}, first, plan) == [
        label + "running",
        label + "alfworld baseline 5.0 (1 of 3 env_error)",
    ]
    assert changes(first, first, plan) == []
    run.submit(1, 20.0).reject().warn("disk is filling").finish(RunEnd.TIMED_OUT, detail="why")
    second = {run.run_id: fold_all(run.run_id, run.entries)}
    told = changes(first, second, plan)
    assert told[:4] == [
        label + "timed_out (why)",
        label + "alfworld submission 1 scored 20.0 (best 20.0, gain +15.0, 1 of 3 env_error)",
        label + "1 request rejected so far, the last: adapter_only: m",
        label + "warning: disk is filling",
    ]
    assert told[4].startswith(label + "baseline 5.0, best 20.0, gain +15.0, 1 submission, ")


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
    assert len(lines) == 3
    assert "0/1 runs finished" in lines[0]
    assert lines[1].endswith("running")
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
    told = [line[21:] for line in out.getvalue().splitlines()]
    assert told[0] == "2 runs"
    assert told[1] == "reference/none sft_only alfworld seed 1: baseline"
    assert told[2].startswith("1/2 runs finished")
    assert len(told) == 3


def test_on_a_terminal_the_table_is_live(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    out = io.StringIO()
    console = Console(file=out, width=140, height=30, force_terminal=True)
    with Progress(planned({"r": run.spec}), console=console) as progress:
        progress.update({"r": fold_all("r", run.entries)})
    assert "running" in out.getvalue()
    assert "\x1b[" in out.getvalue()


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
    label = "reference/none sft_only alfworld seed 3: running, best 20.0, "
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
