"""How much of a report is made, and by how many processes: options that its commands share."""

import argparse
from functools import partial

from analysis.workers import MOST, num_usable

MAX_PAGES = 2_000
"""Run pages, unless more are asked for."""


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Adds ``--processes`` and ``--pages``."""
    parser.add_argument(
        "--processes",
        type=partial(number_from, 1),
        default=num_usable(),
        help=f"worker processes that read runs and make pages (one a core, up to {MOST})",
    )
    parser.add_argument(
        "--pages",
        type=_pages,
        default=MAX_PAGES,
        metavar="all|N",
        help=f"how many runs have a page of their own ({MAX_PAGES:,}): of more runs those that "
        "stand out and a sample of the others; the overview has all of them either way",
    )


def number_from(least: int, text: str) -> int:
    """The type of an option whose value is a whole number.

    Raises:
        argparse.ArgumentTypeError: It is none, or smaller than ``least``.
    """
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error
    if value < least:
        raise argparse.ArgumentTypeError(f"must be {least} or more")
    return value


def _pages(text: str) -> int | None:
    """How many; None: all."""
    if text == "all":
        return None
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError("must be all, or a number from 1 on")
    return value
