"""``python -m analysis.report RESULTS...``: a sweep's results as a folder of HTML pages.

Needs no network, no Ray and no torch, neither to make nor to read. Exit codes: 0 all is written;
1 some runs' files could not be read (their pages say so), or the disk refused; 2 bad input.
"""

import argparse
import resource
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.account_options import account_config, add_account_options
from analysis.errors import ResultsError
from analysis.report_options import add_report_options, number_from
from rl_bench.command_line import (
    EXIT_FAILED,
    ended,
    number_within,
    prepare_process,
    read_flags,
    say,
)

if TYPE_CHECKING:
    from analysis.html.site import Settings, Site
    from analysis.results import Results

LIVE_S = 30.0
MIN_LIVE_S, MAX_LIVE_S = 2.0, 86_400.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    if argv is None:
        prepare_process()
    args = read_flags(_parser(), argv)
    return ended(lambda: _run(args), interrupted="what is written stays; the same command goes on")


def _run(args: argparse.Namespace) -> int:
    folders: list[Path] = args.results
    for folder in folders:
        if not folder.is_dir():
            raise ResultsError(f"{folder} is no folder: name one below results/")
    out: Path = args.out or (folders[0] / "report" if len(folders) == 1 else Path("report"))
    if out.exists() and not out.is_dir():
        raise ResultsError(f"{out} is no folder: name another with --out")
    # Imported late: --help stays quick, and processes that make pages need none of it.
    if args.live is not None:
        from analysis.html.live import live

        return live(folders, out, settings=_settings(args), interval_s=args.live)
    from analysis.html.progress import Steps
    from analysis.html.site import write_site
    from analysis.results import load
    from rl_bench.counts import plural

    results = load(folders)
    if args.run:
        return _named(results, out, args)
    with Steps() as steps:
        site = write_site(results, out, settings=_settings(args), say=steps.tell)
    for run_id, problem in site.problems:
        say(f"run {run_id}: {problem}", to_stderr=True)
    say(
        f"{site.index}: {plural(site.num_runs, 'run')}, "
        f"{plural(site.num_pages, 'run page')}{_others(site)}, "
        f"overview {site.index_bytes / 1e6:.2f} MB, "
        f"all pages {site.num_bytes / 1e6:.1f} MB, "
        f"{site.seconds:.1f} s, at most {_peak_mb():.0f} MB of memory a process"
        + (f"; {plural(len(site.problems), 'run')} could not be read" if site.problems else "")
    )
    return EXIT_FAILED if site.problems else 0


def _named(results: "Results", out: Path, args: argparse.Namespace) -> int:
    from analysis.html.named import write_named
    from analysis.html.progress import Steps

    with Steps() as steps:
        pages = write_named(results, args.run, out, settings=_settings(args), say=steps.tell)
    for path, page in pages:
        say(f"{path}: {page.num_bytes / 1e6:.2f} MB")
        if page.problem:
            say(f"run {page.run_id}: {page.problem}", to_stderr=True)
    return EXIT_FAILED if any(page.problem for _, page in pages) else 0


def _others(site: "Site") -> str:
    return " (--pages all makes every run's)" if site.num_pages < site.num_runs else ""


def _settings(args: argparse.Namespace) -> "Settings":
    from analysis.html.site import Settings

    return Settings(
        seed=args.seed,
        num_processes=args.processes,
        max_pages=args.pages,
        with_plots=not args.no_plots,
        with_studies=not args.no_studies,
        with_png=args.png,
        account=account_config(args),
    )


def _peak_mb() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1000


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.report",
        description="Makes an HTML report of sweeps' results: an overview and pages of runs.",
        epilog="Exit codes: 0 all is written; 1 some runs could not be read; 2 bad input.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "results", nargs="+", type=Path, help="folders of sweeps, or folders that hold such folders"
    )
    parser.add_argument(
        "--out", type=Path, help="the report's folder (RESULTS/report; of several: ./report)"
    )
    parser.add_argument(
        "--seed", type=partial(number_from, 0), default=0, help="of every resampling (0)"
    )
    add_report_options(parser)
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument(
        "--run",
        action="append",
        metavar="RUN_ID",
        help="only this run's page, and nothing else anew; may be repeated",
    )
    parser.add_argument("--no-plots", action="store_true", help="tables and pages only")
    parser.add_argument(
        "--no-studies", action="store_true", help="no routes and case studies (reads no code)"
    )
    parser.add_argument("--png", action="store_true", help="plots as PNG as well")
    alone.add_argument(
        "--live",
        type=partial(number_within, MIN_LIVE_S, MAX_LIVE_S),
        nargs="?",
        const=LIVE_S,
        metavar="SECONDS",
        help=f"from the ledgers, anew every so many seconds until every run is over ({LIVE_S:g})",
    )
    add_account_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
