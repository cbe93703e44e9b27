"""Which runs of a sweep need which snapshot, so that none is removed that another run still needs.

Snapshots are shared by content, and several processes store and remove them at once. A run's
reference is an empty file `snapshot_refs/<content_hash>/<run_id>` beside `snapshots/`. Storing and
removing happen under one lock of the sweep that is held for a few renames only; copying, hashing
and deleting go on outside it. The lock dies with its process.
"""

import contextlib
import fcntl
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

from rl_bench.clone import open_fd, remove_tree

REFERENCES = "snapshot_refs"
_LOCK = ".lock"


class SnapshotReferences:
    """One run's references to the snapshots of its sweep.

    Args:
        snapshots: The sweep's folder of snapshots.
        run_id: The run.
    """

    def __init__(self, snapshots: Path, *, run_id: str) -> None:
        self._snapshots = snapshots
        self._folder = snapshots.with_name(REFERENCES)
        self._run_id = run_id

    def publish(self, draft: Path, digest: str) -> Path:
        """Makes ``draft`` the snapshot ``digest``, or keeps one that is there, and refers to it.

        Returns:
            The snapshot, which stays until `release`.

        Raises:
            OSError: It could not be stored.
        """
        target = self._snapshots / digest
        with self._locked():
            marks = self._folder / digest
            marks.mkdir(exist_ok=True)
            # First, so that a process that dies in between leaves too many references, not too few.
            (marks / self._run_id).touch()
            if not target.is_dir():
                draft.rename(target)
        return target

    def referred(self) -> frozenset[str]:
        """The snapshots that this run refers to."""
        with contextlib.suppress(FileNotFoundError):
            marks = self._folder.iterdir()
            return frozenset(mark.name for mark in marks if (mark / self._run_id).exists())
        return frozenset()

    def release(self, digest: str) -> int | None:
        """Gives a snapshot up; the last run that does removes it. Safe to repeat.

        Returns:
            The bytes that this freed; None when another run needs it or it was gone.

        Raises:
            OSError: The disk refused.
        """
        snapshot, marks = self._snapshots / digest, self._folder / digest
        trash = None
        with self._locked():
            others = {path.name for path in _listed(marks)} - {self._run_id}
            if not others and snapshot.is_dir():
                # By a draft's name, so that what is left of it by a kill is cleared away as one.
                trash = self._snapshots / draft_name()
                snapshot.rename(trash)
            (marks / self._run_id).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                marks.rmdir()
        if trash is None:
            return None
        num_bytes = sum(path.stat().st_size for path in trash.rglob("*") if path.is_file())
        remove_tree(trash)
        return num_bytes

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with open_fd(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def draft_prefix() -> str:
    """How the names of this host's unfinished folders among the snapshots begin."""
    return f".draft-{socket.gethostname()}-"


def draft_name() -> str:
    """A new name of this process for a folder that is no snapshot yet, or none any more."""
    return f"{draft_prefix()}{os.getpid()}-{uuid.uuid4().hex}"


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
