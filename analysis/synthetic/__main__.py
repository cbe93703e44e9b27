"""``python -m analysis.synthetic OUT``: writes a synthetic sweep."""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from analysis.errors import ResultsError
from analysis.report_options import number_from
from analysis.synthetic.sweep import write_sweep
from rl_bench.command_line import ended, prepare_process, read_flags, say
from rl_bench.counts import plural


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    if argv is None:
        prepare_process()
    parser = argparse.ArgumentParser(
        prog="python -m analysis.synthetic",
        description="Writes a sweep that never ran, with known truths, in the real formats.",
        epilog="Exit codes: 0 all is written; 1 the disk refused; 2 bad input.",
        allow_abbrev=False,
    )
    parser.add_argument("out", type=Path, help="the sweep's folder: new, or empty")
    parser.add_argument(
        "--runs", type=partial(number_from, 1), default=1000, help="how many (1000)"
    )
    parser.add_argument("--seed", type=partial(number_from, 0), default=0, help="of everything (0)")
    parser.add_argument(
        "--items",
        type=partial(number_from, 10),
        default=100,
        help="of an evaluation, at most (100)",
    )
    args = read_flags(parser, argv)
    return ended(lambda: _write(args), interrupted="what is written is no whole sweep: remove it")


def _write(args: argparse.Namespace) -> int:
    began = time.monotonic()
    try:
        write_sweep(args.out, runs=args.runs, seed=args.seed, items=args.items)
    except FileExistsError as error:
        raise ResultsError(str(error)) from error
    say(f"{plural(args.runs, 'run')} in {args.out}, {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
