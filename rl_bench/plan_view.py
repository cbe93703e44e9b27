"""What ``dry_run=true`` shows: the plan, its cost and the preflight checks.

On a terminal in colour, in a pipe as plain text. A long plan is shown grouped.
"""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rl_bench.config import Experiment, RunSpec
from rl_bench.counts import plural
from rl_bench.lines import printable, widen
from rl_bench.plan import run_id, undrivable_pairs
from rl_bench.preflight import Check, Verdict, num_local_cpus, num_local_gpus

MAX_ROWS = 60
SECONDS_PER_HOUR = 3600.0
_MARKS = {
    Verdict.OK: ("✓", "green"),
    Verdict.WARNING: ("!", "yellow"),
    Verdict.FAILED: ("✗", "red"),
}


class Cost(NamedTuple):
    """What a plan takes at most. ``wall_hours`` and ``grader_gpu_hours`` are None when unknown."""

    num_gpus_per_run: float
    run_gpu_hours: float
    num_grader_gpus: int
    num_parallel: int | None
    wall_hours: float | None
    grader_gpu_hours: float | None


def show_plan(
    experiment: Experiment, plan: Sequence[RunSpec], checks: Sequence[Check], *, console: Console
) -> None:
    """Prints everything; the last line holds the number of runs."""
    console.print(f"\nSweep [bold]{experiment.sweep.name}[/bold]")
    print_table(_runs_table(plan) if len(plan) <= MAX_ROWS else _groups_table(plan), console)
    dropped = undrivable_pairs(experiment)
    if dropped:
        shown = ", ".join(f"{agent} x {driver}" for agent, driver in dropped[:4])
        more = f", and {len(dropped) - 4} more" if len(dropped) > 4 else ""
        console.print(f"Left out, no API in common: {plural(len(dropped), 'pair')} ({shown}{more})")
    print_table(_cost_table(experiment, plan), console)
    print_table(checks_table(checks), console)
    show_refusal(checks, console=console)
    console.print(f"dry run, nothing started: {plural(len(plan), 'run')}")


def show_refusal(checks: Sequence[Check], *, console: Console) -> None:
    """Says that a start would be refused, if it would."""
    num_failed = sum(check.verdict is Verdict.FAILED for check in checks)
    if num_failed:
        what = plural(num_failed, "check")
        console.print(f"A start would be refused: {what} failed.", style="red")


def make_console() -> Console:
    """A console on stdout that does not fold tables at 80 columns in a pipe."""
    console = Console(highlight=False)
    widen(console)
    return console


def cost(experiment: Experiment, plan: Sequence[RunSpec]) -> Cost:
    """The upper bound of what a plan takes: every run uses its whole budget."""
    cluster, grader = experiment.cluster, experiment.grader
    hours = experiment.budget.wall_clock_s / SECONDS_PER_HOUR
    num_grader_gpus = grader.num_graders * grader.gpus_per_grader
    parallel = _num_parallel(experiment, num_runs=len(plan))
    wall = None if parallel is None else math.ceil(len(plan) / parallel) * hours
    return Cost(
        num_gpus_per_run=cluster.gpus_per_run,
        run_gpu_hours=len(plan) * hours * cluster.gpus_per_run,
        num_grader_gpus=num_grader_gpus,
        num_parallel=parallel,
        wall_hours=wall,
        grader_gpu_hours=0.0 if num_grader_gpus == 0 else wall and wall * num_grader_gpus,
    )


def _num_parallel(experiment: Experiment, *, num_runs: int) -> int | None:
    """Runs at once as far as it can be told here; None for a cluster of unknown size."""
    cluster, grader = experiment.cluster, experiment.grader
    bounds = [num_runs]
    if cluster.max_parallel_runs is not None:
        bounds.append(cluster.max_parallel_runs)
    if cluster.address is None:
        if cluster.cpus_per_run:
            cpus = cluster.num_cpus or num_local_cpus()
            bounds.append(int(cpus / cluster.cpus_per_run))
        if cluster.gpus_per_run:
            have = num_local_gpus() if cluster.num_gpus is None else cluster.num_gpus
            left = have - grader.num_graders * grader.gpus_per_grader
            bounds.append(int(left / cluster.gpus_per_run))
    elif cluster.max_parallel_runs is None:
        return None
    return max(1, min(bounds))


