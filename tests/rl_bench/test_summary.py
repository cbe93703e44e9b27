"""The end tells failures by class, where results lie, and the right exit code."""

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rl_bench.agent_lines import agent_changes
from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.events import (
    BaselineGraded,
    DriverFailure,
    Evaluation,
    Item,
    ModeVerdict,
    RunEnd,
    SubmissionGraded,
)
from rl_bench.lines import widen
from rl_bench.paths import SweepPaths
from rl_bench.records import SCHEMAS
from rl_bench.run_table import planned
from rl_bench.run_view import RunView, fold_all
from rl_bench.summary import (
    TABLES,
    exit_code,
    failures,
    interpreter,
    result_lines,
    run_table,
    show,
)
from tests.rl_bench.agent_story import (
    BWRAP,
    NO_SANDBOX,
    audited,
    call,
    failed_call,
    finding,
    revision,
)
from tests.rl_bench.conftest import MakeStory, Story


def views_of(*stories: Story) -> dict[str, RunView]:
    return {s.run_id: fold_all(s.run_id, s.entries) for s in stories if s.entries}


@pytest.mark.parametrize("end", list(RunEnd))
def test_exit_code_is_0_unless_infrastructure_failed(story: MakeStory, end: RunEnd) -> None:
    good = story("a").start().baseline(0.0).finish()
    other = story("b").start().baseline(0.0).finish(end)
    assert exit_code(views_of(good, other), ["a", "b"]) == int(end.is_infrastructure)


def test_exit_code_of_runs_missing_or_unfinished_is_1(story: MakeStory) -> None:
    good = story("a").start().baseline(0.0).finish()
    open_run = story("b").start()
    retrying = story("c").start().finish(RunEnd.COMPLETED, final=False)
    assert exit_code(views_of(good), ["a"]) == 0
    assert exit_code(views_of(good), ["a", "never"]) == 1
    assert exit_code(views_of(good, open_run), ["a", "b"]) == 1
    assert exit_code(views_of(good, retrying), ["a", "c"]) == 1


def test_failures_by_class(story: MakeStory) -> None:
    good = story("a").start().baseline(0.0).finish(RunEnd.TIMED_OUT)
    bad = (
        story("b")
        .start()
        .baseline(None)
        .submit(1, None, failure="engine died")
        .finish(RunEnd.AGENT_ERROR, detail="exit code 3")
    )
    infra = [story(f"i{n}").start().finish(RunEnd.INFRA_ERROR, detail="no engine") for n in (1, 2)]
    never = story("z")
    stories = [good, bad, *infra, never]
    found = failures(views_of(*stories), planned({s.run_id: s.spec for s in stories}))
    assert [(f.kind, f.num, f.is_infrastructure) for f in found] == [
        ("infra_error", 2, True),
        ("not_started", 1, True),
        ("agent_error", 1, False),
        ("baseline_without_score", 1, False),
        ("items_without_verdict", 1, False),
        ("submission_without_score", 1, False),
    ]
    assert found[0].example == "run i1: no engine"
    assert found[4].example == "run a, alfworld, baseline: 1 of 3 env_error"
    assert found[5].example == "run b, alfworld: engine died"


