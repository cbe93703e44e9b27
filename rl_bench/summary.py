"""The end of a sweep: table of runs, failures by class, where results lie, the exit code.

A failed run shows its class and no score; only what must be run again makes the code non-zero.
Invalid runs have a table of their own: their scores are kept, and count for nothing.
"""

import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from rl_bench.agent_lines import (
    AT_LEAST,
    again_lines,
    driver_columns,
    invalid_lines,
    look_lines,
    probe_lines,
    revision_column,
    sandbox_lines,
    timed_out_lines,
    total_cost,
    usd,
)
from rl_bench.agent_view import BREACH
from rl_bench.config import SinkConfig
from rl_bench.counts import plural
from rl_bench.lines import print_line, printable, widen
from rl_bench.paths import SweepPaths
from rl_bench.run_table import (
    INVALID,
    WITHIN_NOISE,
    Column,
    PlannedRun,
    best,
    duration,
    failed_column,
    fit,
    gain,
    number,
    numbers,
    state_words,
    table_text,
    task_views,
    title,
    varying_columns,
)
from rl_bench.run_view import RunView
from rl_bench.task_view import TaskView

EXIT_OK = 0
EXIT_INCOMPLETE = 1

_UNCHANGED = "*"

_LEGEND = {
    "end": "how the agent's session ended, whatever its score",
    "base": "the base model's score, before the agent starts",
    "first": "the score of the first valid submission that has one",
    "best": "the highest score of a valid submission",
    "gain": "best less base, in points",
    "noise": "the noise floor: 95 of 100 times two gradings of one checkpoint differ by less",
    "subs": "submissions that were accepted",
    "failed": "of them, those without a score",
    "tokens": "of the driver, in and out",
    "cost": "of the driver's calls, by its prices",
    "revs": "revisions of the agent's code",
    "used": "of the agent's budget, minutes and seconds",
    "duration": "of the last attempt, its baseline and what it waited for included",
    _UNCHANGED: "the best is the base model itself, submitted unchanged",
    WITHIN_NOISE: "the gain is within the noise floor: it may be chance",
    INVALID: "a rule was broken: the score is kept, and counts for nothing",
    AT_LEAST: "at least: some calls told no tokens",
    "–": "no score, or no cost told, which is not 0",
    "completed": "the agent ended by itself",
    "timed_out": "the budget or the driver's cap was used up, a normal end",
}
TABLES = (
    "runs",
    "submissions",
    "items",
    "events",
    "driver_calls",
    "trace",
    "revisions",
    "processes",
    "findings",
)
"""The folders under ``tables/``; see `rl_bench.records`, which a quick command need not import."""
_PANDAS_COLUMNS = (
    "agent",
    "mode",
    "task",
    "baseline_score",
    "first_score",
    "best_score",
    "improvement",
    "end",
    "counts",
    "mode_verdict",
)


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
    """Everything that went wrong, by class: ends, rejections, verdicts void or incomplete.

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
            why = view.invalid_reason or view.end_detail
            detail = f": {why}" if why else ""
            example = f"run {run.run_id}{detail}"
            add(view.end.value, is_infra=view.is_infrastructure, example=example)
        if view is not None and view.num_rejected:
            example = f"run {run.run_id}: {view.last_rejection}"
            num = view.num_rejected
            add("request_rejected", is_infra=False, example=example, num=num)
        for task in view.tasks.values() if view else ():
            where = f"run {run.run_id}, {task.task}"
            if task.baseline_failure:
                example = f"{where}: {task.baseline_failure}"
                add("baseline_without_score", is_infra=False, example=example)
            if task.num_failed:
                example = f"{where}: {task.last_failure}" if task.last_failure else where
                num = task.num_failed
                add("submission_without_score", is_infra=False, example=example, num=num)
            if task.num_invalid:
                reason = view.audit.last_by_severity.get(BREACH, "") if view else ""
                num = task.num_invalid
                add("submission_invalid", is_infra=False, example=f"{where}: {reason}", num=num)
            if task.baseline_missing and not task.baseline_failure:
                example = f"{where}, baseline: {task.baseline_missing}"
                add("items_without_verdict", is_infra=False, example=example)
            if task.baseline_outgrown:
                example = f"{where}, baseline: {task.baseline_outgrown}"
                add("beyond_context", is_infra=False, example=example)
            if task.num_incomplete:
                example = f"{where}, {task.incomplete_example}"
                num = task.num_incomplete
                add("items_without_verdict", is_infra=False, example=example, num=num)
    ordered = sorted(counts.items(), key=lambda item: (not item[0][1], -item[1], item[0][0]))
    return [Failure(kind, num, infra, examples[kind, infra]) for (kind, infra), num in ordered]


def run_columns(
    views: Mapping[str, RunView], plan: Sequence[PlannedRun], shown: Sequence[PlannedRun]
) -> list[Column]:
    """The table's columns, a row for each run of ``shown`` and task in the plan's order."""
    runs: list[PlannedRun] = []
    tasks: list[TaskView] = []
    firsts: list[RunView | None] = []
    for run in shown:
        runs += [run] * len(run.tasks)
        tasks += task_views(run, views.get(run.run_id))
        firsts += [views.get(run.run_id), *[None] * (len(run.tasks) - 1)]
    now = datetime.now(UTC)
    seen = [views.get(run.run_id) for run in runs]
    rows = list(zip(tasks, seen, strict=True))
    used = [duration(view.budget_used_s) if view else "" for view in seen]
    elapsed = [duration(view.elapsed_s(now)) if view else "" for view in seen]
    return [
        Column(heading="run", cells=tuple(run.digest for run in runs)),
        *varying_columns(plan, runs),
        Column(heading="task", cells=tuple(task.task for task in tasks)),
        Column(heading="end", cells=tuple(state_words(view) for view in seen)),
        numbers("base", [number(task.baseline) for task in tasks]),
        *_first_column(tasks),
        numbers("best", [_best(task, view) for task, view in rows]),
        numbers("gain", [gain(task, view) for task, view in rows]),
        *_noise_columns(tasks),
        numbers("subs", [str(task.num_submissions) for task in tasks], drop=2),
        *failed_column(tasks),
        *driver_columns(firsts),
        *revision_column(firsts),
        numbers("used", used, drop=5),
        numbers("duration", elapsed, drop=4),
    ]


def run_table(views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, width: int) -> Text:
    """The table of runs in ``width`` terminal cells, invalid ones apart, and a legend."""
    valid: list[PlannedRun] = []
    invalid: list[PlannedRun] = []
    for run in plan:
        view = views.get(run.run_id)
        (invalid if view is not None and view.is_invalid else valid).append(run)
    words: set[str] = set()
    parts: list[Text] = []
    for shown in (valid, invalid):
        if not shown:
            continue
        columns = fit(run_columns(views, plan, shown), width=width)
        words |= {cell for column in columns for cell in (column.heading, *column.cells)}
        if shown is invalid:
            parts.append(Text("Invalid runs, which count for nothing:", style="bold red"))
        parts += [table_text(columns, width=width), Text()]
    parts += [Text(f"  {printable(line)}") for line in invalid_lines(views, invalid)]
    parts += [Text()] if invalid else []
    for mark in (_UNCHANGED, WITHIN_NOISE, INVALID, AT_LEAST):
        if any(word.rstrip(INVALID).endswith(mark) or word.endswith(mark) for word in words):
            words.add(mark)
    legend = [Text(f"{term:9}  {text}") for term, text in _LEGEND.items() if term in words]
    return Text("\n").join([*parts, *legend])


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
    widen(out)
    out.print()
    out.print(title(plan), style="bold", markup=False, highlight=False)
    out.print()
    out.print(run_table(views, plan, width=out.width), soft_wrap=True)
    for line in _notes(views, plan):
        print_line(out, line)
    out.print()
    found = failures(views, plan)
    if found:
        out.print("Failures by class (never counted as scores):", style="bold")
    for failure in found:
        kind = f"{failure.kind} (infrastructure)" if failure.is_infrastructure else failure.kind
        print_line(out, f"  {failure.num} x {kind}, e.g. {failure.example}")
    again = again_lines(views, plan)
    if again:
        out.print("To be run again, for the driver failed:", style="bold")
    for line in again:
        print_line(out, f"  {line}")
    looks = look_lines(views, plan)
    if looks:
        out.print("To be looked at (docs/audit.md):", style="bold")
    for line in looks:
        print_line(out, f"  {line}")
    out.print("Results:", style="bold")
    for line in result_lines(paths, sink=sink):
        print_line(out, f"  {line}")
    code = exit_code(views, [run.run_id for run in plan])
    if code != EXIT_OK:
        print_line(out, f"Not every run has a result. The same command runs only these: {command}")
        if any(view.end is None for view in views.values()):
            print_line(out, "An interrupted run starts again from its beginning.")
    return code


def _notes(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """Ends before their time, what confined the agents, what drivers cost in all attempts."""
    known = [views[run.run_id] for run in plan if run.run_id in views]
    lines = [*timed_out_lines(views, plan), *probe_lines(views, plan), *sandbox_lines(known)]
    cost = total_cost(known)
    if cost is not None:
        num = sum(view.driver_use.num_calls for view in known)
        lines.append(f"drivers {usd(cost)} in all attempts, {plural(num, 'call')} in the last ones")
    return ["", *lines] if lines else []


def interpreter() -> str:
    """The running Python for a shell, relative to the current folder where it lies below it."""
    path = Path(sys.executable or "python")
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def result_lines(paths: SweepPaths, *, sink: SinkConfig) -> list[str]:
    """Where results lie, and commands that read them."""
    runs = paths.tables / "runs"
    query = (
        f"FROM '{runs}/*.parquet' SELECT agent, driver, mode, task, best_score, improvement, counts"
    )
    code = (
        f"import pandas; print(pandas.read_parquet('{runs}')[{list(_PANDAS_COLUMNS)}].to_string())"
    )
    lines = [
        f"tables      {paths.tables}/{{{','.join(TABLES)}}}/",
        "            and comparison.csv; docs/results.md explains every column",
        f"ledgers     {paths.runs}/<run>/ledger.jsonl  (<run> ends in the table's first column)",
        f"logs        {paths.runs}/<run>/logs/agent.stdout, agent.stderr",
        f'pandas      {interpreter()} -c "{code}"',
        f'duckdb      duckdb -c "{query}"  (if you have duckdb)',
        f"report      {interpreter()} -m analysis.report {shlex.quote(str(paths.root))}",
        f"audit       {interpreter()} -m rl_bench.audit {shlex.quote(str(paths.root))}",
        f"rebuild     {interpreter()} -m rl_bench.sinks.parquet {shlex.quote(str(paths.root))}",
        f"do again    a finished run: remove {paths.runs}/<run>, then give the same command",
    ]
    if sink.wandb.mode == "offline":
        lines.append(f"W&B         {paths.wandb}  (upload: wandb sync {paths.wandb}/offline-run-*)")
    elif sink.wandb.mode == "online":
        lines.append(f"W&B         project {sink.wandb.project}, group {paths.root.name}")
    return lines


def _best(task: TaskView, view: RunView | None) -> str:
    return best(task, view, mark=_UNCHANGED if task.best_unchanged else "")


def _first_column(tasks: Sequence[TaskView]) -> list[Column]:
    """The first valid scores; no column where there are none."""
    if all(task.first is None for task in tasks):
        return []
    return [numbers("first", [number(task.first) for task in tasks], drop=1)]


def _noise_columns(tasks: Sequence[TaskView]) -> list[Column]:
    """The noise floors; no column where none was measured."""
    if all(task.noise_floor is None for task in tasks):
        return []
    return [numbers("noise", [number(task.noise_floor) for task in tasks], drop=1)]
