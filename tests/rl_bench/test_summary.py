"""The end tells failures by class, where results lie, and the right exit code."""

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.events import BaselineGraded, Evaluation, Item, RunEnd, SubmissionGraded
from rl_bench.paths import SweepPaths
from rl_bench.records import SCHEMAS
from rl_bench.run_table import planned
from rl_bench.summary import TABLES, exit_code, failures, interpreter, result_lines, show
from tests.rl_bench.conftest import MakeStory
from tests.rl_bench.summary_scene import views_of


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


def test_every_table_is_named() -> None:
    assert set(TABLES) == set(SCHEMAS)
