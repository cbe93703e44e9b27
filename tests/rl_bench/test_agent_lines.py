"""What the end tells of drivers, sandboxes, audits and invalid runs."""

from rl_bench.agent_lines import agent_changes
from rl_bench.events import DriverFailure, ModeVerdict, RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.run_table import planned
from rl_bench.summary import exit_code, failures, run_table
from tests.rl_bench.agent_story import (
    BWRAP,
    NO_SANDBOX,
    audited,
    call,
    failed_call,
    finding,
    revision,
)
from tests.rl_bench.conftest import MakeStory
from tests.rl_bench.summary_scene import shown, views_of


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
    assert lines[start + 1 : start + 3] == [
        "  poor  alfworld: billing, HTTP 402 no credit (1 of 2 calls failed)",
        "  blind  alfworld: no call arrived (0 of 0 calls failed)",
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
