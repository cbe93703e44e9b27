"""A sweep's results as polars frames: the one place that reads Parquet.

A results folder is what `rl_bench.sweep` wrote: ``tables/<table>/<run_id>.parquet``, in the schemas
of `rl_bench.records` (docs/results.md has every column). Several sweeps are read as one. A run's id
tells its conditions, so that two sweeps may hold runs of one id: these are different runs, and each
gets its sweep's name before its id, in every table. Files of an older schema get the columns that
they lack as nulls.
"""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from analysis.errors import ResultsError
from analysis.run_tables import check_is_file, table_schema

COUNTED_OF_CALLS = (
    *("run_id", "attempt", "budget_used_s", "failure"),
    *("input_tokens", "output_tokens", "cached_tokens", "cost_usd"),
)
FILES_AT_ONCE = 256
"""A scan of thousands of files holds a hundred kilobytes of each until it is over."""


@dataclass(frozen=True)
class Results:
    """The tables of one or more sweeps; read when first asked for.

    ``runs`` has one row a run and task. The other tables hold the last attempt's rows only, unless
    ``every_attempt``. ``names``: of the runs alone whose files have these names; None: of all.
    """

    folders: tuple[Path, ...]
    every_attempt: bool = False
    names: frozenset[str] | None = None

    def run_files(self) -> list[str]:
        """The names of runs' files, each as often as sweeps have it."""
        return [Path(file).stem for folder in self.folders for file in self._files(folder, "runs")]

    @cached_property
    def runs(self) -> pl.DataFrame:
        """Table ``runs``, with ``folder``: the run's own folder, for logs and code history.

        Raises:
            ResultsError: There are none, or two of the folders hold one run of one sweep.
        """
        runs = pl.concat(
            [self._renamed(frame.lazy(), folder) for folder, frame in self._as_written.items()]
        ).collect()
        if runs.is_empty():
            raise ResultsError(f"no runs in {', '.join(map(str, self.folders))}")
        return runs.sort("run_id", "task")

    def table(self, name: str) -> pl.LazyFrame:
        """Another table by name, e.g. ``submissions``, ``items``, ``driver_calls``, ``trace``."""
        frame = pl.concat(
            [self._renamed(_scan(self._files(f, name), name), f) for f in self.folders]
        )
        return self._of_last_attempts(frame)

    def collected(self, name: str, rows: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.DataFrame:
        """What ``rows`` makes of a table, a few runs at a time: memory is that of what it makes.

        Args:
            name: Of the table.
            rows: Filters, selects and joins; it sees a run's rows together, and not all runs'.

        Raises:
            ResultsError: One of the files is damaged, or is no file.
        """
        parts = [
            _read(files, name, partial(self._last_rows, folder=folder, rows=rows))
            for folder in self.folders
            for files in _some(self._files(folder, name))
        ]
        return pl.concat(parts, rechunk=True)

    @cached_property
    def submissions(self) -> pl.DataFrame:
        """Table ``submissions`` in order of acceptance."""
        return self.collected("submissions", _all).sort("run_id", "submission_id", "task")

    @cached_property
    def findings(self) -> pl.DataFrame:
        """Table ``findings`` in the order of each run's ledger."""
        return self.collected("findings", _all).sort("run_id", "seq")

    @cached_property
    def agent_events(self) -> pl.DataFrame:
        """Of table ``events``: when agents began and ended, and refused requests."""
        wanted = ("agent_started", "agent_exited", "submission_rejected")
        return self.collected("events", lambda rows: rows.filter(pl.col("type").is_in(wanted)))

    @cached_property
    def driver_calls(self) -> pl.DataFrame:
        """Of table ``driver_calls``: what is counted of them."""
        return self.collected("driver_calls", lambda rows: rows.select(COUNTED_OF_CALLS))

    @cached_property
    def _as_written(self) -> Mapping[Path, pl.DataFrame]:
        """By sweep's folder: table ``runs`` with the ids that the runs' folders have."""
        return {
            folder: pl.concat(
                [_read(files, "runs", _all) for files in _some(self._files(folder, "runs"))],
                rechunk=True,
            ).with_columns(folder=pl.lit(f"{folder / 'runs'}/") + pl.col("run_id"))
            for folder in self.folders
        }

    @cached_property
    def _shared(self) -> pl.DataFrame:
        """``run_id``, ``sweep`` and ``folder`` of the runs whose id stands in several folders.

        Raises:
            ResultsError: Two of these are one run: one sweep's, or two of the same name.
        """
        columns = ("run_id", "sweep", "folder")
        runs = pl.concat([frame.select(columns) for frame in self._as_written.values()]).unique()
        shared = runs.filter(pl.col("run_id").is_duplicated()).sort(columns)
        for (run_id, sweep), same in shared.group_by("run_id", "sweep", maintain_order=True):
            if len(same) > 1:
                first, second = (Path(run).parent.parent for run in same["folder"][:2])
                raise ResultsError(
                    f"{run_id} of sweep {sweep} stands in {first} and in {second}: "
                    "name one of these folders only"
                )
        return shared

    def _files(self, folder: Path, table: str) -> list[str]:
        return _files(folder, table, self.names)

    def _renamed(self, frame: pl.LazyFrame, folder: Path) -> pl.LazyFrame:
        """A table of a sweep in which no run has another's id."""
        own = self._shared.filter(pl.col("folder").str.starts_with(f"{folder / 'runs'}/"))
        if own.is_empty():
            return frame
        return frame.with_columns(
            pl.col("run_id").replace(own["run_id"], own["sweep"] + "-" + own["run_id"])
        )

    def _last_rows(
        self, frame: pl.LazyFrame, *, folder: Path, rows: Callable[[pl.LazyFrame], pl.LazyFrame]
    ) -> pl.LazyFrame:
        return rows(self._of_last_attempts(self._renamed(frame, folder)))

    def _of_last_attempts(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        if self.every_attempt:
            return frame
        last = self.runs.lazy().select("run_id", "attempt").unique()
        return frame.join(last, on=["run_id", "attempt"], how="semi", maintain_order="left")


def _files(folder: Path, name: str, runs: Collection[str] | None) -> list[str]:
    """The files of a table, by run; ``runs``: of these alone.

    Raises:
        ResultsError: Something else has the name of one: a pipe would block, a folder holds others.
    """
    there = (folder / "tables" / name).glob("*.parquet")
    found = sorted(str(path) for path in there if runs is None or path.stem in runs)
    for file in found:
        try:
            check_is_file(Path(file))
        except OSError as error:
            raise ResultsError(str(error), cure=f"Remove it. {_anew(file)}") from error
    return found


def _some(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """Some files at a time; none at all once, for the columns."""
    for place in range(0, max(len(files), 1), FILES_AT_ONCE):
        yield files[place : place + FILES_AT_ONCE]


def _scan(files: Sequence[str], name: str) -> pl.LazyFrame:
    schema = table_schema(name)
    if not files:
        return pl.LazyFrame(schema=schema)
    return pl.scan_parquet(
        list(files),
        schema=schema,
        missing_columns="insert",
        extra_columns="ignore",
        glob=False,  # a sweep's folder may have brackets in its name
    )


def _read(
    files: Sequence[str], name: str, rows: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> pl.DataFrame:
    """What ``rows`` makes of a part of a table.

    Raises:
        ResultsError: One of the files is damaged.
    """
    try:
        return rows(_scan(files, name)).collect()
    except (OSError, PolarsError):
        for file in files:
            try:
                _scan([file], name).collect()
            except (OSError, PolarsError) as error:
                words = (str(error).splitlines() or [type(error).__name__])[0]
                raise ResultsError(f"{file} cannot be read: {words}", cure=_anew(file)) from error
        raise


def _anew(file: str) -> str:
    folder = shlex.quote(str(Path(file).parents[2]))
    return f"Make the tables anew: python -m rl_bench.sinks.parquet {folder}"


def _all(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows


def load(folders: Sequence[Path], *, every_attempt: bool = False) -> Results:
    """The results in ``folders``; each is a sweep's folder, or holds such folders.

    Raises:
        ResultsError: One of them holds no results.
    """
    found: list[Path] = []
    for folder in folders:
        sweeps = [folder] if _is_sweep(folder) else sorted(filter(_is_sweep, folder.glob("*")))
        if not sweeps:
            raise ResultsError(
                f"{folder} holds no results: name a folder below results/, which has tables/ in it"
            )
        found += sweeps
    return Results(tuple(dict.fromkeys(path.resolve() for path in found)), every_attempt)


def _is_sweep(folder: Path) -> bool:
    return (folder / "tables" / "runs").is_dir()
