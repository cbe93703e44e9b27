"""Writes the report's folder.

index.html            the overview
runs/RUN.html         a page a run
studies/RUN/summary.md, summary.json
plots/NAME.THEME.svg  (and PNG when asked for)
tables/NAME.csv, .md, .tex
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from analysis.case_model import CaseStudy
from analysis.case_study import case_studies, told_accounts, write_study
from analysis.comparisons.all_tables import all_tables
from analysis.comparisons.compare import Comparison, compare
from analysis.html.overview import PlotFile, by_run, overview, page_name
from analysis.html.pages import render, write
from analysis.html.run_pages import PageJob, write_pages
from analysis.html.words import moment
from analysis.narrative import Narrative
from analysis.plots.all_plots import all_plots
from analysis.plots.style import save
from analysis.results import Results
from analysis.routes import routes_of
from analysis.tables import Table, write_tables
from rl_bench.config import JudgeConfig

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
        run_ids: Only these runs' pages; None: of all.
        account: Whom to ask for an account of each run in words; None: nobody.
        sources: What the page says that it is made of; empty: the results' own folders.
    """

    seed: int = 0
    num_processes: int = 1
    with_plots: bool = True
    with_studies: bool = True
    with_png: bool = False
    refresh_s: float = 0.0
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
    say("comparing", 0, 1)
    comparison = compare(results, seed=settings.seed)
    tables = all_tables(comparison)
    write_tables(tables, out / "tables")
    plots = _plots(comparison, out, settings=settings, say=say) if settings.with_plots else []
    studies = {} if studies is None else studies
    accounts: dict[str, Narrative] = {}
    if settings.with_studies:
        say("routes and case studies", 0, 1)
        new = _studies(results, settings.run_ids)
        if settings.account is not None:
            say("accounts of a language model", 0, 1)
            accounts = told_accounts(list(new.values()), settings.account, cache=out / "studies")
        for run_id, study in new.items():
            folder = out / "studies" / Path(page_name(run_id)).stem
            write_study(study, folder, narrative=accounts.get(run_id))
        studies |= new
    written = moment(datetime.now(UTC))
    index_bytes = _write_index(
        results, comparison, tables, plots, studies, out, settings=settings, written=written
    )
    runs = by_run(results)
    jobs = [
        PageJob(
            rows=tuple(rows),
            path=out / "runs" / page_name(run_id),
            study=studies.get(run_id),
            account=accounts.get(run_id),
        )
        for run_id, rows in runs.items()
        if settings.run_ids is None or run_id in settings.run_ids
    ]
    problems = []
    num_bytes = index_bytes
    pages = write_pages(
        jobs,
        num_processes=settings.num_processes,
        refresh_s=settings.refresh_s,
        written=written,
    )
    for place, page in enumerate(pages, 1):
        num_bytes += page.num_bytes
        if page.problem:
            problems.append((page.run_id, page.problem))
        say("run pages", place, len(jobs))
    return Site(
        index=out / "index.html",
        num_runs=len(runs),
        num_pages=len(jobs),
        index_bytes=index_bytes,
        num_bytes=num_bytes,
        seconds=time.monotonic() - began,
        problems=tuple(problems),
    )


def _write_index(
    results: Results,
    comparison: Comparison,
    tables: Sequence[Table],
    plots: Sequence[PlotFile],
    studies: Mapping[str, CaseStudy],
    out: Path,
    *,
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


def _studies(results: Results, run_ids: frozenset[str] | None) -> dict[str, CaseStudy]:
    routes = routes_of(results, None if run_ids is None else sorted(run_ids))
    return {study.run_id: study for study in case_studies(results, routes)}


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
