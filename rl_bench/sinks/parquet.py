"""Parquet: ``tables/<table>/<run_id>.parquet`` for each run, and ``tables/comparison.csv``.

A run's files are written whole from its records, to a temporary name, synced and renamed: a reader
sees the old file or the new one. The file of table ``runs`` comes last and carries the ledger's
mark, so a run whose tables are up to date is recognised without rewriting them. Everything here can
be made again from the ledgers: ``python -m rl_bench.sinks.parquet RESULTS/SWEEP``.

``tables/marks.json`` repeats the marks of all runs when the sink closes, and all files' sizes, so
that a command over finished runs opens none of them and still sees what is gone or was cut.
"""

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from rl_bench.clone import open_regular, read_regular
from rl_bench.command_line import ended, prepare_process, read_flags, say
from rl_bench.counts import plural
from rl_bench.errors import ConfigError, LedgerError, SinkError
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.record_schema import SCHEMA_VERSION, to_batch
from rl_bench.records import SCHEMAS, RunSnapshot
from rl_bench.run_records import records_of
from rl_bench.run_row import RUNS, RunRow
from rl_bench.run_view import RunView
from rl_bench.sweep_lock import hold_sweep
from rl_bench.whole_file import replacing, write_whole

_MARK = b"ledger_mark"
_VERSION = b"schema_version"
_MAGIC = b"PAR1"
"""First and last in a Parquet file."""
_FEW_ROWS = 32
_OPTIONS = {"compression": "zstd"}
_OPTIONS_OF_FEW = {"compression": "none", "use_dictionary": False, "write_statistics": False}
"""So few rows take more time with dictionaries and statistics of each column, and more room."""
_NOT_IN_CSV = ("tasks", "baseline_scores", "mode_methods", "spec")


