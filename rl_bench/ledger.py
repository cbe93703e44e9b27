"""A run's ledger: an append-only JSONL file, the source of every table, curve and summary.

One line an `Entry`. `Ledger.append` returns only when the line is on disk (fsynced), so an
acknowledged event survives a kill -9 at any moment. A line that was being written at the kill has
no newline yet: it was never acknowledged, and is cut off and noted when the ledger is next opened.
Damage anywhere else is refused, never skipped. One writer at a time holds the file's lock; readers
need none.
"""

import errno
import fcntl
import io
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from rl_bench.clone import open_fd, open_regular, require_regular
from rl_bench.counts import plural
from rl_bench.errors import LedgerError
from rl_bench.events import (
    ENTRY,
    AgentExited,
    Entry,
    Evaluation,
    Event,
    Item,
    Note,
    RunFinished,
    StateChanged,
)
from rl_bench.whole_file import sync_folder

log = logging.getLogger(__name__)

TORN_TOPIC = "ledger_torn_line"
"""Topic of the note that tells of a cut-off line."""
RESERVE_BYTES = 1024 * 1024
RESERVE_PIECE_BYTES = 128 * 1024
_LOCK_POLL_S = 0.05
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags with which opening to write never follows a link nor waits for a pipe's reader."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIELDS = list(Evaluation.model_fields)
_AWAY = "Move the run's folder away to run it again"
_PLACE = (
    f"See to its disk and to who may use it. If something else is in its place: {_AWAY.lower()}"
)
_ITEMS = b'"items":['
_AFTER_ITEMS = f'],"{_FIELDS[_FIELDS.index("items") + 1]}":'.encode()
"""Where the items of an evaluation begin and end in a line, as `Ledger` writes it."""
_ITEM = f'{{"{next(iter(Item.model_fields))}":'.encode()
_NEXT_ITEM = b"}," + _ITEM
_DETAIL = b',"detail":{'
_NO_SCORE = b',"score":null,'
_ENDING = (AgentExited, StateChanged, RunFinished)
"""Events that use the reserve: with them a run that a full disk broke says so in its ledger."""


class LedgerPart(NamedTuple):
    """Entries read from a ledger, and the byte ``offset`` after the last of them."""

    entries: list[Entry]
    offset: int


class EventLog(Protocol):
    """Where events go; thread-safe. `Ledger` is one."""

    def append(self, event: Event) -> Entry:
        """Returns when the event is on disk."""
        ...


