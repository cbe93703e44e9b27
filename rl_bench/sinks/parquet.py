"""Parquet: ``tables/<table>/<run_id>.parquet`` for each run, and ``tables/comparison.csv``.

A run's files are written whole from its records, to a temporary name, synced and renamed: a reader
sees the old file or the new one. The file of table ``runs`` comes last and carries the ledger's
mark, so a run whose tables are up to date is recognised without rewriting them. Everything here can
be made again from the ledgers: ``python -m rl_bench.sinks.parquet <sweep folder>``.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from rl_bench.errors import RlBenchError, SinkError
from rl_bench.ledger import read_ledger, sync_folder
from rl_bench.paths import SweepPaths
from rl_bench.records import RUNS, SCHEMAS, RunRow, RunSnapshot, to_batch
from rl_bench.run_records import records_of

_MARK = b"ledger_mark"
_VERSION = b"schema_version"
_NOT_IN_CSV = ("tasks", "baseline_scores", "spec")


class ParquetSink:
    """Writes the typed tables under ``folder``, a sweep's ``tables/``."""

    name = "parquet"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._num_items_written: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"ParquetSink({str(self.folder)!r})"

    def open(self) -> None:
        """Makes the folders and proves that they can be written."""
        try:
            for table in SCHEMAS:
                (self.folder / table).mkdir(parents=True, exist_ok=True)
            probe = self.folder / ".probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise SinkError(f"cannot write tables under {self.folder}: {error}") from error

    def write_run(self, snapshot: RunSnapshot) -> None:
        """Brings the run's files up to date; nothing to do when they are."""
        if snapshot.spec is None or self._mark_of(snapshot.run_id) == snapshot.mark:
            return
        tables = snapshot.tables()
        num_items = tables["items"].num_rows
        try:
            if self._num_items_written.get(snapshot.run_id) != num_items:
                self._write("items", snapshot, tables["items"])
            self._num_items_written[snapshot.run_id] = num_items
            for table in ("events", "submissions", "runs"):
                self._write(table, snapshot, tables[table])
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write tables of run {snapshot.run_id}: {error}") from error
        if snapshot.view.is_final:
            self._num_items_written.pop(snapshot.run_id, None)

    def close(self, rows: Sequence[RunRow]) -> None:
        """Writes ``comparison.csv``: table ``runs`` of the whole sweep, for people."""
        table = pa.Table.from_batches([to_batch(rows, RUNS)], schema=RUNS)
        try:
            with _replacing(self.folder / "comparison.csv") as temporary:
                pa_csv.write_csv(table.drop_columns(list(_NOT_IN_CSV)), temporary)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write the comparison table: {error}") from error

    def _path(self, table: str, run_id: str) -> Path:
        return self.folder / table / f"{run_id}.parquet"

    def _mark_of(self, run_id: str) -> str:
        """The ledger mark that the run's tables were last written at; empty if never like this."""
        path = self._path("runs", run_id)
        if not path.exists():
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
        with _replacing(self._path(table, snapshot.run_id)) as temporary:
            pq.write_table(rows.replace_schema_metadata(metadata), temporary, compression="zstd")


class _replacing:  # noqa: N801  reads as a verb where it is used
    """Gives a temporary path; on success syncs it and renames it to ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self._temporary.unlink(missing_ok=True)
            return
        fd = os.open(self._temporary, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self._temporary.replace(self._path)
        sync_folder(self._path.parent)


def rebuild(paths: SweepPaths) -> int:
    """Writes all tables of a sweep again from its ledgers; returns the number of runs.

    Raises:
        LedgerError: A ledger is damaged.
        SinkError: A table cannot be written.
    """
    for table in SCHEMAS:
        for path in (paths.tables / table).glob("*.parquet"):
            path.unlink()
    sink = ParquetSink(paths.tables)
    sink.open()
    rows: list[RunRow] = []
    ledgers = sorted(paths.runs.glob("*/ledger.jsonl"))
    for ledger in ledgers:
        snapshot = records_of(ledger.parent.name, read_ledger(ledger)).snapshot()
        sink.write_run(snapshot)
        rows += snapshot.run_rows()
    sink.close(rows)
    return len(ledgers)


def main(argv: Sequence[str]) -> int:
    """``python -m rl_bench.sinks.parquet <sweep folder>``: rebuilds the tables."""
    if len(argv) != 1 or not (Path(argv[0]) / "runs").is_dir():
        sys.stderr.write("usage: python -m rl_bench.sinks.parquet <sweep folder>\n")
        return 2
    try:
        num_runs = rebuild(SweepPaths(Path(argv[0])))
    except RlBenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{num_runs} runs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
