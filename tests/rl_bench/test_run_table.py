"""The table of runs: whole numbers at any width, columns of what happened, a legend of them."""

import io

import pytest
from rich.console import Console

from rl_bench.config import SinkConfig
from rl_bench.events import RunEnd
from rl_bench.lines import widen
from rl_bench.paths import SweepPaths
from rl_bench.run_table import Column, PlannedRun, planned, title
from rl_bench.summary import run_columns, run_table, show
from tests.rl_bench.agent_story import call, revision
from tests.rl_bench.conftest import MakeStory
from tests.rl_bench.summary_scene import views_of


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


def test_legend_explains_every_column_that_is_no_name(story: MakeStory) -> None:
    run = story("a").start().baseline(1.0, repeat_scores=(0.5, 1.5)).submit(1, None, failure="x")
    run.add(call(tokens=(9, 9), cost_usd=1.0), revision("c1")).submit(2, 40.0).finish()
    plan = planned({"a": run.spec})
    text = run_table(views_of(run), plan, width=300).plain.splitlines()
    headings = {column.heading for column in run_columns(views_of(run), plan, plan)}
    explained = {line.split("  ")[0] for line in text[text.index("") + 1 :]}
    assert {"subs", "duration", "end", "failed", "revs", "tokens", "noise"} <= headings
    assert headings - explained == {"run", "task"}, "names, which need no explanation"


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


def test_what_others_named_gives_no_orders_in_cells_titles_and_alarms() -> None:
    evil = "\x1b[2J\nok\u202e"
    column = Column(heading="sweep", cells=(evil, "plain"))
    assert column.cells == ("�[2J�ok�", "plain")
    assert column.width == 8
    run = PlannedRun(
        run_id="r", agent=evil, driver="d", mode="m", tasks=("t",), model="b", seed=0, budget_s=1.0
    )
    assert title([run]).startswith("1 run · agent �[2J�ok� · ")