class ParquetSink:
    """Writes the typed tables under ``folder``, a sweep's ``tables/``."""

    name = "parquet"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._num_written: dict[str, dict[str, int]] = {}
        self._marks: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"ParquetSink({str(self.folder)!r})"

    def open(self) -> None:
        """Makes the folders and proves that they can be written."""
        try:
            for table in SCHEMAS:
                (self.folder / table).mkdir(parents=True, exist_ok=True)
            probe = self.folder / ".probe"
            write_whole(probe, b"")
            probe.unlink()
        except OSError as error:
            raise SinkError(f"cannot write tables under {self.folder}: {error}") from error

    def write_run(self, snapshot: RunSnapshot) -> None:
        """Brings the run's files up to date; nothing to do when they are."""
        run_id = snapshot.run_id
        if snapshot.spec is None:
            return
        if self.has(run_id, snapshot.mark):
            return
        written = self._num_written.setdefault(run_id, {})
        try:
            for name in snapshot.batches:
                table = snapshot.table(name)  # Its rows never change: as many rows are the same.
                if written.get(name) != table.num_rows:
                    self._write(name, snapshot, table)
                written[name] = table.num_rows
            for name in ("submissions", "runs"):
                self._write(name, snapshot, snapshot.table(name))
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write tables of run {run_id}: {error}") from error
        self._marks[run_id] = snapshot.mark
        if snapshot.view.is_final:
            self._num_written.pop(run_id, None)

    def has(self, run_id: str, mark: str) -> bool:
        """Whether the run's files were written at that mark."""
        if run_id not in self._marks:
            self._marks[run_id] = self._mark_of(run_id)
        return self._marks[run_id] == mark

    def remove(self, run_id: str) -> None:
        """Removes the run's files, so that it is written anew."""
        for table in SCHEMAS:
            self._unlink(self._path(table, run_id))
        self._marks.pop(run_id, None)

    def remove_others(self, run_ids: Collection[str]) -> None:
        """Removes the files of runs that are none of these."""
        for table in SCHEMAS:
            for path in (self.folder / table).glob("*.parquet"):
                if path.stem not in run_ids:
                    self._unlink(path)

    def close(self, rows: Sequence[RunRow]) -> None:
        """Writes ``comparison.csv``: table ``runs`` of the whole sweep, for people."""
        table = pa.Table.from_batches([to_batch(rows, RUNS)], schema=RUNS)
        try:
            with replacing(self._comparison_path, is_durable=True) as temporary:
                pa_csv.write_csv(table.drop_columns(list(_NOT_IN_CSV)), temporary)
            kept = {
                "version": SCHEMA_VERSION,
                "marks": self._marks,
                "comparison": self._comparison_path.stat().st_size,
                "sizes": {
                    run_id: self._sizes(run_id) for run_id, mark in self._marks.items() if mark
                },
            }
            write_whole(self._marks_path, json.dumps(kept, sort_keys=True), is_durable=True)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write the comparison table: {error}") from error

    def is_behind(self, views: Iterable[RunView]) -> bool:
        """Whether files are gone, cut, or older than what the ledgers say."""
        try:
            kept = json.loads(read_regular(self._marks_path))
            closed_ns = self._marks_path.stat().st_mtime_ns
            return (
                kept["version"] != SCHEMA_VERSION
                or kept["comparison"] != self._comparison_path.stat().st_size
                or any(
                    kept["marks"].get(view.run_id) != view.mark
                    or kept["sizes"][view.run_id] != self._sizes(view.run_id)
                    or self._path("runs", view.run_id).stat().st_mtime_ns > closed_ns
                    for view in views
                )
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return True  # Missing or damaged.

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SinkError(f"cannot remove {path}: {error}") from error

    @property
    def _comparison_path(self) -> Path:
        return self.folder / "comparison.csv"

    @property
    def _marks_path(self) -> Path:
        return self.folder / "marks.json"

    def _path(self, table: str, run_id: str) -> Path:
        return self.folder / table / f"{run_id}.parquet"

    def _sizes(self, run_id: str) -> list[int]:
        """Bytes of each of the run's files, in the tables' order."""
        return [self._path(table, run_id).stat().st_size for table in SCHEMAS]

    def _mark_of(self, run_id: str) -> str:
        """The ledger mark that the run's tables were last written at; empty if never like this."""
        path = self._path("runs", run_id)
        if not all(_is_whole(self._path(table, run_id)) for table in SCHEMAS):
            return ""
        try:
            metadata = pq.read_metadata(path).metadata or {}
        except (OSError, pa.ArrowException):
            return ""  # Damaged: it is written again.
        if metadata.get(_VERSION) != RUNS.metadata[_VERSION]:
            return ""  # Tables of two schemas in one folder could not be read as one.
        return str(metadata.get(_MARK, b"").decode())

    def _write(self, table: str, snapshot: RunSnapshot, rows: pa.Table) -> None:
        metadata = {**SCHEMAS[table].metadata, _MARK: snapshot.mark.encode()}
        options = _OPTIONS_OF_FEW if rows.num_rows <= _FEW_ROWS else _OPTIONS
        with replacing(self._path(table, snapshot.run_id), is_durable=True) as temporary:
            if not rows.num_rows:
                temporary.write_bytes(_empty(table))
                return
            with pa.OSFile(str(temporary), "wb") as file:
                pq.write_table(rows.replace_schema_metadata(metadata), file, **options)


def _is_whole(path: Path) -> bool:
    """Whether a Parquet file is there and has its end."""
    try:
        with open_regular(path, follow=True) as file:
            file.seek(-len(_MAGIC), os.SEEK_END)
            return file.read() == _MAGIC
    except OSError:
        return False


@cache
def _empty(table: str) -> bytes:
    """The file of a table without rows: most tables of most runs, all the same."""
    file = pa.BufferOutputStream()
    pq.write_table(SCHEMAS[table].empty_table(), file, **_OPTIONS_OF_FEW)
    data: bytes = file.getvalue().to_pybytes()
    return data


def rebuild(paths: SweepPaths) -> int:
    """Writes all tables of a sweep again from its ledgers; returns the number of runs.

    A run whose ledger is damaged keeps the tables that it has.

    Raises:
        LedgerError: A ledger is damaged; the other runs' tables are written.
        SinkError: A table cannot be written.
        SweepConflictError: The sweep is running, and writes its tables itself.
        PreflightError: The sweep's lock cannot be used.
    """
    with hold_sweep(paths, cure="It writes its tables itself: wait until it has ended"):
        sink = ParquetSink(paths.tables)
        sink.open()
        rows: list[RunRow] = []
        damaged: list[LedgerError] = []
        ledgers = sorted(paths.runs.glob("*/ledger.jsonl"))
        for ledger in ledgers:
            try:
                entries = read_ledger(ledger)
            except LedgerError as error:
                damaged.append(error)
                continue
            snapshot = records_of(ledger.parent.name, entries).snapshot()
            sink.remove(snapshot.run_id)
            sink.write_run(snapshot)
            rows += snapshot.run_rows()
        sink.remove_others({ledger.parent.name for ledger in ledgers})
        sink.close(rows)
    if damaged:
        raise damaged[0]
    return len(ledgers)


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m rl_bench.sinks.parquet RESULTS/SWEEP``: rebuilds the tables."""
    if argv is None:
        prepare_process()
    parser = argparse.ArgumentParser(
        prog="python -m rl_bench.sinks.parquet",
        description="Makes a sweep's tables anew, from its ledgers alone.",
        epilog="Exit codes: 0 all is written; 1 a ledger is damaged, or the disk refused; 2 bad "
        "input, or the sweep is being run.",
        allow_abbrev=False,
    )
    parser.add_argument("sweep", type=Path, help="the sweep's folder, RESULTS/SWEEP")
    args = read_flags(parser, argv)
    return ended(lambda: _rebuild(args.sweep), interrupted="the same command makes all of it again")


def _rebuild(folder: Path) -> int:
    if not (folder / "runs").is_dir():
        raise ConfigError(f"{folder} holds no runs", cure="Name a sweep's folder, RESULTS/SWEEP")
    say(f"{plural(rebuild(SweepPaths(folder)), 'run')}; tables in {folder / 'tables'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
