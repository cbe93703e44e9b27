"""The recorder: the one writer of result sinks, fed by the runs' ledgers.

Runs push each entry after it is on disk. Entries that arrive twice are ignored, and a gap is closed
by reading the ledger, so the recorder is complete whatever got lost on the way or while it was
down. Folding happens in the caller's thread, within a millisecond or two; writing happens in a
thread of its own, at most every ``flush_interval_s`` a run, less often for a run slow to write. A
sink that fails is warned about once a kind of failure and never raises into a run.
"""

import copy
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rl_bench.config import SinkConfig
from rl_bench.errors import LedgerError
from rl_bench.events import ENTRY, Entry
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.records import RunRow, RunSnapshot
from rl_bench.run_records import RunRecords, records_of
from rl_bench.run_view import RunView
from rl_bench.sinks.base import Sink
from rl_bench.sinks.parquet import ParquetSink
from rl_bench.sinks.wandb import WandbSink

log = logging.getLogger(__name__)

_WRITE_SHARE = 0.05
"""A run's tables are written so seldom that writing takes at most this share of the time."""


def make_sinks(paths: SweepPaths, *, config: SinkConfig, sweep: str) -> list[Sink]:
    """The sinks that the config asks for: Parquet always, W&B unless disabled."""
    sinks: list[Sink] = [ParquetSink(paths.tables)]
    if config.wandb.mode != "disabled":
        sinks.append(WandbSink(paths.wandb, config=config.wandb, sweep=sweep))
    return sinks


@dataclass(slots=True)
class _Kept:
    """A run that needs no more writing: what views and the comparison still want of it."""

    view: RunView
    rows: list[RunRow]


