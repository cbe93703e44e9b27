"""Writes the report's folder.

index.html            the overview
runs/RUN.html         a page a run
studies/RUN/summary.md, summary.json
plots/NAME.THEME.svg  (and PNG when asked for)
tables/NAME.csv, .md, .tex
"""

import gc
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from analysis.case_model import CaseStudy
from analysis.case_study import case_studies, told_accounts, write_study
from analysis.comparisons.all_tables import all_tables
from analysis.comparisons.compare import Comparison, compare
from analysis.html.overview import LeftOut, PlotFile, by_run, overview, page_name
from analysis.html.pages import render, write
from analysis.html.run_pages import PageJob, write_pages
from analysis.html.selection import RULE, runs_with_pages
from analysis.html.words import moment
from analysis.narrative import Narrative
from analysis.plots.all_plots import all_plots
from analysis.plots.style import save
from analysis.report_options import MAX_PAGES
from analysis.results import Results
from analysis.route_model import Route
from analysis.routes import each_route
from analysis.tables import Table, write_tables
from analysis.workers import Workers, workers
from rl_bench.config import JudgeConfig

FEW = 24
"""So many runs are worked on in this process: starting others takes longer."""
OPEN_PLOTS = 8
"""So many plots are shown at once; the others are folded."""
Say = Callable[[str, int, int], None]
"""Told of a step's name, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is written, and how.

    Attributes:
        with_plots: Plots.
        with_studies: Routes and case studies, for which code is read.
        with_png: Plots as PNG beside SVG.
        refresh_s: How often pages load themselves anew; 0: never.
        max_pages: Of more runs, only those that stand out have a page; None: all have.
        run_ids: Only of these runs are pages and case studies made anew; None: of all.
        account: Whom to ask for an account of each run in words; None: nobody.
        sources: What the page says that it is made of; empty: the results' own folders.
    """

    seed: int = 0
    num_processes: int = 1
    with_plots: bool = True
    with_studies: bool = True
    with_png: bool = False
    refresh_s: float = 0.0
    max_pages: int | None = MAX_PAGES
    run_ids: frozenset[str] | None = None
    account: JudgeConfig | None = None
    sources: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A report that was written; ``problems`` by run."""

    index: Path
    num_runs: int
    num_pages: int
    index_bytes: int
    num_bytes: int
    seconds: float
    problems: tuple[tuple[str, str], ...]


def write_site(
    results: Results,
    out: Path,
    *,
    settings: Settings,
    say: Say,
    studies: dict[str, CaseStudy] | None = None,
) -> Site:
    """Writes the report of ``results`` into ``out``.

    Args:
        results: The results.
        out: The folder; what stands there of an earlier report is written over.
        settings: What and how.
        say: Is told how far it is.
        studies: Of runs that are not in ``settings.run_ids``; new ones are added.

    Raises:
        ResultsError: There are no runs.
        OSError: The folder cannot be written.
    """
    began = time.monotonic()
    (out / "runs").mkdir(parents=True, exist_ok=True)
    paged = runs_with_pages(results, settings.max_pages)
    with workers(_num_workers(results, settings)) as by:
        # Begun first: what follows is done here while others are at it.
        routes = _routes(results, settings, by) if settings.with_studies else None
        say("comparing", 0, 1)
        comparison = compare(results, seed=settings.seed)
        tables = all_tables(comparison)
        write_tables(tables, out / "tables")
        plots = _plots(comparison, out, settings=settings, say=say) if settings.with_plots else []
        studies = {} if studies is None else studies
        accounts: dict[str, Narrative] = {}
        with _no_collection():
            if routes is not None:
                new, accounts = write_studies(results, routes, out, settings=settings, say=say)
                studies |= new
            written = moment(datetime.now(UTC))
            jobs = _jobs(results, paged, studies, accounts, out, settings=settings)
            pages = write_pages(jobs, by=by, refresh_s=settings.refresh_s, written=written)
            index_bytes = _write_index(
                results,
                comparison,
                tables,
                plots,
                studies,
                out,
                paged=paged,
                settings=settings,
                written=written,
            )
        problems = []
        num_bytes = index_bytes
        for place, page in enumerate(pages, 1):
            num_bytes += page.num_bytes
            if page.problem:
                problems.append((page.run_id, page.problem))
            say("run pages", place, len(jobs))
    return Site(
        index=out / "index.html",
        num_runs=results.runs["run_id"].n_unique(),
        num_pages=len(jobs),
        index_bytes=index_bytes,
        num_bytes=num_bytes,
        seconds=time.monotonic() - began,
        problems=tuple(problems),
    )


def _num_workers(results: Results, settings: Settings) -> int:
    changed = settings.run_ids
    num = results.runs["run_id"].n_unique() if changed is None else len(changed)
    return settings.num_processes if num > FEW else 1


def _routes(results: Results, settings: Settings, by: Workers) -> Iterator[Route]:
    run_ids = settings.run_ids
    return each_route(results, None if run_ids is None else sorted(run_ids), by=by)


def write_studies(
    results: Results, routes: Iterator[Route], out: Path, *, settings: Settings, say: Say
) -> tuple[dict[str, CaseStudy], dict[str, Narrative]]:
    """Case studies of the runs that have a route, written, and accounts of them; by run."""
    say("routes and case studies", 0, 1)
    studies = {study.run_id: study for study in case_studies(results, routes)}
    accounts: dict[str, Narrative] = {}
    if settings.account is not None:
        say("accounts of a language model", 0, 1)
        accounts = told_accounts(list(studies.values()), settings.account, cache=out / "studies")
    for run_id, study in studies.items():
        folder = out / "studies" / Path(page_name(run_id)).stem
        write_study(study, folder, narrative=accounts.get(run_id))
    return studies, accounts


@contextmanager
def _no_collection() -> Iterator[None]:
    """What is made of thousands of runs stays: looking for cycles in it takes a seventh more."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _jobs(
    results: Results,
    paged: Collection[str],
    studies: Mapping[str, CaseStudy],
    accounts: Mapping[str, Narrative],
    out: Path,
    *,
    settings: Settings,
) -> list[PageJob]:
    """The pages to be written; those of an earlier report that this one has not are removed."""
    jobs = []
    for run_id, rows in by_run(results).items():
        path = out / "runs" / page_name(run_id)
        if run_id not in paged:
            path.unlink(missing_ok=True)
        elif settings.run_ids is None or run_id in settings.run_ids or not path.is_file():
            study, account = studies.get(run_id), accounts.get(run_id)
            jobs.append(PageJob(rows=tuple(rows), path=path, study=study, account=account))
    return jobs


