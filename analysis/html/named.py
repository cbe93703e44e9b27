"""Pages of named runs alone, read from these runs' files; all else in the folder stays as it is."""

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from analysis.html.overview import by_run, page_name
from analysis.html.run_pages import PageJob, Written, write_pages
from analysis.html.site import Say, Settings, write_studies
from analysis.html.words import moment
from analysis.results import Results
from analysis.routes import each_route
from analysis.some_runs import some_runs


def write_named(
    results: Results, run_ids: Collection[str], out: Path, *, settings: Settings, say: Say
) -> list[tuple[Path, Written]]:
    """Writes the pages, and case studies, of some runs into a report's folder.

    Args:
        results: That have these runs.
        run_ids: Their ids.
        out: The folder; its overview does not change.
        settings: What and how; how many pages does not matter here.
        say: Is told how far it is.

    Returns:
        Each page's file, and what became of it.

    Raises:
        ResultsError: There is no such run.
        OSError: The folder cannot be written.
    """
    some = some_runs(results, run_ids)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    routes = each_route(some, sorted(set(run_ids))) if settings.with_studies else iter(())
    studies, accounts = write_studies(some, routes, out, settings=settings, say=say)
    jobs = [
        PageJob(
            rows=tuple(rows),
            path=out / "runs" / page_name(run_id),
            study=studies.get(run_id),
            account=accounts.get(run_id),
        )
        for run_id, rows in by_run(some).items()
        if run_id in run_ids
    ]
    has_overview = (out / "index.html").is_file()
    written = moment(datetime.now(UTC))
    pages = write_pages(jobs, written=written, has_overview=has_overview)
    return list(zip((job.path for job in jobs), pages, strict=True))
