"""The processes that an agent ran, as seen from outside by looking now and then.

A look costs some milliseconds and changes nothing. What has lived for `MIN_AGE_S` at a look is told
when it is gone, or at the end; what lives for less than two looks may be missed.
"""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rl_bench.events import ProcessSeen
from rl_bench.process.tree import TICKS_PER_S, argv_of, below, processes

LOOK_S = 1.0
MIN_AGE_S = 1.0
MAX_RECORDS = 2000
MAX_WORDS = 40
MAX_WORD_CHARS = 300
"""Enough for a command and its options; a prompt or a script in a word is cut."""


@dataclass(slots=True)
class _Seen:
    parent: int
    argv: tuple[str, ...]
    began_s: float
    duration_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0


class Census:
    """Looks at one agent's processes from a thread of its own. Use as a context manager.

    Args:
        root: All of them are below this process: its supervisor.
        ignore: Processes below it that are not the agent's: its sandbox's.
        used_s: The run's clock.
        on_seen: Told of each process, from the thread or from `close`; must not raise.
        max_records: After so many it tells of no more.

    Attributes:
        num_left_out: Processes that were not told, being too many.
    """

    def __init__(
        self,
        root: int,
        *,
        ignore: Collection[int] = (),
        used_s: Callable[[], float],
        on_seen: Callable[[ProcessSeen], None],
        max_records: int = MAX_RECORDS,
    ) -> None:
        self._root = root
        self._ignore = frozenset(ignore)
        self._used_s = used_s
        self._on_seen = on_seen
        self._room = max_records
        self._living: dict[tuple[int, int], _Seen] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="census", daemon=True)
        self.num_left_out = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def look(self) -> None:
        """One look: notes who lives, tells who is gone."""
        now_s = self._used_s()
        # What a start is counted on; it goes on while the machine sleeps.
        boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        found = below(self._root, processes()) if self._root else {}
        present = {}
        for pid, stat in found.items():
            if pid in self._ignore:
                continue
            key = (pid, stat.start_ticks)
            age_s = max(0.0, boot_s - stat.start_ticks / TICKS_PER_S)
            seen = self._living.get(key) or _Seen(stat.parent, (), max(0.0, now_s - age_s))
            # A shell that becomes another program shows its own command first.
            seen.argv = _cut(argv_of(pid)) or seen.argv
            seen.duration_s = age_s
            seen.cpu_s = stat.cpu_ticks / TICKS_PER_S
            seen.max_rss_bytes = max(seen.max_rss_bytes, stat.rss_bytes)
            present[key] = seen
        gone = {key: seen for key, seen in self._living.items() if key not in present}
        self._living = present
        self._tell(gone)

    def close(self) -> None:
        """Ends the looks and tells of what was there at the last; safe to call twice."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        rest, self._living = self._living, {}
        self._tell(rest)

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.look()
        self.look()

    def _tell(self, gone: dict[tuple[int, int], _Seen]) -> None:
        for (pid, _), seen in sorted(gone.items(), key=lambda item: item[1].began_s):
            if seen.duration_s < MIN_AGE_S:
                continue
            if self._room == 0:
                self.num_left_out += 1
                continue
            self._room -= 1
            self._on_seen(
                ProcessSeen(
                    pid=pid,
                    parent_pid=seen.parent,
                    argv=seen.argv,
                    began_s=round(seen.began_s, 3),
                    duration_s=round(seen.duration_s, 3),
                    cpu_s=round(seen.cpu_s, 3),
                    max_rss_bytes=seen.max_rss_bytes,
                )
            )


def _cut(argv: tuple[str, ...]) -> tuple[str, ...]:
    words = [w if len(w) <= MAX_WORD_CHARS else f"{w[:MAX_WORD_CHARS]}…" for w in argv[:MAX_WORDS]]
    return (*words, "…") if len(argv) > MAX_WORDS else tuple(words)
