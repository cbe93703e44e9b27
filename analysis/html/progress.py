"""How far a report is: a bar on a terminal, a line a step elsewhere; on standard error."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from rl_bench.command_line import say
from rl_bench.lines import can_redraw

LINE_S = 10.0
"""Where there is no terminal, a long step is told of so often."""


class Steps:
    """Shows steps; use as a context manager and call `tell`."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._said_s = 0.0

    def __enter__(self) -> Self:
        console = Console(file=sys.stderr)
        if can_redraw(console):
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, name: str, done: int, total: int) -> None:
        """``done`` of ``total`` of the step are there."""
        is_new = name != self._name
        self._name = name
        if self._bar is not None:
            if is_new or self._task is None:
                self._task = self._bar.add_task(name, total=total)
            self._bar.update(self._task, completed=done)
            return
        now = time.monotonic()
        if is_new or done == total or now - self._said_s >= LINE_S:
            self._said_s = now
            say(f"{name} {done}/{total}" if total > 1 else name, to_stderr=True)
