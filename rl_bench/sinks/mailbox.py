"""What waits for a sink that works in a thread of its own: the latest snapshot of each run.

Whoever puts one in goes on at once; the thread takes them out one by one, and says of each whether
the sink took it. Those that it failed to take are offered again one by one, each after it took
another, which is the sign that it has recovered; a few times at most, and once more at the end. So
a run's last snapshot is missed only by a sink that fails to the end.
"""

import threading
from collections import deque
from collections.abc import Callable

from rl_bench.records import RunSnapshot

MAX_TRIES = 3
"""How often one snapshot is offered before the end."""


class Mailbox:
    """Snapshots to a sink's thread, and its failures back; thread-safe."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._waiting: dict[str, RunSnapshot] = {}
        self._failed: dict[str, RunSnapshot] = {}
        self._num_tries: dict[str, int] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._is_shut = False
        self._failure: BaseException | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, snapshot: RunSnapshot) -> None:
        """Leaves the snapshot, in place of an older one of the same run."""
        with self._wake:
            if self._is_shut:
                return
            self._failed.pop(snapshot.run_id, None)
            self._num_tries.pop(snapshot.run_id, None)
            self._waiting[snapshot.run_id] = snapshot
            self._wake.notify()

    def call(self, act: Callable[[], None]) -> None:
        """Has the thread do something before it takes the next snapshot; it must not raise."""
        with self._wake:
            self._calls.append(act)
            self._wake.notify()

    def close(self) -> None:
        """Nothing more comes: what waits is taken, what failed offered a last time."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()

    def shut(self) -> None:
        """Throws away what waits and whatever comes."""
        with self._wake:
            self._is_shut = True
            self._waiting.clear()
            self._failed.clear()

    def take(self) -> RunSnapshot | None:
        """The next snapshot, waited for; None when the mailbox was closed and all are taken."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._calls or self._waiting or self._is_closing)
                if not self._calls:
                    return self._next()
                act = self._calls.popleft()
            act()

    def note_taken(self, snapshot: RunSnapshot) -> None:
        """The sink took it: it may take one more of those that it failed to take."""
        with self._wake:
            self._num_tries.pop(snapshot.run_id, None)
            if self._num_tries.keys() & self._waiting.keys():
                return  # one waits already: two could fail in a row
            again = (name for name in self._failed if self._num_tries[name] < MAX_TRIES)
            run_id = next(again, None)
            if run_id is not None:
                self._waiting[run_id] = self._failed.pop(run_id)

    def note_failed(self, error: BaseException, snapshot: RunSnapshot | None = None) -> None:
        """The sink failed, at that snapshot if one is given, which is kept unless a later came."""
        with self._wake:
            self._failure = error
            if snapshot is None or self._is_shut or snapshot.run_id in self._waiting:
                return
            self._num_tries[snapshot.run_id] = self._num_tries.get(snapshot.run_id, 0) + 1
            self._failed[snapshot.run_id] = snapshot

    def take_failure(self) -> BaseException | None:
        """The latest failure, once."""
        with self._wake:
            error, self._failure = self._failure, None
            return error

    def _next(self) -> RunSnapshot | None:
        if not self._waiting:  # closing
            self._waiting, self._failed = self._failed, {}
            self._is_shut = True
        if not self._waiting:
            return None
        return self._waiting.pop(next(iter(self._waiting)))
