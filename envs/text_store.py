"""A file of texts under keys, kept between runs and shared by the processes of a machine.

One SQLite file in WAL mode: several processes read and write it at once, a killed one loses at most
what it was writing. It is a cache: whoever loses it pays again, and nothing else. So a file that is
damaged, or holds another table of that name, is set aside with a warning, and a store that cannot
be used answers that it holds nothing. A lock beside the file keeps processes from opening it while
another sets it aside, so each knows by the file's inode whether it has the one that is there now.
"""

import contextlib
import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

LOG = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 10.0
_SCHEMA = "CREATE TABLE IF NOT EXISTS texts (key TEXT PRIMARY KEY, text TEXT NOT NULL)"
_COLUMNS = [("key", "TEXT", 1), ("text", "TEXT", 0)]
"""Name, type, and place in the primary key."""
_KEEP = (
    "INSERT INTO texts VALUES (?, ?) "
    "ON CONFLICT (key) DO UPDATE SET text = excluded.text WHERE text = ?"
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PRIMARY_CODE = 0xFF
"""Of an SQLite error code; the rest tells details."""


class _OtherSchemaError(sqlite3.DatabaseError):
    """A healthy file whose table is not ours."""


def key_of(parts: Mapping[str, object]) -> str:
    """A digest of everything that decides a text: JSON values under names, in any order.

    Raises:
        TypeError: A value is not JSON.
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class TextStore:
    """Texts, usually JSON, under keys. Safe for threads and for several processes.

    Args:
        path: The file; it and its folders are made when first needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._is_closed = False

    def get(self, key: str) -> str | None:
        """The text under ``key``, or ``None``; microseconds once the file is open."""
        rows = self._run("SELECT text FROM texts WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def put(self, key: str, text: str) -> None:
        """Keeps ``text`` under ``key``; a text that is there already is replaced."""
        self._run("INSERT OR REPLACE INTO texts VALUES (?, ?)", (key, text))

    def keep(self, key: str, text: str, *, instead_of: str | None = None) -> str:
        """Keeps ``text`` unless there is one, of this process or another, and returns what stays.

        Args:
            key: Of the text.
            text: What to keep.
            instead_of: A text that is of no use, and is replaced if it is still there.
        """
        self._run(_KEEP, (key, text, instead_of))
        kept = self.get(key)
        return text if kept is None else kept

    def __len__(self) -> int:
        rows = self._run("SELECT COUNT(*) FROM texts", ())
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Closes the file; safe to call twice. A closed store holds nothing."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def _run(self, statement: str, values: tuple[str | None, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            for _ in range(2):
                try:
                    return self._connected().execute(statement, values).fetchall()
                except (OSError, UnicodeError, sqlite3.DatabaseError) as error:
                    is_again = _is_unusable(error) and self._set_aside(error)
                    self._disconnect()
                    if not is_again:
                        LOG.warning("%s: %s; going on without it", self.path, error)
                        return []
            return []

    def _connected(self) -> sqlite3.Connection:
        if self._is_closed:
            raise sqlite3.ProgrammingError("the store is closed")
        if self._connection is not None and self._opened != _inode(self.path):
            self._disconnect()  # another process has set that file aside
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._only_opener():
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        # Each statement is its own transaction; the thread lock keeps threads apart.
        self._connection = connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._opened = _inode(self.path)
        connection.execute("PRAGMA journal_mode = WAL")
        # A loss of power may cost the newest texts, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_SCHEMA)
        rows = connection.execute("SELECT name, type, pk FROM pragma_table_info('texts')")
        if (columns := rows.fetchall()) != _COLUMNS:
            raise _OtherSchemaError(f"its columns are {columns}")
        return connection

    def _only_opener(self) -> FileLock:
        """Keeps the file from being set aside while it is opened, and the other way round."""
        return FileLock(self.path.with_name(f"{self.path.name}.lock"), timeout=BUSY_TIMEOUT_S)

    def _disconnect(self) -> None:
        connection, self._connection, self._opened = self._connection, None, None
        if connection is not None:
            connection.close()

    def _set_aside(self, error: Exception) -> bool:
        """Moves the file away if it is still the one that is open; false if that fails.

        It stays open until then, so that its inode can be no other file's.
        """
        try:
            with self._only_opener():
                if self._opened == _inode(self.path):  # else another process was first
                    self._move(error)
        except OSError as failure:
            LOG.warning("%s cannot be set aside: %s", self.path, failure)
            return False
        return True

    def _move(self, error: Exception) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        LOG.warning("%s cannot be used (%s): set aside as %s", self.path, error, aside.name)
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(aside)
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _is_unusable(error: Exception) -> bool:
    """Whether a new file would be better."""
    code = getattr(error, "sqlite_errorcode", None)
    is_damaged = code is not None and code & _PRIMARY_CODE in _DAMAGED
    return is_damaged or isinstance(error, _OtherSchemaError)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
