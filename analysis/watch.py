"""``python -m analysis.watch DIR``: a running sweep in the terminal, from its ledgers only.

Reads and never writes: any number may watch, on any machine that sees the folder, and the sweep
does not notice. A table on a terminal, plain lines with the time elsewhere. A folder that holds
several sweeps stands for the one of them that runs; where that is not one, they are listed. Exit
codes: 0 every planned run is over and none must be run again; 1 some must; 2 bad input.
"""

import argparse
import copy
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from analysis.errors import ResultsError
from analysis.ledgers import SweepLedgers, planned_ids, sweeps_in
from rl_bench.command_line import (
    EXIT_INTERRUPTED,
    ended,
    number_within,
    prepare_process,
    read_flags,
    say,
)
from rl_bench.counts import plural
from rl_bench.lines import StampedLines, can_redraw, printable, widen
from rl_bench.paths import SweepPaths
from rl_bench.progress import changes, heartbeat, render, totals
from rl_bench.run_table import Column, PlannedRun, duration, table_text, title
from rl_bench.run_view import RunView
from rl_bench.summary import exit_code, interpreter, run_table

QUIET_S = 300.0
"""A sweep whose ledgers stay as they are for so long is said to be quiet."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    if argv is None:
        prepare_process()
    args = read_flags(_parser(), argv)
    return ended(lambda: _show(args), interrupted="a view changes nothing")


def _show(args: argparse.Namespace) -> int:
    try:
        sweep = _sweep(args.folder)
        return _once(sweep) if args.once else _watch(sweep, interval_s=args.interval)
    except KeyboardInterrupt:  # how a live view is left: nothing to tell
        return EXIT_INTERRUPTED


def _sweep(folder: Path) -> SweepLedgers:
    """The sweep that is ``folder``, or the only one in it, or the only one in it that runs.

    Raises:
        ResultsError: There is none, or which one is not clear; then they have been listed.
    """
    found = [SweepLedgers(SweepPaths(path)) for path in sweeps_in([folder])]
    if len(found) == 1:
        return found[0]
    driven = [sweep for sweep in found if sweep.is_driven]
    if len(driven) == 1:
        name = driven[0].paths.root.name
        say(f"{name}: the one that runs of {plural(len(found), 'sweep')} in {folder}")
        return driven[0]
    _list(found)
    raise ResultsError(
        f"{folder} holds {plural(len(found), 'sweep')}, and {len(driven) or 'none'} of them "
        f"{'run' if driven else 'runs'}: name one of them, as listed"
    )


def _list(sweeps: Sequence[SweepLedgers]) -> None:
    """Prints sweeps, the latest first, with the command that watches each."""
    ordered = sorted(sweeps, key=lambda sweep: sweep.changed_utc, reverse=True)
    cells = {
        "sweep": [sweep.paths.root.name for sweep in ordered],
        "runs": [_num_planned(sweep) for sweep in ordered],
        "now": ["runs" if sweep.is_driven else "" for sweep in ordered],
        "last entry (UTC)": [f"{sweep.changed_utc:%Y-%m-%d %H:%M:%S}" for sweep in ordered],
        "watch": [_command(sweep.paths.root) for sweep in ordered],
    }
    columns = [
        Column(heading=heading, cells=tuple(column), is_number=heading == "runs")
        for heading, column in cells.items()
        if any(column)
    ]
    say(table_text(columns, width=sum(column.width + 2 for column in columns)).plain)


def _num_planned(sweep: SweepLedgers) -> str:
    try:
        return str(len(planned_ids(sweep.paths)) or "?")
    except ResultsError:  # told when it is watched; the others can be
        return "?"


def _command(sweep: Path) -> str:
    near = sweep.relative_to(Path.cwd()) if sweep.is_relative_to(Path.cwd()) else sweep
    return f"{interpreter()} -m analysis.watch {shlex.quote(str(near))}"


def _console() -> Console:
    """Standard output; one that is no terminal is made wide enough for every word."""
    console = Console()
    widen(console)
    return console


def _once(sweep: SweepLedgers) -> int:
    sweep.update()
    console = _console()
    table = render(
        sweep.views,
        sweep.plan(),
        now=datetime.now(UTC),
        is_driven=sweep.is_driven is not False,
        max_rows=10_000,
        width=console.width,
    )
    console.print(table)
    for line in _remarks(sweep):
        say(line)
    return _code(sweep)


def _watch(sweep: SweepLedgers, *, interval_s: float) -> int:
    console = _console()
    if can_redraw(console):
        _show_table(sweep, console, interval_s=interval_s)
    else:
        _print_lines(sweep, console, interval_s=interval_s)
    plan = sweep.plan()
    console.print(title(plan), style="bold", markup=False, highlight=False)
    console.print(run_table(sweep.views, plan, width=console.width), soft_wrap=True)
    return _code(sweep)


def _show_table(sweep: SweepLedgers, console: Console, *, interval_s: float) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            sweep.update()
            plan, remarks = sweep.plan(), _remarks(sweep)
            table = render(
                sweep.views,
                plan,
                now=datetime.now(UTC),
                is_driven=sweep.is_driven is not False,
                max_rows=max(console.height - 7 - len(remarks), 3),
                width=console.width,
            )
            words = [Text(printable(line), style="yellow") for line in remarks]
            live.update(Group(table, *words), refresh=True)
            if _is_over(sweep, plan):
                live.update(Text(), refresh=True)  # as `Progress` does, lest a part of it stays
                return
            time.sleep(interval_s)


def _print_lines(sweep: SweepLedgers, console: Console, *, interval_s: float) -> None:
    lines = StampedLines(console)
    before: dict[str, RunView] = {}
    told: set[str] = set()
    counted: tuple[str, bool] | None = None
    is_titled = False
    while True:
        sweep.update()
        plan, views, now = sweep.plan(), sweep.views, datetime.now(UTC)
        is_driven = sweep.is_driven is not False
        new = [title(plan)] if plan and not is_titled else []
        is_titled |= bool(new)
        new += changes(before, views, plan)
        words = totals(views, plan, now=now, is_driven=is_driven)
        if (words.split(" · ", 1)[0], is_driven) != counted:
            counted = words.split(" · ", 1)[0], is_driven
            new.append(words)
        if not new and lines.is_due:
            new = [heartbeat(views, plan, now=now, is_driven=is_driven)]
        new += [line for line in _remarks(sweep) if line.split(":", 1)[0] not in told]
        told |= {line.split(":", 1)[0] for line in _remarks(sweep)}
        for line in new:
            lines.say(line, now=now)
        before = copy.deepcopy(views)
        if _is_over(sweep, plan):
            return
        time.sleep(interval_s)


def _remarks(sweep: SweepLedgers) -> list[str]:
    """Ledgers that cannot be read, and why runs that are not over may not go on."""
    remarks = [f"run {name}: {why}" for name, why in sorted(sweep.problems.items())]
    is_driven = sweep.is_driven
    if is_driven is False and not _is_over(sweep, sweep.plan()):
        return [
            *remarks,
            "interrupted: no process runs this sweep; the same command goes on with it",
        ]
    active = [view.last_time_utc for view in sweep.views.values() if not view.is_final]
    if active:
        last = max(map(datetime.fromisoformat, active))
        quiet_s = (datetime.now(UTC) - last).total_seconds()
        if quiet_s > QUIET_S:
            unsure = "; if the sweep is not running, its own command goes on with it"
            remarks.append(
                f"no entry in any ledger: for {duration(quiet_s)}{'' if is_driven else unsure}"
            )
    return remarks


def _is_over(sweep: SweepLedgers, plan: Sequence[PlannedRun]) -> bool:
    views = sweep.views
    return bool(plan) and all(run.run_id in views and views[run.run_id].is_final for run in plan)


def _code(sweep: SweepLedgers) -> int:
    return exit_code(sweep.views, [run.run_id for run in sweep.plan()])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.watch",
        description="Shows a running sweep in the terminal, from its ledgers; writes nothing.",
        epilog="Exit codes: 0 all runs are over; 1 some must be run again; 2 bad input.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "folder", type=Path, help="the sweep's folder, or one that holds sweeps, of which one runs"
    )
    interval = partial(number_within, 0.1, 3600)
    parser.add_argument("--interval", type=interval, default=1.0, help="seconds between looks (1)")
    parser.add_argument("--once", action="store_true", help="one look, of every run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
