"""The recorder: the one writer of result sinks, fed by the runs' ledgers.

Runs push each entry after it is on disk. Entries that arrive twice are ignored, and a gap is closed
by reading the ledger on from where it was last read: the recorder is complete whatever got lost on
the way or while it was down, and gaps without number cost one reading. Folding happens in the
caller's thread, within a millisecond or two; writing happens in a thread of its own, at most every
``flush_interval_s`` a run, less often for a run slow to write. A sink that fails is warned about
once a kind of failure and never raises into a run. One that cannot open stops a sweep before its
first run; later, when a recorder is started again or makes up for a lost one, it only warns, and is
tried again now and then.
"""

import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from rl_bench.clone import open_regular
from rl_bench.config import SinkConfig
from rl_bench.errors import LedgerError, SinkError
from rl_bench.events import ENTRY, Entry
from rl_bench.ledger import read_ledger, read_ledger_part
from rl_bench.paths import SweepPaths
from rl_bench.records import RunSnapshot
from rl_bench.run_records import RunRecords, records_of
from rl_bench.run_row import RunRow
from rl_bench.run_view import RunView
from rl_bench.sinks.base import RememberingSink, Sink, TrackedSink
from rl_bench.sinks.outside import make_outside_sinks
from rl_bench.sinks.parquet import ParquetSink
from rl_bench.sinks.wandb import WandbSink

log = logging.getLogger(__name__)

_WRITE_SHARE = 0.05
"""A run's tables are written so seldom that writing takes at most this share of the time."""
REOPEN_S = 60.0
"""After so long a sink that could not open is tried again."""


_NONE_KNOWN: Mapping[str, int] = MappingProxyType({})


def make_sinks(paths: SweepPaths, *, config: SinkConfig, sweep: str) -> list[TrackedSink]:
    """The sinks that the config asks for: Parquet always, W&B unless disabled, plug-ins'."""
    sinks: list[TrackedSink] = [ParquetSink(paths.tables)]
    if config.wandb.mode != "disabled":
        sinks.append(WandbSink(paths.wandb, config=config.wandb, sweep=sweep))
    return [*sinks, *make_outside_sinks(paths, config=config, sweep=sweep)]


