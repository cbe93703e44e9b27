"""``python -m analysis.wandb_view RESULTS...``: the comparison of sweeps as one W&B run.

Reads results only; offline unless told otherwise. The same sweeps make the same W&B run again, with
its tables overwritten. Everything that talks to W&B is in a thread that is left behind when it
takes too long. Exit codes: 0 all is there; 1 W&B failed, is missing or took too long, or some runs'
pages could not be made; 2 bad input.
"""

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

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
from rl_bench.counts import plural
from rl_bench.errors import SinkError

if TYPE_CHECKING:
    import wandb

    from analysis.comparisons.compare import Comparison
    from analysis.results import Results

TIMEOUT_S = 900.0


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """What the thread leaves: lines to say, or why it failed."""

    lines: list[str] = field(default_factory=list)
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is to be mirrored, and where to."""

    args: argparse.Namespace
    results: "Results"
    comparison: "Comparison"
    label: str
    folder: Path
    report: Path | None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    if argv is None:
        prepare_process()
    args = read_flags(_parser(), argv)
    return ended(lambda: _run(args), interrupted="the same command makes the whole of it again")


def _run(args: argparse.Namespace) -> int:
    for folder in args.results:
        if not folder.is_dir():
            raise ResultsError(f"{folder} is no folder: name one below results/")
    _need_wandb()
    # Imported late: --help stays quick.
    from analysis.comparisons.compare import compare
    from analysis.results import load
    from analysis.wandb_run import label_of

    results = load(args.results)
    label = label_of(results.runs["sweep"].unique().to_list())
    parent = args.dir or (results.folders[0] if len(results.folders) == 1 else Path.cwd())
    folder = Path(parent).resolve() / "wandb"
    comparison = compare(results, seed=args.seed)
    report, num_problems = (None, 0) if args.no_report else _report(args, results, folder, label)
    job = _Job(
        args=args,
        results=results,
        comparison=comparison,
        label=label,
        folder=folder,
        report=report,
    )
    for line in _within(lambda: mirror(job), timeout_s=args.timeout):
        say(line)
    return EXIT_FAILED if num_problems else 0


def _need_wandb() -> None:
    if find_spec("wandb") is None:
        raise SinkError(
            "the package wandb is not installed",
            cure="Install it, or use `python -m analysis.report`, which needs none",
        )


def _report(
    args: argparse.Namespace, results: "Results", folder: Path, label: str
) -> tuple[Path, int]:
    """The report's folder, and how many runs' pages could not be made."""
    named: Path | None = args.report
    if named is not None and (named / "index.html").is_file():
        return named.resolve(), 0
    if named is not None and named.exists() and (not named.is_dir() or any(named.iterdir())):
        raise ResultsError(f"{named} is no report: name one, or a folder that is not there yet")
    from analysis.html.progress import Steps
    from analysis.html.site import Settings, write_site

    out = (named or folder / "reports" / label).resolve()
    with Steps() as steps:
        settings = Settings(seed=args.seed, num_processes=args.processes, max_pages=args.pages)
        site = write_site(results, out, settings=settings, say=steps.tell)
    for run_id, problem in site.problems:
        say(f"run {run_id}: {problem}", to_stderr=True)
    return out, len(site.problems)


def mirror(job: _Job) -> list[str]:
    """Makes the W&B run; blocks.

    Returns:
        What to tell.

    Raises:
        SinkError: W&B failed.
        OSError: The folder cannot be written.
    """
    from analysis import wandb_run
    from rl_bench.config import WandbConfig

    args = job.args
    is_offline = args.mode == "offline"
    config = WandbConfig(mode=args.mode, project=args.project, entity=args.entity)
    with wandb_run.own_state(job.folder, job.label, is_offline=is_offline):
        run = wandb_run.start(job.folder, job.label, config)
        try:
            lines = _fill(run, job)
            where = Path(run.settings.sync_dir)
            last = f"{where}: wandb sync {where}" if is_offline else f"{run.url} ({where})"
            run.finish()
        except Exception as error:
            run.finish(exit_code=1)
            if isinstance(error, SinkError | OSError | ResultsError):
                raise
            raise SinkError(f"W&B failed: {error}", cure="The same command tries again") from error
    return [*lines, last]


def _fill(run: "wandb.Run", job: _Job) -> list[str]:
    from analysis import wandb_run
    from analysis.wandb_sheets import charts, headline, sheets

    pages = wandb_run.pages_of(job.results, run, job.args.entity)
    tables = sheets(job.results, job.comparison, pages, report=job.report)
    plots = charts(job.comparison)
    wandb_run.log_all(run, sheets=tables, charts=plots, summary=headline(job.comparison))
    runs = plural(len(pages.ids), "run")
    lines = [
        f"{plural(len(tables), 'table')}, {plural(len(plots), 'chart')}, {runs} with W&B pages"
    ]
    if pages.ids and not pages.links:
        lines.append("these runs are named, not linked: --entity tells whose they are")
    if job.report is not None:
        wandb_run.add_report(run, job.label, job.report)
        lines.append(f"report: {job.report} (keep it until it is uploaded)")
    if job.args.models is not None:
        models = wandb_run.best_models(job.results)
        files, paths = wandb_run.add_models(run, models, max_gb=job.args.models)
        lines.append(f"best models: {files} with their files, {paths} by their paths")
    return lines


def _within(work: Callable[[], list[str]], *, timeout_s: float) -> list[str]:
    """Runs ``work`` in a thread for a bounded time.

    Raises:
        SinkError: It took too long, and was left behind.
        Exception: What ``work`` raised.
    """
    outcome = _Outcome()

    def run() -> None:
        try:
            outcome.lines = work()
        except Exception as error:  # noqa: BLE001  raised again by whoever waits
            outcome.error = error

    thread = threading.Thread(target=run, name="wandb-view", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise SinkError(
            f"W&B did not finish within {timeout_s:g} s; left behind",
            cure="Use --mode offline, or a longer --timeout",
        )
    if outcome.error is not None:
        raise outcome.error
    return outcome.lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.wandb_view",
        description="Shows sweeps' results in W&B: comparison tables, all runs, charts, the "
        "report. The same sweeps make the same W&B run again.",
        epilog="Exit codes: 0 all is there; 1 W&B failed, is missing or took too long, or some "
        "runs could not be read; 2 bad input.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("results", nargs="+", type=Path, help="folders of sweeps, or folders that hold such")
    add("--mode", choices=("offline", "online"), default="offline", help="(offline)")
    add("--project", default="rl_bench", help="the sweeps' own, for links to work (rl_bench)")
    entity = os.environ.get("WANDB_ENTITY", "")
    add("--entity", default=entity, help="user or team; offline, links need it (WANDB_ENTITY)")
    add("--dir", type=Path, help="where wandb/ is made (RESULTS; of several: here)")
    add("--report", type=Path, help="a report's folder, or where to make one (in wandb/)")
    add("--no-report", action="store_true", help="no report")
    add(
        "--models",
        type=partial(number_within, 0, 10_000),
        nargs="?",
        const=0.0,
        metavar="MAX_GB",
        help="the best checkpoint of each task that was kept: its path, or its files as long as "
        "they fit into so many GB in all",
    )
    add("--seed", type=partial(number_from, 0), default=0, help="of every resampling (0)")
    add_report_options(parser)
    timeout = partial(number_within, 0.1, 86_400)
    add("--timeout", type=timeout, default=TIMEOUT_S, help=f"seconds for W&B ({TIMEOUT_S:g})")
    return parser


if __name__ == "__main__":
    code = main()
    if any(thread.name == "wandb-view" for thread in threading.enumerate()):
        os._exit(code)  # W&B's own ending would wait for what was left behind.
    sys.exit(code)
