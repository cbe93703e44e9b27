"""Writes the pages of many runs, several at a time, in processes that hold few runs each.

A run whose files are damaged costs its own page only: what is wrong is told, and a page says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from polars.exceptions import PolarsError

from analysis.case_model import CaseStudy
from analysis.html.pages import render, write
from analysis.html.run_page import run_html, run_page, tables_of
from analysis.html.timeline import KINDS
from analysis.narrative import Narrative
from analysis.run_tables import TOGETHER, Row, RunRows
from analysis.workers import HERE, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class PageJob:
    """A page to be written: the run's rows of table ``runs``, its case study, and where.

    ``account``: a language model's words on it.
    """

    rows: tuple[Row, ...]
    path: Path
    study: CaseStudy | None = None
    account: Narrative | None = None

    @property
    def run_id(self) -> str:
        return str(self.rows[0]["run_id"])


@dataclass(frozen=True, slots=True)
class Written:
    """A page that was written; ``problem``: why it tells less than it should."""

    run_id: str
    num_bytes: int
    problem: str = ""


def write_pages(
    jobs: Sequence[PageJob],
    *,
    by: Workers = HERE,
    refresh_s: float = 0.0,
    written: str = "",
    has_overview: bool = True,
) -> Iterator[Written]:
    """Writes all pages, and tells of each as it is there.

    Args:
        jobs: The pages.
        by: Who writes them; processes begin at once.
        refresh_s: How often a page loads itself anew; 0: never.
        written: When, in words.
        has_overview: Whether there is one that they can lead to.

    Raises:
        WorkerError: A process ended in the middle of its work.
    """
    shown = {"refresh_s": refresh_s, "written": written, "has_overview": has_overview}
    work = partial(_write_together, shown=shown)
    num = min(TOGETHER, max(len(jobs) // by.num, 1))
    batches = [jobs[place : place + num] for place in range(0, len(jobs), num)]
    made = by.map(work, batches, name=lambda batch: f"the page of {batch[0].run_id}")
    return chain.from_iterable(made)


def _write_together(jobs: Sequence[PageJob], *, shown: Mapping[str, Any]) -> list[Written]:
    """Pages whose tables are read together, or one by one where a file among them is damaged."""
    read: list[RunRows] | list[None]
    try:
        read = tables_of(job.rows[0] for job in jobs)
    except (OSError, PolarsError):
        read = [None] * len(jobs)
    return [_write_page(job, tables, shown=shown) for job, tables in zip(jobs, read, strict=True)]


def _write_page(job: PageJob, tables: RunRows | None, *, shown: Mapping[str, Any]) -> Written:
    problem = ""
    still = {**shown, "refresh_s": 0.0}
    try:
        text = run_html(
            run_page(job.rows, tables=tables, trainings=_trainings(job.study)),
            kinds=KINDS,
            study=job.study,
            account=job.account,
            stem=job.path.stem,
            **(still if job.rows[0]["is_final"] else shown),
        )
    except Exception as error:  # noqa: BLE001  one damaged run must not cost the others' pages
        problem = f"{type(error).__name__}: {error}"
        text = render("broken.html", run=job.rows[0], problem=problem, **still)
    return Written(job.run_id, write(job.path, text), problem)


def _trainings(study: CaseStudy | None) -> tuple[tuple[float, float], ...]:
    """When trainings began and ended, by the run's route."""
    return tuple(
        (stage.began_s, stage.ended_s)
        for stage in (study.stages if study else ())
        if stage.num_trainings and stage.began_s is not None and stage.ended_s is not None
    )