@dataclass(frozen=True, slots=True)
class _ReadTo:
    """How far a run's ledger was read: a byte, and the ``seq`` that comes there."""

    offset: int = 0
    seq: int = 0


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
        must_open: Whether a sink that cannot open is an error; asked once. A recorder that takes
            another's place must come up whatever has become of W&B or the disk meanwhile.

    Raises:
        SinkError: A sink cannot open, and must.
    """

    def __init__(
        self,
        paths: SweepPaths,
        *,
        config: SinkConfig,
        sweep: str = "",
        sinks: Sequence[Sink] | None = None,
        must_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._paths = paths
        self._interval_s = config.flush_interval_s
        name = sweep or paths.root.name
        self._sinks: list[Sink] = []
        self._unopened: Sequence[Sink] = (
            make_sinks(paths, config=config, sweep=name) if sinks is None else sinks
        )
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._records: dict[str, RunRecords] = {}
        self._kept: dict[str, _Kept] = {}
        self._sizes: dict[str, int] = {}
        self._read_to: dict[str, _ReadTo] = {}
        self._dirty: set[str] = set()
        self._unwritten: set[str] = set()
        self._due: dict[str, float] = {}
        self._warned: set[tuple[str, str]] = set()
        self._stop = threading.Event()
        self._reopen_due = 0.0
        self._open_sinks(must_open=must_open())
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
        """Reads what ledgers hold beyond what every sink has taken, and writes it to the sinks."""
        for ledger in sorted(self._paths.runs.glob("*/ledger.jsonl")):
            run_id = ledger.parent.name
            size = ledger.stat().st_size
            if self._sizes.get(run_id) == size and run_id not in self._unwritten:
                continue
            self._sizes[run_id] = size
            with self._mutex:
                if self._knows(run_id, ledger) or self._has_ended(run_id, ledger):
                    continue
                self._read(run_id)
            self._write(run_id)

    def views(self, known: Mapping[str, int] = _NONE_KNOWN) -> dict[str, RunView]:
        """Copies of views, by run id; pending runs have none.

        Args:
            known: The ``next_seq`` of views that the caller has: the same again are left out, so
                that a look at a long sweep costs what goes on, not what has finished.
        """
        with self._mutex:
            live = {
                run_id: copy.deepcopy(records.view)
                for run_id, records in self._records.items()
                if known.get(run_id) != records.view.next_seq
            }
            return live | {
                run_id: kept.view
                for run_id, kept in self._kept.items()
                if known.get(run_id) != kept.view.next_seq
            }

    def flush(self) -> None:
        """Writes every run that has something new, now."""
        for run_id in self._take_dirty(only_due=False):
            self._write(run_id)

    def close(self) -> None:
        """Catches up with all ledgers, writes everything and the comparison, closes the sinks."""
        self._stop.set()
        self._flusher.join()
        self._reopen()
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

    def _open_sinks(self, *, must_open: bool = False) -> None:
        """Opens what is not open; every run is due for whatever opened late."""
        waiting, self._unopened = self._unopened, []
        for sink in waiting:
            try:
                sink.open()
            except SinkError as error:
                if must_open:
                    raise
                self._warn(sink.name, error)
                self._unopened = [*self._unopened, sink]
            else:
                self._sinks.append(sink)
                self._sizes.clear()
                self._unwritten.update(self._records, self._kept)
        self._reopen_due = time.monotonic() + REOPEN_S

    def _reopen(self) -> bool:
        """Tries again what could not open, now and then; whether it tried."""
        is_due = bool(self._unopened) and time.monotonic() > self._reopen_due
        if is_due:
            self._open_sinks()
        return is_due

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

    def _knows(self, run_id: str, ledger: Path) -> bool:
        """Whether its ledger holds nothing new; a run that a sink failed to take is read again."""
        known = self._records.get(run_id) or self._kept.get(run_id)
        if known is None or run_id in self._unwritten:
            return False
        return known.view.next_seq == _num_lines(ledger)

    def _has_ended(self, run_id: str, ledger: Path) -> bool:
        """Takes a run that was over before, if every sink has all of it: its items stay unread."""
        if run_id in self._records or run_id in self._kept or self._unopened:
            return False
        try:
            snapshot = records_of(run_id, read_ledger(ledger, with_items=False)).snapshot()
        except (LedgerError, ValueError):
            return False  # Reading all of it says what is wrong.
        is_over = snapshot.view.is_final and all(
            isinstance(sink, RememberingSink) and sink.has(run_id, snapshot.mark)
            for sink in self._sinks
        )
        if is_over:
            self._kept[run_id] = _Kept(snapshot.view, snapshot.run_rows())
        return is_over

    def _read(self, run_id: str) -> None:
        """Folds what a run's ledger holds beyond its records; keeps these if it cannot be read."""
        path = self._paths.run(run_id).ledger
        records = self._records.get(run_id)
        start = _ReadTo() if records is None else self._read_to.get(run_id, _ReadTo())
        records = records or RunRecords(run_id)
        try:
            part = read_ledger_part(path, offset=start.offset, next_seq=start.seq)
            _fold(records, part.entries)
        except (LedgerError, ValueError) as error:
            self._warn("recorder", error, kind=f"ledger {run_id}")
            return
        self._read_to[run_id] = _ReadTo(part.offset, start.seq + len(part.entries))
        self._records[run_id] = records
        self._kept.pop(run_id, None)
        self._dirty.add(run_id)

    def _take_dirty(self, *, only_due: bool) -> list[str]:
        now = time.monotonic()
        with self._mutex:
            taken = [
                run_id
                for run_id in sorted(self._dirty)
                if not only_due or self._due.setdefault(run_id, now + self._interval_s) <= now
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
            written = [self._write_to(sink, snapshot) for sink in self._sinks]
            (self._unwritten.discard if all(written) else self._unwritten.add)(run_id)
            cost_s = time.monotonic() - started
            self._due[run_id] = time.monotonic() + max(self._interval_s, cost_s / _WRITE_SHARE)
            self._let_go(snapshot)

    def _write_to(self, sink: Sink, snapshot: RunSnapshot) -> bool:
        try:
            sink.write_run(snapshot)
        except Exception as error:  # noqa: BLE001  a view of the ledgers must not hurt a run
            self._warn(sink.name, error)
            return False
        return True

    def _let_go(self, snapshot: RunSnapshot) -> None:
        """Frees the items of a run that has ended; its ledger is read again should it go on."""
        if not snapshot.view.is_final:
            return
        kept = _Kept(snapshot.view, snapshot.run_rows())
        with self._mutex:
            records = self._records.get(snapshot.run_id)
            if records is not None and records.view.next_seq == snapshot.view.next_seq:
                del self._records[snapshot.run_id]
                self._read_to.pop(snapshot.run_id, None)
                self._kept[snapshot.run_id] = kept

    def _flush_forever(self) -> None:
        tick_s = min(self._interval_s, 1.0)
        while not self._stop.wait(tick_s):
            if self._reopen():
                self.catch_up()
            for run_id in self._take_dirty(only_due=True):
                self._write(run_id)

    def _warn(self, sink: str, error: Exception, *, kind: str = "") -> None:
        key = (sink, kind or type(error).__name__)
        if key in self._warned:
            return
        self._warned.add(key)
        log.warning("%s: %s (%s)", sink, error, "further failures of this kind are not repeated")


def _num_lines(path: Path) -> int | None:
    """Whole lines of a file; None if it cannot be read."""
    with suppress(OSError), open_regular(path, follow=True) as file:
        return sum(piece.count(b"\n") for piece in iter(partial(file.read, 2**20), b""))
    return None


def _fold(records: RunRecords, entries: Sequence[Entry]) -> bool:
    """Folds the entries not folded yet; False when some are missing before them."""
    for entry in entries:
        if entry.seq < records.view.next_seq:
            continue
        if entry.seq > records.view.next_seq:
            return False
        records.fold(entry)
    return True