def test_unjudged_items_are_named(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("a").start()
    judged = Item(item_id="q", status="ok", score=1, num_steps=1, num_tokens=1, duration_s=1)
    unjudged = judged.model_copy(update={"status": "unjudged", "score": None})
    verdict = Evaluation(
        task="alfworld",
        score=88.0,
        num_items=805,
        num_errors=12,
        evaluator_version="1",
        items=(*[judged] * 793, *[unjudged] * 12),
    )
    run.add(BaselineGraded(content_hash="base", evaluations=(verdict,)))
    run.accept(1).add(SubmissionGraded(submission_id=1, evaluations=(verdict,))).finish()
    out = io.StringIO()
    show(
        views_of(run),
        planned({"a": run.spec}),
        paths=sweep_paths,
        sink=SinkConfig(name="default"),
        command="c",
        console=Console(file=out),
    )
    told = "2 x items_without_verdict, e.g. run a, alfworld, baseline: 12 of 805 unjudged"
    assert told in out.getvalue()


def test_a_baseline_beyond_the_context_is_named(story: MakeStory) -> None:
    run = story("a").start()
    verdict = Evaluation(
        task="alfworld",
        score=0.0,
        num_items=20,
        num_errors=0,
        evaluator_version="x",
        items=(),
        metrics={"prompt_too_long_percent": 100.0},
        duration_s=1.0,
    )
    run.add(BaselineGraded(content_hash="base", evaluations=(verdict,)))
    found = failures(views_of(run.finish()), planned({"a": run.spec}))
    assert [(f.kind, f.example) for f in found if f.kind == "beyond_context"] == [
        (
            "beyond_context",
            "run a, alfworld, baseline: 20 of 20 prompts do not fit the model's context "
            "(model.max_model_len)",
        )
    ]


def test_show_prints_table_failures_paths_and_next_command(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    good = story("a").start().baseline(1.0).submit(1, 40.0).finish()
    infra = story("b").start().finish(RunEnd.INFRA_ERROR)
    out = io.StringIO()
    code = show(
        views_of(good, infra),
        planned({"a": good.spec, "b": infra.spec}),
        paths=sweep_paths,
        sink=SinkConfig(name="default"),
        command="python -m rl_bench.sweep +experiment=x",
        console=Console(file=out, width=80),
    )
    text = out.getvalue()
    assert code == 1
    assert "+39.0" in text
    assert "1 x infra_error (infrastructure)" in text
    assert "The same command runs only these: python -m rl_bench.sweep +experiment=x" in text
    assert "starts again from its beginning" not in text
    assert f"wandb sync {sweep_paths.wandb}/offline-run-*" in text
    assert "duckdb)" in text
    assert f"{sweep_paths.runs}/<run>/logs/agent.stdout, agent.stderr" in text
    assert f"remove {sweep_paths.runs}/<run>" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_show_says_that_interrupted_runs_begin_again(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("a").start().baseline(1.0).reject()
    out = io.StringIO()
    plan = planned({"a": run.spec})
    sink = SinkConfig(name="default")
    console = Console(file=out)
    show(views_of(run), plan, paths=sweep_paths, sink=sink, command="c", console=console)
    assert "An interrupted run starts again from its beginning." in out.getvalue()
    assert "1 x request_rejected, e.g. run a: adapter_only: m" in out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_every_score_is_whole_at_common_widths(
    story: MakeStory, sweep_paths: SweepPaths, width: int
) -> None:
    stories = [
        story(f"reference-none-{mode}-{task}-s0-{n}a2b3c4d", tasks=(task,))
        for n, (mode, task) in enumerate(
            (mode, task)
            for mode in ("sft_only", "rl_only")
            for task in ("alfworld_mini", "gsm8k_mini")
        )
    ]
    for n, run in enumerate(stories):
        mode = run.spec.mode.model_copy(update={"name": ("sft_only", "rl_only")[n // 2]})
        run.spec = run.spec.model_copy(update={"mode": mode})
        run.start().baseline(1.5).submit(1, 10.0 + n).submit(2, 100.0 - n).finish()
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    plan = planned({run.run_id: run.spec for run in stories})
    sink = SinkConfig(name="default")
    show(views_of(*stories), plan, paths=sweep_paths, sink=sink, command="c", console=console)
    lines = out.getvalue().splitlines()
    assert "4 runs · agent reference · driver none · model tiny · seed 0" in lines
    (head,) = (n for n, line in enumerate(lines) if line.startswith("run "))
    headings = ["run", "mode", "task", "end", "base", "first", "best", "gain", "subs"]
    assert lines[head].split()[:9] == headings
    assert len(lines[head]) <= width
    for n, line in enumerate(lines[head + 1 : head + 5]):
        assert len(line) <= width
        assert line.split()[:4] == [
            f"{n}a2b3c4d",
            ("sft_only", "rl_only")[n // 2],
            ("alfworld_mini", "gsm8k_mini")[n % 2],
            "completed",
        ]
        scores = ["1.5", f"{10.0 + n:.1f}", f"{100.0 - n:.1f}", f"+{98.5 - n:.1f}", "2"]
        assert line.split()[4:9] == scores
    assert "failed" not in lines[head], "none did"
    assert ("used" in lines[head].split()) == (width > 80)


def test_columns_of_what_never_happened_are_left_out(story: MakeStory) -> None:
    bare = story("bare").start().baseline(1.5).finish()
    full = story("full", seed=1).start().baseline(1.5).submit(1, None, failure="x").submit(2, 9.0)
    headings = [
        run_table(views_of(*runs), planned({run.run_id: run.spec for run in runs}), width=200)
        .plain.splitlines()[0]
        .split()
        for runs in ([bare], [bare, full.finish()])
    ]
    assert [heading for heading in headings[1] if heading not in headings[0]] == [
        "seed",
        "first",
        "failed",
    ]


@pytest.mark.parametrize(
    ("columns", "width"), [("", 200), ("70", 70), ("0", 200), ("wide", 200), ("-5", 200)]
)
def test_a_file_gets_whole_tables_unless_columns_says_how_wide(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    console = Console(file=io.StringIO())
    widen(console)
    assert console.width == width
    terminal = Console(file=io.StringIO(), force_terminal=True, width=50)
    widen(terminal)
    assert terminal.width == 50


def test_the_full_plan_keeps_numbers_whole_where_words_do_not_fit(story: MakeStory) -> None:
    runs = [story(f"x{n}", tasks=("a_task_of_a_very_long_name" * 2,), seed=n) for n in range(2)]
    for run in runs:
        run.start().baseline(12.5).submit(1, 100.0).finish(RunEnd.HUNG_AFTER_RESULT)
    table = run_table(views_of(*runs), planned({r.run_id: r.spec for r in runs}), width=60)
    rows = str(table).splitlines()[:3]
    assert all(len(row) <= 60 for row in rows)
    assert rows[1].split()[-3:] == ["12.5", "100.0", "+87.5"]
    assert "…" in rows[1]


def test_a_gain_within_the_noise_is_marked(story: MakeStory) -> None:
    small = story("a").start().baseline(50.0, repeat_scores=(49.0, 51.0)).submit(1, 50.4)
    large = story("b").start().baseline(50.0, repeat_scores=(49.0, 51.0)).submit(1, 70.0)
    plan = planned({"a": small.spec, "b": large.spec})
    text = str(run_table(views_of(small, large), plan, width=120))
    assert "+0.4~" in text
    assert "+20.0 " in text
    assert "3.9" in text
    assert "~          the gain is within the noise floor" in text
    assert "noise      the noise floor" in text
    once = story("c").start().baseline(50.0).submit(1, 50.4)
    text = str(run_table(views_of(once), planned({"c": once.spec}), width=120))
    assert "+0.4" in text
    assert "~" not in text
    assert "noise" not in text


def test_legend_explains_only_what_occurs(story: MakeStory) -> None:
    good = story("a").start().baseline(1.0).submit(1, 40.0).finish()
    text = str(run_table(views_of(good), planned({"a": good.spec}), width=100))
    assert "the base model's score" in text
    assert "best less base" in text
    assert "cap was used up" not in text
    assert "no score" not in text
    late = story("b").start().baseline(1.0).accept(1, unchanged=True).grade(1, 1.0)
    late.finish(RunEnd.TIMED_OUT)
    text = str(run_table(views_of(late), planned({"b": late.spec}), width=100))
    assert "timed_out  the budget or the driver's cap was used up, a normal end" in text
    assert "1.0*" in text
    assert "submitted unchanged" in text


def test_the_pandas_line_prints_scores(sweep_paths: SweepPaths) -> None:
    row = dict.fromkeys(("agent", "mode", "task", "end"), "word")
    scores = {"baseline_score": 1.5, "first_score": 2.5, "best_score": 43.25, "improvement": 41.75}
    (sweep_paths.tables / "runs").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist([row | scores | {"counts": True, "mode_verdict": "suspect"}]),
        sweep_paths.tables / "runs" / "0.parquet",
    )
    lines = result_lines(sweep_paths, sink=SinkConfig(name="n"))
    (line,) = (line for line in lines if line.startswith("pandas"))
    command = line.removeprefix("pandas").strip()
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "43.25" in done.stdout
    assert "41.75" in done.stdout
    assert "suspect" in done.stdout


def test_commands_name_the_running_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sweep_paths: SweepPaths
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert interpreter() == ".venv/bin/python"
    lines = result_lines(sweep_paths, sink=SinkConfig(name="n"))
    assert any(".venv/bin/python -m rl_bench.sinks.parquet" in line for line in lines)
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert interpreter() == "/usr/bin/python3"


def test_result_lines_name_wandb_only_where_it_is(sweep_paths: SweepPaths) -> None:
    off = SinkConfig(name="n", wandb=WandbConfig(mode="disabled"))
    assert not any("W&B" in line for line in result_lines(sweep_paths, sink=off))
    online = SinkConfig(name="n", wandb=WandbConfig(mode="online"))
    assert "group s" in result_lines(sweep_paths, sink=online)[-1]


def shown(paths: SweepPaths, *stories: Story, width: int = 120) -> list[str]:
    out = io.StringIO()
    show(
        views_of(*stories),
        planned({run.run_id: run.spec for run in stories}),
        paths=paths,
        sink=SinkConfig(name="default"),
        command="c",
        console=Console(file=out, width=width, force_terminal=True, color_system=None),
    )
    return out.getvalue().splitlines()


def test_invalid_runs_stand_apart_with_their_reason(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    good = story("good").start().baseline(5.0).submit(1, 45.0).finish()
    bad = story("bad").start().baseline(5.0).submit(1, 95.0)
    bad.add(audited(ModeVerdict.BREACH, summary="GRPO ran in sft_only")).finish(RunEnd.INVALID)
    lines = shown(sweep_paths, bad, good)
    apart = lines.index("Invalid runs, which count for nothing:")
    (row,) = (n for n, line in enumerate(lines) if line.startswith("good "))
    assert row < apart
    assert lines[apart + 2].split()[:7] == [
        "bad",
        "alfworld",
        "invalid",
        "5.0",
        "95.0",
        "95.0!",
        "+90.0!",
    ]
    assert "  bad  GRPO ran in sft_only" in lines
    assert "!          a rule was broken: the score is kept, and counts for nothing" in lines
    assert "  1 x invalid, e.g. run bad: GRPO ran in sft_only" in lines
    assert exit_code(views_of(good, bad), ["good", "bad"]) == 0
    assert "Invalid runs, which count for nothing:" not in shown(sweep_paths, good)


def test_all_runs_may_be_invalid(story: MakeStory, sweep_paths: SweepPaths) -> None:
    bad = story("bad").start().baseline(5.0).finish(RunEnd.INVALID, detail="why")
    lines = shown(sweep_paths, bad)
    assert len([line for line in lines if line.startswith("run ")]) == 1
    assert "  bad  why" in lines


def test_an_invalid_submission_is_a_failure_with_its_reason(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0).submit(2, 40.0)
    run.add(finding("breach", summary="the instruct model", submission_id=1)).finish()
    found = failures(views_of(run), planned({"r": run.spec}))
    (told,) = (f for f in found if f.kind == "submission_invalid")
    assert (told.num, told.is_infrastructure) == (1, False)
    assert told.example == "run r, alfworld: known_model: the instruct model"
    assert "40.0" in str(run_table(views_of(run), planned({"r": run.spec}), width=120))


def test_runs_that_the_driver_ended_are_listed_with_the_kind(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    good = story("good").start().baseline(5.0).add(call()).finish()
    poor = story("x-poor").start().baseline(5.0).submit(1, 9.0).add(call())
    poor.add(failed_call(DriverFailure.BILLING, status=402, detail="no credit"))
    poor.finish(RunEnd.DRIVER_ERROR)
    blind = story("x-blind").start().baseline(5.0)
    blind.finish(RunEnd.DRIVER_ERROR, detail="no call arrived")
    lines = shown(sweep_paths, good, poor, blind)
    start = lines.index("To be run again, for the driver failed:")
    label = "reference/none sft_only alfworld seed 0"
    assert lines[start + 1 : start + 3] == [
        f"  poor  {label}: billing, HTTP 402 no credit (1 of 2 calls failed)",
        f"  blind  {label}: no call arrived (0 of 0 calls failed)",
    ]
    assert any("The same command runs only these: c" in line for line in lines)
    assert not any("To be run again" in line for line in shown(sweep_paths, good))


def test_tokens_cost_revisions_and_the_sandbox_are_shown(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r", tasks=("alfworld", "gsm8k")).start().baseline(5.0, 6.0)
    run.add(BWRAP, call(tokens=(12_000, 345), cost_usd=1.25), revision("c1"), revision("c2"))
    bare = story("b").start().baseline(5.0).add(NO_SANDBOX).finish(RunEnd.DRIVER_ERROR, final=False)
    bare.start(1)
    lines = shown(sweep_paths, run.finish(), bare, width=160)
    (head,) = (n for n, line in enumerate(lines) if line.startswith("run "))
    assert {"tokens", "cost", "revs"} <= set(lines[head].split())
    assert {"12.3k", "$1.25"} <= set(lines[head + 1].split())
    assert not {"12.3k", "$1.25"} & set(lines[head + 2].split())  # once a run, not once a task
    assert "sandbox bwrap 0.8.0 in 1 run" in lines
    assert "drivers $1.25 in all attempts, 1 call in the last ones" in lines
    assert any(line.startswith("cost       of the driver's calls") for line in lines)
    bare.add(NO_SANDBOX)
    lines = shown(sweep_paths, bare)
    assert lines[lines.index("NO SANDBOX in 1 run") + 1] == "  it reads every file"


def test_without_drivers_nothing_is_said_of_them(story: MakeStory, sweep_paths: SweepPaths) -> None:
    lines = shown(sweep_paths, story("r").start().baseline(5.0).submit(1, 9.0).finish())
    assert not any(word in line for line in lines for word in ("tokens", "cost", "SANDBOX", "$"))


def looked_at(lines: list[str]) -> list[str]:
    """The block of what a person should look at."""
    start = lines.index("To be looked at (docs/audit.md):") + 1
    return lines[start : lines.index("Results:")]


def test_what_the_audit_says_of_runs_that_count_is_listed(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    good = story("good").start().baseline(5.0).add(audited(ModeVerdict.CLEAN)).finish()
    dark = story("x-dark").start().baseline(5.0)
    dark.add(audited(ModeVerdict.UNKNOWN, summary="no training\nwas seen"), finding("info"))
    noisy = story("x-noisy").start().baseline(5.0).submit(1, 9.0)
    noisy.add(finding("warning", summary="one"), finding("warning", summary="w" * 900))
    noisy.add(finding("breach", summary="the base", submission_id=1))
    bad = story("bad").start().baseline(5.0)
    bad.add(audited(ModeVerdict.BREACH)).finish(RunEnd.INVALID)
    lines = shown(sweep_paths, good, dark.finish(), noisy.finish(), bad)
    first, second = looked_at(lines)
    assert first == "  dark  mode unknown: no training was seen"
    start = "  noisy  1 breach: known_model: the base; 2 warnings, the last: known_model: www"
    assert second.startswith(start)
    assert second.endswith("…")
    assert len(second) < 400
    assert any(f"-m rl_bench.audit {sweep_paths.root}" in line for line in lines)
    assert not any("looked at" in line for line in shown(sweep_paths, good))


def test_a_probe_that_got_nowhere_is_told(story: MakeStory, sweep_paths: SweepPaths) -> None:
    words = "0 of 51 attempts got through"
    probe = story("x-probe").start().baseline(5.0)
    probe.add(finding("info", summary=words).model_copy(update={"rule": "leak_probe"}))
    other = story("other").start().baseline(5.0).add(finding("info", summary=words)).finish()
    lines = shown(sweep_paths, probe.finish(), other)
    assert [line for line in lines if words in line] == [f"leak_probe: {words} (probe)"]
    changed = agent_changes(None, views_of(probe)["x-probe"])
    assert changed == [f"finding, info: leak_probe: {words}"]
    assert not agent_changes(views_of(probe)["x-probe"], views_of(probe)["x-probe"])


def test_what_is_to_be_looked_at_is_bounded(story: MakeStory, sweep_paths: SweepPaths) -> None:
    stories = [
        story(f"r{n}").start().baseline(5.0).add(audited(ModeVerdict.SUSPECT)).finish()
        for n in range(20)
    ]
    block = looked_at(shown(sweep_paths, *stories))
    assert block[11:] == ["  r11  mode suspect: why", "  … and 8 runs more"]


def test_why_runs_were_timed_out_early_stands_below_the_table(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    plain = story("plain").start().baseline(5.0).finish(RunEnd.TIMED_OUT)
    capped = [
        story(f"x-{name}").start().baseline(5.0).finish(RunEnd.TIMED_OUT, detail="3 calls of 3")
        for name in ("a", "b")
    ]
    lines = shown(sweep_paths, plain, *capped)
    assert lines.count("timed_out  3 calls of 3 (a, b)") == 1
    assert not any("plain)" in line for line in lines)


def test_every_table_is_named() -> None:
    assert set(TABLES) == set(SCHEMAS)
