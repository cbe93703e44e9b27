"""Follows an agent's output file while it grows, and tells what it says, in order.

The supervisor writes the file and, when it is over its limit, cuts a part out of its middle (see
`rl_bench.process.supervisor`). The watch notices that the bytes before its place are not the ones
it read, finds the last of them again further up, and goes on from there.
"""

import logging
import math
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_bench.agents.stream import StreamReader
from rl_bench.clone import open_fd
from rl_bench.config import StreamRule
from rl_bench.events import AgentEvent

log = logging.getLogger(__name__)
POLL_S = 0.3
READ_BYTES = 1024 * 1024
MAX_POLL_BYTES = 64 * READ_BYTES
MAX_EVENTS = 10_000
"""Events of an attempt that are told; what comes after is counted."""
MAX_BACKLOG_BYTES = 4 * READ_BYTES
"""What an output that has told all its events, or is read at the end for longer than `CLOSE_S`,
may hold unread: what stands before is passed over."""
CLOSE_S = 20.0
MAX_LATE_RESULTS = 100
"""Ends of work that are told all the same."""
SEAM_BYTES = 4096
"""So many bytes before the place are compared, and looked for after a cut."""
CUT_MARK = b"output over the limit was cut here"
"""A part of the line that the supervisor leaves where it cut."""
MAX_LOST_POLLS = 10
_MIN_SEAM_BYTES = 32


class StreamWatch:
    """Watches one output file. Call `poll` now and then, or use as a context manager: a thread.

    Args:
        path: The file; it need not be there yet. What it holds already is of an earlier attempt.
        rules: How its lines are read; with none the file is not opened.
        budget_used_s: The run's clock.
        on_event: Told of each event. What it raises ends the watch and is raised by `close`.

    Attributes:
        saw_result: The output told the end of the agent's work, at least once.
        num_events: Events that were told.
        num_dropped: Events over the limit that were not.
    """

    def __init__(
        self,
        path: Path,
        *,
        rules: Sequence[StreamRule],
        budget_used_s: Callable[[], float],
        on_event: Callable[[AgentEvent], object],
    ) -> None:
        self._path = path
        self._rules = rules
        self._reader = StreamReader(rules)
        self._clock = budget_used_s
        self._on_event = on_event
        self._place = 0
        self._seam = b""
        self._num_lost = 0
        self._num_late_results = 0
        self._final_at: float | None = None
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.saw_result = False
        self.num_events = 0
        self.num_dropped = 0
        with suppress(OSError), self._opened() as fd:
            self._stand_at(os.fstat(fd).st_size, fd)

    @property
    def since_result_s(self) -> float | None:
        """Seconds since the final event; None without one, and when it was not the last word."""
        final_at = self._final_at
        return None if final_at is None else time.monotonic() - final_at

    def forget_result(self) -> None:
        """The agent is started again: an end that was told before is none any more."""
        with self._lock:
            self._final_at = None
            self._reader.restart()

    def poll(self) -> None:
        """Reads what is new.

        Raises:
            Whatever ``on_event`` raises.
        """
        with self._lock:
            self._poll(limit=MAX_POLL_BYTES)

    def start(self) -> Self:
        """Polls in a thread of its own until `close`."""
        if self._rules:
            self._thread = threading.Thread(target=self._run, name="stream-watch", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Reads to the end of the file and stops; safe to call twice.

        Raises:
            Whatever ``on_event`` raised.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is None:
            with self._lock:
                self._poll(limit=None, until=time.monotonic() + CLOSE_S)
                self._tell(self._reader.finish(budget_used_s=self._clock()))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
            log.exception("the watch of %s broke as well", self._path)

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.poll()
            except Exception as error:  # noqa: BLE001  raised again where the run can see it
                self._failure = error
                return

    def _poll(self, *, limit: int | None, until: float = math.inf) -> None:
        num_read = 0
        while self._rules and (limit is None or num_read < limit):
            is_late = self.num_events >= MAX_EVENTS or time.monotonic() > until
            data = self._next_bytes(skips=is_late)
            if not data:
                return
            num_read += len(data)
            self._tell(self._reader.feed(data, budget_used_s=self._clock()))

    def _next_bytes(self, *, skips: bool) -> bytes:
        try:
            with self._opened() as fd:
                if not self._is_in_place(fd) and not self._find_place(fd):
                    return b""
                newest = os.fstat(fd).st_size - MAX_BACKLOG_BYTES
                if skips and newest > self._place:
                    self._stand_at(newest, fd)
                    self._reader.restart()
                data = os.pread(fd, READ_BYTES, self._place)
        except OSError:
            return b""  # not there yet, or not readable: there is a next time
        self._place += len(data)
        self._seam = (self._seam + data)[-SEAM_BYTES:]
        return data

    def _is_in_place(self, fd: int) -> bool:
        begin = self._place - len(self._seam)
        return os.pread(fd, len(self._seam), begin) == self._seam

    def _find_place(self, fd: int) -> bool:
        """After a cut: the place that follows what was read last; False while it is not there."""
        size = os.fstat(fd).st_size
        after = -1
        if size:
            with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
                after = _after_last(view, self._seam)
                if after < 0 and (mark := view.rfind(CUT_MARK)) >= 0:
                    after = view.find(b"\n", mark) + 1
                    self._reader.restart()
        if after < 0:
            # A cut is seen half done for a moment; what stays unknown is passed over.
            self._num_lost += 1
            if self._num_lost <= MAX_LOST_POLLS and not self._stop.is_set():
                return False
            after = size
            self._reader.restart()
        self._num_lost = 0
        self._stand_at(after, fd)
        return True

    def _stand_at(self, place: int, fd: int) -> None:
        begin = max(0, place - SEAM_BYTES)
        self._place, self._seam = place, os.pread(fd, place - begin, begin)

    def _opened(self) -> AbstractContextManager[int]:
        # Never through a link, nor held up by a pipe in its place.
        return open_fd(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    def _tell(self, events: Sequence[AgentEvent]) -> None:
        for event in events:
            is_result = event.kind == "result"
            self._final_at = time.monotonic() if is_result else None
            self.saw_result = self.saw_result or is_result
            if self.num_events >= MAX_EVENTS:
                self._num_late_results += is_result
                if not is_result or self._num_late_results > MAX_LATE_RESULTS:
                    self.num_dropped += 1
                    continue
            self.num_events += 1
            self._on_event(event)


def _after_last(view: mmap.mmap, seam: bytes) -> int:
    """The place after the last occurrence of what was read last, or of its end; -1: nowhere.

    The cut may have gone through the seam itself, of which then only the end is left.
    """
    while True:
        begin = view.rfind(seam)
        if begin >= 0:
            return begin + len(seam)
        if len(seam) <= _MIN_SEAM_BYTES:
            return -1
        seam = seam[len(seam) // 2 :]
