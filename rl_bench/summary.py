"""The end of a sweep: table of runs, failures by class, where results lie, the exit code.

A failed run shows its class and no score; only what must be run again makes the code non-zero.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from rl_bench.config import SinkConfig
from rl_bench.paths import SweepPaths
from rl_bench.progress import PlannedRun, duration, number, state_words
from rl_bench.run_view import RunView, TaskView

EXIT_OK = 0
EXIT_INCOMPLETE = 1

_FILE_WIDTH = 180


class Failure(NamedTuple):
    """A class of failures: how many, whether infrastructure's, and one example's words."""

    kind: str
    num: int
    is_infrastructure: bool
    example: str


def exit_code(views: Mapping[str, RunView], run_ids: Iterable[str]) -> int:
    """0 only if every planned run has finished for good without an infrastructure failure.

    A run that the agent failed (``agent_error``, ``timed_out``, no submission) is a result and no
    reason for another code; one that never ran, is unfinished or broke on infrastructure is.
    """
    done = all(run_id in views and views[run_id].is_finished for run_id in run_ids)
    return EXIT_OK if done else EXIT_INCOMPLETE


def failures(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[Failure]:
    """Everything that went wrong, by class: ends of runs, void baselines and submissions.

    Ends ``completed`` and ``timed_out`` are no failures. A run with no view is ``not_started``, one
    with no end ``unfinished``; both need the command again, like infrastructure.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    examples: dict[tuple[str, bool], str] = {}

    def add(kind: str, *, is_infra: bool, example: str, num: int = 1) -> None:
        counts[kind, is_infra] += num
        examples.setdefault((kind, is_infra), example)

    for run in plan:
        view = views.get(run.run_id)
        if view is None or not view.is_final or view.end is None:
            kind = "not_started" if view is None else "unfinished"
            add(kind, is_infra=True, example=f"run {run.run_id}")
        elif view.end.value not in ("completed", "timed_out"):
            detail = f": {view.end_detail}" if view.end_detail else ""
            example = f"run {run.run_id}{detail}"
            add(view.end.value, is_infra=view.is_infrastructure, example=example)
        for task in view.tasks.values() if view else ():
            where = f"run {run.run_id}, {task.task}"
            if task.baseline_failure:
                example = f"{where}: {task.baseline_failure}"
                add("baseline_without_score", is_infra=False, example=example)
            if task.num_failed:
                example = f"{where}: {task.last_failure}" if task.last_failure else where
                num = task.num_failed
                add("submission_without_score", is_infra=False, example=example, num=num)
    ordered = sorted(counts.items(), key=lambda item: (not item[0][1], -item[1], item[0][0]))
    return [Failure(kind, num, infra, examples[kind, infra]) for (kind, infra), num in ordered]


def run_table(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> Table:
    """One row a run and task, in the plan's order."""
    runs = "run" if len(plan) == 1 else "runs"
    table = Table(
        title=f"{len(plan)} {runs}", title_justify="left", header_style="bold", box=SIMPLE
    )
    for heading in ("run", "agent", "driver", "mode", "task", "model", "seed", "end"):
        table.add_column(heading, overflow="fold")
    for heading in ("base", "first", "best", "gain", "subs", "failed", "budget used", "duration"):
        table.add_column(heading, justify="right")
    for run in plan:
        view = views.get(run.run_id)
        for name in run.tasks:
            task = (view.tasks.get(name) if view else None) or TaskView(task=name)
            table.add_row(*_cells(run, view, task))
    return table


def show(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    *,
    paths: SweepPaths,
    sink: SinkConfig,
    command: str,
    console: Console | None = None,
) -> int:
    """Prints the end of a sweep and returns its exit code.

    Args:
        views: The recorder's, after it was closed.
        plan: Every planned run.
        paths: Of the sweep.
        sink: Tells whether there is a W&B folder to sync.
        command: What the user typed: typed again it runs what has not finished.
        console: Where; standard output by default. One that is no terminal is made wide enough.
    """
    out = console or Console()
    if not out.is_terminal:
        out.width = max(out.width, _FILE_WIDTH)
    out.print()
    out.print(run_table(views, plan))
    found = failures(views, plan)
    if found:
        out.print("Failures by class (never counted as scores):", style="bold")
    for failure in found:
        kind = f"{failure.kind} (infrastructure)" if failure.is_infrastructure else failure.kind
        _line(out, f"  {failure.num} x {kind}, e.g. {failure.example}")
    out.print("Results:", style="bold")
    for line in result_lines(paths, sink=sink):
        _line(out, f"  {line}")
    code = exit_code(views, [run.run_id for run in plan])
    if code != EXIT_OK:
        _line(out, f"Not every run has a result. The same command runs only these: {command}")
    return code


def result_lines(paths: SweepPaths, *, sink: SinkConfig) -> list[str]:
    """Where results lie, and commands that read them."""
    runs = paths.tables / "runs"
    query = f"FROM '{runs}/*.parquet' SELECT agent, driver, mode, task, best_score, improvement"
    lines = [
        f"tables      {paths.tables}/{{runs,submissions,items,events}}/  and comparison.csv",
        f"ledgers     {paths.runs}/<run>/ledger.jsonl",
        f"""pandas      python -c "import pandas; print(pandas.read_parquet('{runs}'))\"""",
        f'duckdb      duckdb -c "{query}"',
        f"rebuild     python -m rl_bench.sinks.parquet {paths.root}",
    ]
    if sink.wandb.mode == "offline":
        lines.append(f"W&B         {paths.wandb}  (upload: wandb sync {paths.wandb}/offline-run-*)")
    elif sink.wandb.mode == "online":
        lines.append(f"W&B         project {sink.wandb.project}, group {paths.root.name}")
    return lines


def _cells(run: PlannedRun, view: RunView | None, task: TaskView) -> list[str]:
    return [
        run.digest,
        run.agent,
        run.driver,
        run.mode,
        task.task,
        run.model,
        str(run.seed),
        state_words(view),
        number(task.baseline),
        number(task.first),
        number(task.best) + (" (base)" if task.best_unchanged else ""),
        number(task.improvement, signed=True),
        str(task.num_submissions),
        str(task.num_failed),
        duration(view.budget_used_s) if view else "",
        duration(view.elapsed_s(datetime.now(UTC))) if view else "",
    ]


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
