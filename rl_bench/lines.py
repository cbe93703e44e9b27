"""Lines for people where there is no live display: plain, stamped with the time, not too rare."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console  # `--help` makes words printable and needs no console

FILE_WIDTH = 200
"""Terminal cells that tables may take in files and pipes; few need as many."""
HEARTBEAT_S = 30.0
"""A quiet time after which plain output says where things stand."""


def printable(text: str) -> str:
    """Words that an agent may have chosen, for a terminal: without orders to it.

    A line after the first is indented, so that none passes for a line of the runner's.
    """
    lines = text.replace("\t", " ").replace("\xa0", " ").split("\n")
    clean = ("".join(c if c.isprintable() else "�" for c in line) for line in lines)
    return "\n    ".join(clean)


def one_line(text: str) -> str:
    """As `printable`, for a cell or a title: a line's end, too, is none."""
    return printable(text.replace("\n", "�"))


def print_line(console: "Console", text: str) -> None:
    """Prints a text as it is: no markup, no colours, no breaks; see `printable`."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def can_redraw(console: "Console") -> bool:
    """Whether what stands on a console can be drawn over; a dumb terminal gets plain lines."""
    return console.is_terminal and not console.is_dumb_terminal


def widen(console: "Console") -> None:
    """Makes a console that is no terminal wide enough for whole tables if ``COLUMNS`` is unset.

    Pagers and logs can be looked at sideways, and what is left out there cannot be asked for.
    """
    columns = os.environ.get("COLUMNS", "")
    is_set = columns.isascii() and columns.isdigit() and int(columns) > 0
    if not console.is_terminal and not is_set:
        console.width = max(console.width, FILE_WIDTH)


class StampedLines:
    """Lines that begin with the time (UTC), and whether one is due.

    Args:
        console: Where.
        clock: Monotonic seconds.
    """

    def __init__(self, console: "Console", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._last_s = clock()

    def say(self, text: str, *, now: datetime | None = None) -> None:
        """Prints one line of what is going on."""
        print_line(self._console, f"{now or datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}")
        self._last_s = self._clock()

    @property
    def is_due(self) -> bool:
        """Whether it was quiet for `HEARTBEAT_S`."""
        return self._clock() - self._last_s >= HEARTBEAT_S
