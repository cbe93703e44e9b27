"""What the agent's `code/` held at each submission, kept where the agent cannot rewrite it.

A revision is a folder `<number>-<digest>` with a manifest of every file and copies of those that
changed since the revision before. Sizes are bounded, and what was left out is listed with its size,
so that a checkpoint saved into `code/` does not fill the disk. Links and special files are not
followed.
"""

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from rl_bench.clone import open_fd, remove_tree
from rl_bench.config import Frozen

MAX_FILE_BYTES = 1_000_000
MAX_REVISION_BYTES = 20_000_000
MAX_FILES = 2000
MANIFEST = "manifest.json"
_SKIPPED_FOLDERS = frozenset({"__pycache__", ".git", ".venv", "node_modules", "wandb"})


class CodeFile(Frozen):
    """A file of a revision; ``sha256`` is empty and ``stored`` False when it was left out."""

    path: str
    num_bytes: int
    sha256: str = ""
    stored: bool = False


_FILES = TypeAdapter(tuple[CodeFile, ...])


class _Read(NamedTuple):
    entry: CodeFile
    data: bytes


class CodeHistory:
    """The revisions of one run's code.

    Args:
        code: The agent's folder.
        history: Where revisions go; a history that is there already is continued.
    """

    def __init__(self, code: Path, *, history: Path) -> None:
        self._code = code
        self._history = history
        self._revision, self._known = _last(history)

    def record(self) -> str:
        """Stores what changed; the id of the revision that the code is at now.

        Raises:
            OSError: The disk refused.
        """
        files = self._read()
        entries = tuple(file.entry for file in files)
        digest = hashlib.sha256(_FILES.dump_json(_bare(entries))).hexdigest()[:12]
        if self._revision.endswith(f"-{digest}"):
            return self._revision
        number = int(self._revision.split("-")[0]) + 1 if self._revision else 0
        revision = f"{number:04d}-{digest}"
        self._write(revision, files)
        self._revision = revision
        self._known = {entry.path: entry.sha256 for entry in entries}
        return revision

    def _write(self, revision: str, files: list[_Read]) -> None:
        draft = self._history / f".{revision}"
        remove_tree(draft)
        draft.mkdir(parents=True)
        entries, total = [], 0
        for entry, data in files:
            changed = bool(entry.sha256) and self._known.get(entry.path) != entry.sha256
            stored = changed and total + len(data) <= MAX_REVISION_BYTES
            if stored:
                total += len(data)
                target = draft / "files" / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            entries.append(entry.model_copy(update={"stored": stored}))
        (draft / MANIFEST).write_bytes(_FILES.dump_json(tuple(entries), indent=1))
        draft.rename(self._history / revision)

    def _read(self) -> list[_Read]:
        found: list[_Read] = []
        for root, folders, names in os.walk(self._code):
            folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
            for name in sorted(names):
                if len(found) >= MAX_FILES:
                    return found
                path = Path(root, name)
                with contextlib.suppress(OSError):
                    found.append(_read_file(path, path.relative_to(self._code).as_posix()))
        return found


def _read_file(path: Path, name: str) -> _Read:
    printable = name.encode("utf-8", "replace").decode("utf-8")
    with open_fd(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            return _Read(CodeFile(path=printable, num_bytes=status.st_size), b"")
        data = os.read(fd, MAX_FILE_BYTES)
    sha256 = hashlib.sha256(data).hexdigest()
    return _Read(CodeFile(path=printable, num_bytes=len(data), sha256=sha256), data)


def _bare(entries: tuple[CodeFile, ...]) -> tuple[CodeFile, ...]:
    return tuple(entry.model_copy(update={"stored": False}) for entry in entries)


def _last(history: Path) -> tuple[str, dict[str, str]]:
    revisions = sorted(path.name for path in history.glob("[0-9]*-*"))
    if not revisions:
        return "", {}
    with contextlib.suppress(OSError, ValidationError):
        entries = _FILES.validate_json((history / revisions[-1] / MANIFEST).read_bytes())
        return revisions[-1], {entry.path: entry.sha256 for entry in entries}
    return revisions[-1], {}
