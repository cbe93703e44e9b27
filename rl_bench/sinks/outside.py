"""Sinks of plug-ins, each in a thread of its own: one that is slow, hangs or fails delays nothing.

The recorder leaves the latest snapshot of each run in a mailbox and goes on, so such a sink may
miss snapshots in between, and never the last one, unless it fails to the end. What it raises is
told as a `SinkError` at the next snapshot or at the end, where the recorder warns.

``sinks/<name>.json`` says which runs a sink had, each with its ledger's mark, when it last closed
without a failure. With that a sweep that is over knows a sink that failed to the end, or is new.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from rl_bench.clone import read_regular
from rl_bench.config import SinkConfig
from rl_bench.errors import ConfigError, SinkError
from rl_bench.paths import SweepPaths
from rl_bench.plugins import load_sink
from rl_bench.records import RunSnapshot
from rl_bench.run_row import RunRow
from rl_bench.run_view import RunView
from rl_bench.sinks.base import RememberingSink, Sink
from rl_bench.sinks.mailbox import Mailbox
from rl_bench.whole_file import write_whole

OPEN_TIMEOUT_S = 60.0
ASK_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 60.0


def make_outside_sinks(paths: SweepPaths, *, config: SinkConfig, sweep: str) -> list["OutsideSink"]:
    """The plug-ins' sinks that the config asks for.

    Raises:
        SinkError: One cannot be made.
    """
    return [
        OutsideSink(
            name,
            _maker(name, paths.sink(name), sweep=sweep, settings=settings),
            folder=paths.sink(name),
        )
        for name, settings in config.plugins.items()
    ]


def _maker(name: str, folder: Path, *, sweep: str, settings: object) -> Callable[[], Sink]:
    def make() -> Sink:
        folder.mkdir(parents=True, exist_ok=True)
        sink: Sink = load_sink(name)(folder, sweep=sweep, settings=settings)
        return sink

    return make


def _marks_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


class OutsideSink:
    """A `rl_bench.sinks.base.Sink` that hands everything to another one.

    Args:
        name: Of the sink, for warnings.
        make: Makes the other one; called in the thread.
        folder: Its own, beside which is kept what it has; None: nothing is kept.
        open_timeout_s, close_timeout_s: How long it may take to open, and to finish at the end.
        ask_timeout_s: How long it may take to say what it has, all questions together.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Sink],
        *,
        folder: Path | None = None,
        open_timeout_s: float = OPEN_TIMEOUT_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        ask_timeout_s: float = ASK_TIMEOUT_S,
    ) -> None:
        self.name = name
        self._make = make
        self._folder = folder
        self._open_timeout_s = open_timeout_s
        self._close_timeout_s = close_timeout_s
        self._patience_s = ask_timeout_s
        self._mailbox = Mailbox()
        self._sink: Sink | None = None
        self._rows: Sequence[RunRow] = ()
        self._marks: dict[str, str] = {}
        self._is_finished = False
        self._is_open = threading.Event()
        self._thread = self._new_thread()

    def __repr__(self) -> str:
        return f"OutsideSink({self.name!r})"

    def open(self) -> None:
        """Makes and opens the sink; may be called again after it failed.

        Raises:
            SinkError: It cannot take records, or takes too long to say so.
        """
        if not self._thread.is_alive():  # one that is slow is waited for again
            self._is_open.clear()
            self._thread = self._new_thread()
            self._thread.start()
        if not self._is_open.wait(self._open_timeout_s):
            raise SinkError(
                f"sink {self.name} did not open within {self._open_timeout_s:.0f} s",
                cure=f"Leave it out: '~sink.plugins.{self.name}'",
            )
        self._raise_failure()

    def write_run(self, snapshot: RunSnapshot) -> None:
        """Leaves the snapshot in the mailbox, in place of an older one of the same run.

        Raises:
            SinkError: What the sink raised before.
        """
        self._mailbox.put(snapshot)
        self._raise_failure()

    def has(self, run_id: str, mark: str) -> bool:
        """What the sink says, see `rl_bench.sinks.base.RememberingSink`; it may have no memory.

        False too when it does not say in time: to be told again is only more work.
        """
        if not isinstance(self._sink, RememberingSink):
            return False
        answer: Future[bool] = Future()
        self._mailbox.call(partial(self._answer, answer, partial(self._sink.has, run_id, mark)))
        asked = time.monotonic()
        try:
            is_there = answer.result(timeout=self._patience_s)
            if is_there:
                self._marks[run_id] = mark
            return is_there
        except TimeoutError:
            return False
        finally:
            self._patience_s = max(0.0, self._patience_s - (time.monotonic() - asked))

    def close(self, rows: Sequence[RunRow]) -> None:
        """Has the sink finish, and leaves it behind if it takes too long; notes what it has.

        Raises:
            SinkError: What the sink raised, that it did not finish, or that the disk refused.
        """
        self._rows = rows
        self._mailbox.close()
        self._thread.join(self._close_timeout_s)
        if self._thread.is_alive():
            raise SinkError(f"{self.name} did not finish within {self._close_timeout_s:.0f} s")
        if self._is_finished:
            self._keep_marks()
        self._raise_failure()

    def is_behind(self, views: Iterable[RunView]) -> bool:
        """Whether it lacked something of these runs when it last closed, or its folder is gone."""
        if self._folder is None or not self._folder.is_dir():
            return True
        try:
            kept = json.loads(read_regular(_marks_path(self._folder)))
            return any(kept.get(view.run_id) != view.mark for view in views)
        except (OSError, ValueError, AttributeError, RecursionError):
            return True  # It never closed, or the file is damaged.

    def _keep_marks(self) -> None:
        if self._folder is None:
            return
        try:
            write_whole(_marks_path(self._folder), json.dumps(self._marks, sort_keys=True))
        except OSError as error:
            raise SinkError(f"cannot note what sink {self.name} has: {error}") from error

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name=f"sink-{self.name}", daemon=True)

    def _raise_failure(self) -> None:
        error = self._mailbox.take_failure()
        if isinstance(error, SinkError):
            raise error
        if isinstance(error, ConfigError):
            raise SinkError(error.message, cure=error.cure) from error
        if error is not None:
            raise SinkError(f"{self.name}: {type(error).__name__}: {error}") from error

    def _work(self) -> None:
        try:
            sink = self._make()
            sink.open()
        except (Exception, SystemExit) as error:  # noqa: BLE001  code of others must stay in this thread
            self._mailbox.note_failed(error)
            return
        else:
            self._sink = sink
        finally:
            self._is_open.set()
        while (snapshot := self._mailbox.take()) is not None:
            self._hand_on(sink, snapshot)
        try:
            sink.close(self._rows)
        except (Exception, SystemExit) as error:  # noqa: BLE001  as above
            self._mailbox.note_failed(error)
        else:
            self._is_finished = True

    def _hand_on(self, sink: Sink, snapshot: RunSnapshot) -> None:
        try:
            sink.write_run(snapshot)
        except (Exception, SystemExit) as error:  # noqa: BLE001  as above
            self._mailbox.note_failed(error, snapshot)
        else:
            self._marks[snapshot.run_id] = snapshot.mark
            self._mailbox.note_taken(snapshot)

    def _answer(self, answer: Future[bool], ask: Callable[[], bool]) -> None:
        try:
            answer.set_result(ask())
        except (Exception, SystemExit) as error:  # noqa: BLE001  as above
            self._mailbox.note_failed(error)
            answer.set_result(False)
