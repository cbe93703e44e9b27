"""The end tells failures by class, where results lie, and the right exit code."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.events import RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.progress import planned
from rl_bench.run_view import RunView, fold_all
from rl_bench.summary import exit_code, failures, result_lines, show

MakeStory = Callable[..., Any]


def views_of(*stories: Any) -> dict[str, RunView]:  # noqa: ANN401  Stories of the conftest
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
        ("submission_without_score", 1, False),
    ]
    assert found[0].example == "run i1: no engine"
    assert found[4].example == "run b, alfworld: engine died"


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
    assert f"wandb sync {sweep_paths.wandb}/offline-run-*" in text


def test_result_lines_name_wandb_only_where_it_is(sweep_paths: SweepPaths) -> None:
    off = SinkConfig(name="n", wandb=WandbConfig(mode="disabled"))
    assert not any("W&B" in line for line in result_lines(sweep_paths, sink=off))
    online = SinkConfig(name="n", wandb=WandbConfig(mode="online"))
    assert "group s" in result_lines(sweep_paths, sink=online)[-1]
