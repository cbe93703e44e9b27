"""The report of a sweep that is running: made from its ledgers, anew every few seconds.

Nothing is written into a sweep but the report. Tables are made from the ledgers by the recorder's
own code, in a temporary folder that lies beside a link to the runs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from analysis.case_model import CaseStudy
from analysis.html.site import Settings, Site, write_site
from analysis.ledgers import planned_ids, sweeps_in
from analysis.results import Results
from rl_bench.command_line import say
from rl_bench.config import SinkConfig
from rl_bench.counts import plural
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.sinks.parquet import ParquetSink


class Mirror:
    """A sweep's tables as its ledgers have them now, in a folder of their own.

    Args:
        sweep: The sweep's folder, which is only read.
        folder: A new one.
    """

    def __init__(self, sweep: Path, folder: Path) -> None:
        self.folder = folder
        self._paths = SweepPaths(sweep)
        folder.mkdir(parents=True)
        (folder / "runs").symlink_to((sweep / "runs").resolve(), target_is_directory=True)
        sink = ParquetSink(folder / "tables")
        self._recorder = Recorder(self._paths, config=SinkConfig(name="report"), sinks=[sink])

    def catch_up(self) -> Mapping[str, int]:
        """Brings the tables up to date; by run's folder, how many ledger entries it has."""
        self._recorder.catch_up()
        self._recorder.flush()
        runs = SweepPaths(self.folder).runs
        return {str(runs / name): view.next_seq for name, view in self._recorder.views().items()}

    @property
    def is_over(self) -> bool:
        """Every planned run has ended, and none will be tried again."""
        views = self._recorder.views()
        planned = planned_ids(self._paths) or tuple(views)
        return bool(planned) and all(name in views and views[name].is_final for name in planned)

    def close(self) -> None:
        self._recorder.close()


def live(folders: Sequence[Path], out: Path, *, settings: Settings, interval_s: float) -> int:
    """Writes the report until every run is over; returns the exit code.

    Args:
        folders: Of sweeps, or that hold such.
        out: The report's folder.
        settings: How it is written.
        interval_s: Between two looks.

    Raises:
        ResultsError: A folder holds no sweep.
    """
    sweeps = sweeps_in(folders)
    with TemporaryDirectory(prefix="rl_bench_report_") as temporary:
        mirrors = [
            Mirror(sweep, Path(temporary) / str(place) / sweep.name)
            for place, sweep in enumerate(sweeps)
        ]
        try:
            return _follow(mirrors, sweeps, out, settings=settings, interval_s=interval_s)
        finally:
            for mirror in mirrors:
                mirror.close()


def _follow(
    mirrors: Sequence[Mirror],
    sweeps: Sequence[Path],
    out: Path,
    *,
    settings: Settings,
    interval_s: float,
) -> int:
    before: dict[str, int] = {}
    studies: dict[str, CaseStudy] = {}
    is_first = True
    while True:
        began = time.monotonic()
        seqs = {run: seq for mirror in mirrors for run, seq in mirror.catch_up().items()}
        is_over = all(mirror.is_over for mirror in mirrors)
        results = Results(tuple(mirror.folder for mirror in mirrors))
        now = _by_id(results, seqs) if seqs else {}
        changed = frozenset(name for name, seq in now.items() if before.get(name) != seq)
        if changed or is_over:
            site = write_site(
                results,
                out,
                settings=replace(
                    settings,
                    refresh_s=0.0 if is_over else interval_s,
                    run_ids=None if is_over else changed,
                    sources=tuple(sweeps),
                ),
                say=_silent,
                studies=studies,
            )
            say(_words(site))
            if is_over:
                return 1 if site.problems else 0
        elif not now and is_first:
            say("no run has begun yet")
        before, is_first = now, False
        took_s = time.monotonic() - began
        # Of a large sweep, at least half of the time is left to others.
        time.sleep(max(interval_s - took_s, min(took_s, interval_s)))


def _by_id(results: Results, seqs: Mapping[str, int]) -> dict[str, int]:
    """The numbers of entries by the ids that the results have for the runs."""
    ids = results.runs.select("run_id", "folder").unique().iter_rows()
    return {str(run_id): seqs[folder] for run_id, folder in ids}


def _words(site: Site) -> str:
    runs, pages = plural(site.num_runs, "run"), plural(site.num_pages, "page")
    return f"{site.index}: {runs}, {pages} new, {site.seconds:.1f} s"


def _silent(_name: str, _done: int, _total: int) -> None:
    return
