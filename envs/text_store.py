"""A file of texts under keys, kept between runs and shared by the processes of a machine.

One SQLite file in WAL mode: several processes read and write it at once, a killed one loses at most
what it was writing. It is a cache: whoever loses it pays again, and nothing else. So a damaged file
is set aside with a warning, and a store that cannot be used answers that it holds nothing.
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

LOG = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 10.0
_SCHEMA = "CREATE TABLE IF NOT EXISTS texts (key TEXT PRIMARY KEY, text TEXT NOT NULL)"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


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
        self._is_closed = False

    def get(self, key: str) -> str | None:
        """The text under ``key``, or ``None``; microseconds once the file is open."""
        rows = self._run("SELECT text FROM texts WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def put(self, key: str, text: str) -> None:
        """Keeps ``text`` under ``key``; a text that is there already is replaced."""
        self._run("INSERT OR REPLACE INTO texts VALUES (?, ?)", (key, text))

    def __len__(self) -> int:
        rows = self._run("SELECT COUNT(*) FROM texts", ())
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Closes the file; safe to call twice. A closed store holds nothing."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def _run(self, statement: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            for _ in range(2):
                try:
                    return self._connected().execute(statement, values).fetchall()
                except sqlite3.DatabaseError as error:
                    self._disconnect()
                    if getattr(error, "sqlite_errorcode", None) not in _DAMAGED:
                        LOG.warning("%s: %s; going on without it", self.path, error)
                        return []
                    self._set_aside(error)
                except (OSError, UnicodeError) as error:
                    LOG.warning("%s: %s; going on without it", self.path, error)
                    return []
            return []

    def _connected(self) -> sqlite3.Connection:
        if self._is_closed:
            raise sqlite3.ProgrammingError("the store is closed")
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Each statement is its own transaction; the lock above keeps threads apart.
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            # A loss of power may cost the newest texts, never the file.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_SCHEMA)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        LOG.warning("%s is damaged (%s): set aside as %s", self.path, error, aside.name)
        with contextlib.suppress(FileNotFoundError):  # another process was first
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