def _runs_table(plan: Sequence[RunSpec]) -> Table:
    table = plain_table("run id", "agent", "driver", "mode", "task", "model", "seed", "budget")
    for spec in plan:
        table.add_row(run_id(spec), *_conditions(spec), str(spec.seed), _budget(spec))
    return table


def _groups_table(plan: Sequence[RunSpec]) -> Table:
    """One row for each agent, driver, mode and model, with the number of runs."""
    key: Callable[[RunSpec], tuple[str, ...]] = lambda spec: (  # noqa: E731  named for groupby
        spec.agent.name,
        spec.driver.name,
        spec.mode.name,
        spec.model.name,
        _budget(spec),
    )
    table = plain_table("agent", "driver", "mode", "model", "budget", "tasks", "seeds", "runs")
    for labels, specs in groupby(sorted(plan, key=key), key=key):
        group = list(specs)
        tasks = {task.name for spec in group for task in spec.tasks}
        seeds = {spec.seed for spec in group}
        table.add_row(*labels, str(len(tasks)), str(len(seeds)), str(len(group)))
    return table


def _conditions(spec: RunSpec) -> tuple[str, ...]:
    tasks = spec.tasks[0].name if len(spec.tasks) == 1 else f"{len(spec.tasks)} tasks"
    return (spec.agent.name, spec.driver.name, spec.mode.name, tasks, spec.model.name)


def _budget(spec: RunSpec) -> str:
    seconds = spec.budget.wall_clock_s
    return f"{seconds / SECONDS_PER_HOUR:g} h" if seconds >= SECONDS_PER_HOUR else f"{seconds:g} s"


def _duration(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{math.ceil(hours * 60)} min"


def _cost_table(experiment: Experiment, plan: Sequence[RunSpec]) -> Table:
    cluster, grader, total = experiment.cluster, experiment.grader, cost(experiment, plan)
    table = plain_table("resources", "")
    gpus = plural(cluster.gpus_per_run, "GPU")
    table.add_row("each run", f"{plural(cluster.cpus_per_run, 'CPU')}, {gpus}")
    table.add_row(
        "graders",
        f"{grader.num_graders} x {plural(grader.gpus_per_grader, 'GPU')}, "
        f"{plural(grader.num_rollout_workers, 'rollout worker')}",
    )
    parallel = "as the cluster allows" if total.num_parallel is None else f"{total.num_parallel}"
    table.add_row("runs at once, at most", parallel)
    wall = "depends on the cluster" if total.wall_hours is None else _duration(total.wall_hours)
    table.add_row("wall time, if every run uses its budget", wall)
    graders = (
        f"{total.num_grader_gpus} for each hour of the sweep"
        if total.grader_gpu_hours is None
        else f"{total.grader_gpu_hours:,.0f}"
    )
    table.add_row(
        "GPU-hours, estimated", f"{total.run_gpu_hours:,.0f} for the runs; graders: {graders}"
    )
    return table


def checks_table(checks: Sequence[Check]) -> Table:
    """What preflight found, a row a check."""
    table = plain_table("", "preflight", "found", "cure")
    for check in checks:
        mark, colour = _MARKS[check.verdict]
        words = map(printable, (check.name, check.detail, check.cure))
        table.add_row(Text(mark, style=colour), *map(Text, words))
    return table


def print_table(table: Table, console: Console) -> None:
    """Prints a table without blanks at the ends of lines."""
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("\n".join([*lines, ""]))


def plain_table(*columns: str) -> Table:
    """A table without lines, whose cells are folded where the console is too narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