def _write_index(
    results: Results,
    comparison: Comparison,
    tables: Sequence[Table],
    plots: Sequence[PlotFile],
    studies: Mapping[str, CaseStudy],
    out: Path,
    *,
    paged: Collection[str],
    settings: Settings,
    written: str,
) -> int:
    folders = ", ".join(str(folder) for folder in settings.sources or results.folders)
    view = overview(
        results,
        comparison,
        tables=tables,
        plots=plots,
        routes={
            (run_id, result.task): result.final.route
            for run_id, study in studies.items()
            for result in study.results
            if result.final is not None
        },
        paged=paged,
        left_out=_left_out(results, paged, out, settings),
        footer=f"Made {written} of {folders}. Tables also as CSV, Markdown and LaTeX in tables/.",
    )
    text = render(
        "overview.html",
        view=view,
        max_open=OPEN_PLOTS,
        refresh_s=settings.refresh_s,
        written=written,
    )
    return write(out / "index.html", text)


def _left_out(
    results: Results, paged: Collection[str], out: Path, settings: Settings
) -> LeftOut | None:
    num_runs = results.runs["run_id"].n_unique()
    if len(paged) == num_runs:
        return None
    folders = map(str, settings.sources or results.folders)
    words = ["python", "-m", "analysis.report", *folders, "--out", str(out.resolve())]
    words += ["--seed", str(settings.seed)] if settings.seed else []
    command = shlex.join([*words, "--pages", "all"])
    return LeftOut(num_pages=len(paged), num_runs=num_runs, rule=RULE, command=command)


def _plots(comparison: Comparison, out: Path, *, settings: Settings, say: Say) -> list[PlotFile]:
    folder = out / "plots"
    plots = all_plots(comparison)
    made = []
    for place, plot in enumerate(plots, 1):
        save(plot, folder, formats=("svg", "png") if settings.with_png else ("svg",))
        say("plots", place, len(plots))
        made.append(
            PlotFile(
                title=plot.title,
                alt=plot.alt,
                light=f"plots/{plot.file_name('light', 'svg')}",
                dark=f"plots/{plot.file_name('dark', 'svg')}",
                height=round(plot.height_in * 100),
            )
        )
    return made