class Ledger:
    """A ledger open for append; thread-safe, one writer a file.

    Args:
        path: The JSONL file; it and its parent folders are made when missing.
        clock: Monotonic seconds; ``elapsed_s`` of entries counts from the opening.
        wait_s: How long another writer, which may be about to end, is waited for.

    Attributes:
        path: The file.
        next_seq: The ``seq`` that the next entry gets; 0 for a new ledger.

    Raises:
        LedgerError: Another writer holds the file, it cannot be opened, or its last whole line is
            no entry of this version.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait_s: float = 0.0,
    ) -> None:
        self.path = path
        self._clock = clock
        self._origin = clock()
        self._mutex = threading.Lock()
        self._broken = ""
        self._fd = _open_locked(path, wait_s=wait_s)
        try:
            tail = _find_tail(self._fd, path)
            self.next_seq = tail.next_seq
            self._size = tail.size
            if tail.torn:
                os.ftruncate(self._fd, tail.size)
                os.fsync(self._fd)
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, OSError):
                raise _cannot("open", path, error) from error
            raise
        self._reserve = path.with_suffix(".reserve")
        _set_aside(self._reserve)
        if tail.torn:
            excerpt = tail.torn[:200].decode("utf-8", errors="replace")
            log.warning("%s: cut off a torn last line of %d bytes", path, len(tail.torn))
            message = f"cut off {plural(len(tail.torn), 'byte')} of an unfinished line: {excerpt}"
            self.append(Note(level="warning", topic=TORN_TOPIC, message=message))

    def append(self, event: Event) -> Entry:
        """Writes ``event`` as the next line and returns its entry once it is on disk.

        Raises:
            LedgerError: The disk refused (the file is left as it was), or the ledger is closed.
        """
        with self._mutex:
            if self._broken:
                raise LedgerError(f"ledger {self.path} takes no more events: {self._broken}")
            entry = Entry(
                seq=self.next_seq,
                time_utc=datetime.now(UTC).isoformat(timespec="microseconds"),
                elapsed_s=round(self._clock() - self._origin, 6),
                event=event,
            )
            line, entry = _line(entry)
            try:
                self._write(line)
            except LedgerError as error:
                if not isinstance(event, _ENDING) or not self._release_reserve(error):
                    raise
                self._write(line)
            self._size += len(line)
            self.next_seq += 1
            return entry

    def close(self) -> None:
        """Releases the file and its lock; safe to call twice."""
        with self._mutex:
            if self._fd >= 0:
                os.close(self._fd)
                with suppress(OSError):
                    self._reserve.unlink(missing_ok=True)
            self._fd = -1
            self._broken = self._broken or "it is closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, next_seq={self.next_seq})"

    def _write(self, line: bytes) -> None:
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self._undo(error)
            raise LedgerError(f"cannot write to ledger {self.path}: {error}") from error
        try:
            os.fsync(self._fd)
        except OSError as error:
            # After a failed fsync the kernel may have dropped the pages: nothing later is safe.
            self._broken = f"fsync failed: {error}"
            raise LedgerError(f"cannot sync ledger {self.path}: {error}") from error

    def _release_reserve(self, error: LedgerError) -> bool:
        """Whether the disk was full and there is room now, for how the run ended."""
        cause = error.__cause__
        if self._broken or not isinstance(cause, OSError) or cause.errno not in _FULL:
            return False
        try:
            # A piece for each entry: others who write to this disk take whatever is left.
            with open_fd(self._reserve, os.O_WRONLY | _AS_IT_IS) as reserve:
                left = os.fstat(reserve).st_size - RESERVE_PIECE_BYTES
                os.ftruncate(reserve, max(left, 0))
        except OSError:
            return False
        return left >= 0

    def _undo(self, error: OSError) -> None:
        # Half a line must not stand between two whole ones.
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._broken = f"a line is half written: {error}"


def read_ledger(path: Path, *, with_items: bool = True) -> list[Entry]:
    """All entries of a ledger, in order; a torn last line is left out with a warning.

    Args:
        path: The file.
        with_items: False leaves out, unread, the items of evaluations that have a verdict: they
            are most of a ledger, and a `rl_bench.run_view.RunView` does without them. It counts
            those without one by their status: they stay.

    Raises:
        LedgerError: The file cannot be read, or a line before the end is damaged or missing.
    """
    return read_ledger_part(path, with_items=with_items).entries


def read_ledger_part(
    path: Path, *, offset: int = 0, next_seq: int = 0, with_items: bool = True
) -> LedgerPart:
    """The entries from byte ``offset`` on, the first of which must have ``seq == next_seq``.

    ``with_items``: see `read_ledger`.

    Raises:
        LedgerError: The file cannot be read, or a line before the end is damaged or missing.
    """
    try:
        with open_regular(path, follow=True) as file:
            file.seek(offset)
            data = file.read()
    except OSError as error:
        raise _cannot("read", path, error) from error
    entries: list[Entry] = []
    lines = io.BytesIO(data).readlines()
    for index, line in enumerate(lines):
        number = next_seq + index + 1
        is_last = index == len(lines) - 1
        if is_last and _is_torn(line):
            log.warning("%s: left out a torn last line (line %d)", path, number)
            break
        read = line if with_items else _without_items(line)
        entries.append(_parse(read, path=path, number=number))
        offset += len(line)
    return LedgerPart(entries, offset)


def _without_items(line: bytes) -> bytes:
    """The line without the items that have a verdict.

    The two marks are keys, which no string can hold, since its quotes are escaped, and no item's
    detail, since its values are no lists.
    """
    kept, begin = [], 0
    while (opens := line.find(_ITEMS, begin)) >= 0:
        closes = line.find(_AFTER_ITEMS, opens)
        if closes < 0:
            break
        first = opens + len(_ITEMS)
        kept += [line[begin:first], _without_verdict(line[first:closes])]
        begin = closes
    return b"".join((*kept, line[begin:]))


def _without_verdict(items: bytes) -> bytes:
    """Of items that commas part, those without a score.

    An item's first key follows a brace in its detail too, but there no brace was just closed.
    """
    if _NO_SCORE not in items:
        return b""
    bodies = items.removeprefix(_ITEM).removesuffix(b"}").split(_NEXT_ITEM)
    kept = [body for body in bodies if _NO_SCORE in body.partition(_DETAIL)[0]]
    return _ITEM + _NEXT_ITEM.join(kept) + b"}" if kept else b""


def _set_aside(path: Path) -> None:
    """Takes the space that the last entries of a run need when its disk fills up."""
    with suppress(OSError):
        path.unlink(missing_ok=True)  # never opened: a pipe would block, a link lead elsewhere
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


class _Tail(NamedTuple):
    size: int
    next_seq: int
    torn: bytes


def _cannot(act: str, path: Path, error: OSError) -> LedgerError:
    return LedgerError(f"cannot {act} ledger {path}: {error}", cure=_PLACE)


def _open_locked(path: Path, *, wait_s: float) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _AS_IT_IS, 0o644)
    except OSError as error:
        raise _cannot("open", path, error) from error
    try:
        require_regular(path, fd)
        _lock(fd, path, wait_s=wait_s)
        if is_new:
            sync_folder(path.parent)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise _cannot("open", path, error) from error
        raise
    return fd


def _lock(fd: int, path: Path, *, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(_LOCK_POLL_S)
                continue
            raise LedgerError(
                f"ledger {path} has a writer already", cure="Wait for that run's process to end"
            ) from error
        return


def _find_tail(fd: int, path: Path) -> _Tail:
    with os.fdopen(fd, "rb", closefd=False) as file:
        file.seek(0)
        data = file.read()
    end = data.rfind(b"\n") + 1
    start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    if end and _is_torn(data[start:end]):
        end = start
        start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    if not end:
        return _Tail(0, 0, data)
    number = data.count(b"\n", 0, end)
    entry = _parse(data[start:end], path=path, number=number)
    return _Tail(end, entry.seq + 1, data[end:])


def _is_torn(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return True
    try:
        json.loads(line)
    except ValueError:
        return True
    except RecursionError:  # damaged, but whole
        return False
    return False


def _parse(line: bytes, *, path: Path, number: int) -> Entry:
    try:
        entry = ENTRY.validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "JSON"
        raise LedgerError(
            f"ledger {path}, line {number} is damaged: {where}: {problem['msg']}",
            cure=_AWAY,
        ) from error
    if entry.seq != number - 1:
        raise LedgerError(
            f"ledger {path}, line {number} has seq {entry.seq} where {number - 1} belongs",
            cure=_AWAY,
        )
    return entry


def _line(entry: Entry) -> tuple[bytes, Entry]:
    """The entry as a line, and as whoever reads that line has it."""
    try:
        return _json(entry), entry
    except PydanticSerializationError:
        # Output of an agent may hold lone surrogates, which no JSON text can carry.
        clean = ENTRY.validate_python(_printable(entry.model_dump()))
        return _json(clean), clean


def _json(entry: Entry) -> bytes:
    """What `Entry.model_dump_json` says, in a third of its time: that tries the union of events."""
    place = entry.model_dump_json(exclude={"event"})
    return f'{place[:-1]},"event":{entry.event.model_dump_json()}}}\n'.encode()


def _printable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_printable(item) for item in value)
    return value
