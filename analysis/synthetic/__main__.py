"""``python -m analysis.synthetic OUT``: writes a synthetic sweep."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from analysis.synthetic.sweep import write_sweep
from rl_bench.command_line import read_flags
from rl_bench.counts import plural


def main(argv: Sequence[str]) -> int:
    """Writes the sweep; 2 for bad arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.synthetic",
        description="Writes a sweep that never ran, with known truths, in the real formats.",
        allow_abbrev=False,
    )
    parser.add_argument("out", type=Path, help="the sweep's folder: new, or empty")
    parser.add_argument("--runs", type=int, default=1000, help="number of runs (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    parser.add_argument("--items", type=int, default=100, help="items an evaluation, at most (100)")
    args = read_flags(parser, argv)
    if args.runs < 1 or args.items < 10 or args.seed < 0:
        parser.error("--runs is at least 1, --items at least 10, --seed not negative")
    began = time.monotonic()
    try:
        write_sweep(args.out, runs=args.runs, seed=args.seed, items=args.items)
    except FileExistsError as error:
        parser.error(str(error))
    sys.stdout.write(
        f"{plural(args.runs, 'run')} in {args.out}, {time.monotonic() - began:.1f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