class Recorder:
    """Folds ledgers into views, and hands records to the sinks.

    Args:
        paths: Of the sweep.
        config: Which sinks, and how often they write.
        sweep: The sweep's name; by default its folder's.
        sinks: Instead of those that ``config`` asks for.

    Raises:
        SinkError: A sink cannot open.
    """

    def __init__(
        self,
        paths: SweepPaths,
        *,
        config: SinkConfig,
        sweep: str = "",
        sinks: Sequence[Sink] | None = None,
    ) -> None:
        self._paths = paths
        self._interval_s = config.flush_interval_s
        name = sweep or paths.root.name
        self._sinks = list(make_sinks(paths, config=config, sweep=name) if sinks is None else sinks)
        for sink in self._sinks:
            sink.open()
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._records: dict[str, RunRecords] = {}
        self._kept: dict[str, _Kept] = {}
        self._sizes: dict[str, int] = {}
        self._dirty: set[str] = set()
        self._due: dict[str, float] = {}
        self._warned: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self.catch_up()
        self._flusher = threading.Thread(target=self._flush_forever, name="recorder", daemon=True)
        self._flusher.start()

    def __repr__(self) -> str:
        return f"Recorder({self._paths.root.name!r})"

    def record(self, run_id: str, lines: Sequence[str | Entry] = ()) -> None:
        """Takes entries that are on disk already; never raises.

        Args:
            run_id: The run.
            lines: Ledger lines or entries, in order; none: read the ledger.
        """
        try:
            self._take(run_id, lines)
        except Exception as error:  # noqa: BLE001  the event is safe on disk: recording only warns
            self._warn("recorder", error)

    def catch_up(self) -> None:
        """Reads whatever ledgers hold beyond what was recorded, and writes it to the sinks."""
        for ledger in sorted(self._paths.runs.glob("*/ledger.jsonl")):
            run_id = ledger.parent.name
            size = ledger.stat().st_size
            if self._sizes.get(run_id) == size:
                continue
            self._sizes[run_id] = size
            with self._mutex:
                self._read(run_id)
            self._write(run_id)

    def views(self) -> dict[str, RunView]:
        """A copy of every known run's view, by run id; pending runs have none."""
        with self._mutex:
            live = {run_id: copy.deepcopy(r.view) for run_id, r in self._records.items()}
            return {run_id: kept.view for run_id, kept in self._kept.items()} | live

    def flush(self) -> None:
        """Writes every run that has something new, now."""
        for run_id in self._take_dirty(only_due=False):
            self._write(run_id)

    def close(self) -> None:
        """Catches up with all ledgers, writes everything and the comparison, closes the sinks."""
        self._stop.set()
        self._flusher.join()
        self.catch_up()
        self.flush()
        with self._mutex:
            rows = [row for kept in self._kept.values() for row in kept.rows]
            for records in self._records.values():
                rows += records.snapshot().run_rows()
        for sink in self._sinks:
            try:
                sink.close(rows)
            except Exception as error:  # noqa: BLE001  results are in the ledgers: a sink only warns
                self._warn(sink.name, error)

    def _take(self, run_id: str, lines: Sequence[str | Entry]) -> None:
        entries = [line if isinstance(line, Entry) else ENTRY.validate_json(line) for line in lines]
        with self._mutex:
            records = self._records.get(run_id)
            kept = self._kept.get(run_id)
            if kept is not None and entries and entries[-1].seq < kept.view.next_seq:
                return
            if records is None and kept is None and entries and entries[0].seq == 0:
                records = self._records[run_id] = RunRecords(run_id)
            if records is None or not entries or not _fold(records, entries):
                self._read(run_id)
            self._dirty.add(run_id)

    def _read(self, run_id: str) -> None:
        """Replaces a run's records by what its ledger holds; keeps them if it cannot be read."""
        path = self._paths.run(run_id).ledger
        try:
            self._records[run_id] = records_of(run_id, read_ledger(path))
        except (LedgerError, ValueError) as error:
            self._warn("recorder", error, kind=f"ledger {run_id}")
            return
        self._kept.pop(run_id, None)
        self._dirty.add(run_id)

    def _take_dirty(self, *, only_due: bool) -> list[str]:
        now = time.monotonic()
        with self._mutex:
            taken = [
                run_id
                for run_id in sorted(self._dirty)
                if not only_due or self._due.get(run_id, 0.0) <= now
            ]
            self._dirty.difference_update(taken)
        return taken

    def _write(self, run_id: str) -> None:
        """Hands a run's records to every sink; lets go of them when the run is over."""
        with self._writing:
            started = time.monotonic()
            with self._mutex:
                self._dirty.discard(run_id)
                records = self._records.get(run_id)
                snapshot = records.snapshot() if records is not None else None
            if snapshot is None:
                return
            for sink in self._sinks:
                self._write_to(sink, snapshot)
            cost_s = time.monotonic() - started
            self._due[run_id] = time.monotonic() + max(self._interval_s, cost_s / _WRITE_SHARE)
            self._let_go(snapshot)

    def _write_to(self, sink: Sink, snapshot: RunSnapshot) -> None:
        try:
            sink.write_run(snapshot)
        except Exception as error:  # noqa: BLE001  a view of the ledgers must not hurt a run
            self._warn(sink.name, error)

    def _let_go(self, snapshot: RunSnapshot) -> None:
        """Frees the items of a run that has ended; its ledger is read again should it go on."""
        if not snapshot.view.is_final:
            return
        kept = _Kept(snapshot.view, snapshot.run_rows())
        with self._mutex:
            records = self._records.get(snapshot.run_id)
            if records is not None and records.view.next_seq == snapshot.view.next_seq:
                del self._records[snapshot.run_id]
                self._kept[snapshot.run_id] = kept

    def _flush_forever(self) -> None:
        tick_s = min(self._interval_s, 1.0)
        while not self._stop.wait(tick_s):
            for run_id in self._take_dirty(only_due=True):
                self._write(run_id)

    def _warn(self, sink: str, error: Exception, *, kind: str = "") -> None:
        key = (sink, kind or type(error).__name__)
        if key in self._warned:
            return
        self._warned.add(key)
        log.warning("%s: %s (%s)", sink, error, "further failures of this kind are not repeated")


def _fold(records: RunRecords, entries: Sequence[Entry]) -> bool:
    """Folds the entries not folded yet; False when some are missing before them."""
    for entry in entries:
        if entry.seq < records.view.next_seq:
            continue
        if entry.seq > records.view.next_seq:
            return False
        records.fold(entry)
    return True
