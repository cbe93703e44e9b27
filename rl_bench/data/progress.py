"""How far downloads are: bars on a terminal, a line now and then in a log.

`show_progress` yields a function that begins the display of a file and returns its `Report`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from rl_bench.counts import plural
from rl_bench.data.fetch import Report
from rl_bench.lines import can_redraw

LINE_EVERY_S = 10.0
MB = 1e6


def shown_size(num_bytes: int) -> str:
    """A size for people, e.g. ``4.2 MB``."""
    if num_bytes < 1000:
        return plural(num_bytes, "byte")
    return f"{num_bytes / MB:.1f} MB" if num_bytes >= MB / 10 else f"{num_bytes / 1e3:.1f} kB"


@contextmanager
def show_progress(console: Console) -> Iterator[Callable[[str], Report]]:
    """Shows downloads on ``console`` while the context lasts."""
    if not can_redraw(console):
        yield lambda name: _lines(name, console)
        return
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield lambda name: _bar(name, bars)


def _bar(name: str, bars: Progress) -> Report:
    task = bars.add_task(name, total=None)

    def report(size: int, total: int | None) -> None:
        bars.update(task, completed=size, total=total)

    return report


def _lines(name: str, console: Console) -> Report:
    last = time.monotonic()

    def report(size: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            whole = f" of {shown_size(total)}" if total is not None else ""
            console.print(f"  {name}: {shown_size(size)}{whole}", highlight=False, soft_wrap=True)

    return report
