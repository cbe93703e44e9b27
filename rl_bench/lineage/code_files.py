"""Reads the agent's `code/` without being led out of it or flooded by it.

Every folder on the way to a file is opened without following links, so that swapping one for a link
meanwhile gains nothing. A link is kept as a link, by its text. What is not kept (too large, no
regular file, beyond a limit) is listed with its size. Source files come first where a limit bites,
so that scripts are not crowded out by what they write. Paths are bytes: any name survives.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from rl_bench.clone import open_fd
from rl_bench.config import Frozen

MAX_FILE_BYTES = 1_000_000
MAX_REVISION_BYTES = 20_000_000
MAX_FILES = 2000
MAX_ENTRIES = 20_000
"""Names looked at, files and folders together."""
MAX_DEPTH = 32
MAX_PATH_BYTES = 1000
SHOWN_PATH_CHARS = 300

PLAIN, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120000
"""Git's modes of what is kept."""

_SKIPPED = frozenset({b"__pycache__", b".venv", b"node_modules", b"wandb", b".ipynb_checkpoints"})
_SOURCES = frozenset(
    {b".py", b".sh", b".yaml", b".yml", b".toml", b".cfg", b".ini", b".md", b".json", b".ipynb"}
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Reason = Literal[
    "too_large",
    "too_many",
    "too_deep",
    "revision_full",
    "history_full",
    "special",
    "unreadable",
    "skipped",
    "reserved_name",
]


class LeftOut(Frozen):
    """Something in `code/` that its history does not hold; ``path`` as `shown`."""

    path: str
    reason: Reason
    num_bytes: int = 0


class Seen(NamedTuple):
    """A file or link as a listing found it.

    Attributes:
        stamp: Changes whenever the content may have.
    """

    path: bytes
    is_link: bool
    num_bytes: int
    stamp: tuple[int, ...]


class Content(NamedTuple):
    """What is kept of a file: git's mode and its bytes, or a link's text."""

    mode: int
    data: bytes


@dataclass(slots=True)
class Listing:
    """What lies in a folder, unread."""

    seen: list[Seen] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    num_entries: int = 0

    def signature(self) -> int:
        """Differs between two listings when something was changed between them."""
        files = frozenset(self.seen)
        return hash((files, frozenset((entry.path, entry.reason) for entry in self.left_out)))

    def leave_out(self, path: bytes, reason: Reason, num_bytes: int = 0) -> None:
        self.left_out.append(LeftOut(path=shown(path), reason=reason, num_bytes=num_bytes))


class CodeFiles(NamedTuple):
    """The files to keep, by path, sources first, and what is left out."""

    files: dict[bytes, Content]
    left_out: list[LeftOut]


def shown(path: bytes) -> str:
    """A path for people and records: printable, and cut at a limit."""
    text = path.decode("utf-8", "backslashreplace")
    clean = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return clean if len(clean) <= SHOWN_PATH_CHARS else clean[: SHOWN_PATH_CHARS - 1] + "…"


def list_code(folder: Path) -> Listing:
    """Lists ``folder``; one that is missing, or is a link, is empty."""
    listing = Listing()
    with suppress(OSError), open_fd(folder, _DIRECTORY) as fd:
        _list_folder(fd, b"", listing, depth=0)
    listing.seen.sort(key=_rank)
    return listing


def read_code(folder: Path) -> CodeFiles:
    """Reads ``folder`` within the limits."""
    listing = list_code(folder)
    files: dict[bytes, Content] = {}
    total = 0
    with suppress(OSError), open_fd(folder, _DIRECTORY) as fd:
        for entry in listing.seen:
            if len(files) >= MAX_FILES:
                listing.leave_out(entry.path, "too_many", entry.num_bytes)
                continue
            try:
                content = _read(fd, entry)
            except OSError:
                listing.leave_out(entry.path, "unreadable", entry.num_bytes)
                continue
            if content is None:
                listing.leave_out(entry.path, "too_large", entry.num_bytes)
            elif total + len(content.data) > MAX_REVISION_BYTES:
                listing.leave_out(entry.path, "revision_full", entry.num_bytes)
            else:
                total += len(content.data)
                files[entry.path] = content
    return CodeFiles(files, sorted(listing.left_out, key=lambda entry: (entry.path, entry.reason)))


def _rank(entry: Seen) -> tuple[bool, int, bytes]:
    suffix = os.path.splitext(entry.path)[1]  # noqa: PTH122  the path is bytes
    return suffix not in _SOURCES, entry.path.count(b"/"), entry.path


def _list_folder(fd: int, prefix: bytes, listing: Listing, *, depth: int) -> None:
    folders: list[bytes] = []
    for name, status in _entries(fd, listing):
        path = prefix + name
        if name.lower() == b".git":
            listing.leave_out(path, "reserved_name")
        elif len(path) > MAX_PATH_BYTES:
            listing.leave_out(path, "too_deep")
        elif not stat.S_ISDIR(status.st_mode):
            _list_file(path, status, listing)
        elif name in _SKIPPED:
            if name != b"__pycache__":
                listing.leave_out(path, "skipped")
        elif depth >= MAX_DEPTH:
            listing.leave_out(path, "too_deep")
        else:
            folders.append(name)
    for name in sorted(folders):
        try:
            below = os.open(name, _DIRECTORY, dir_fd=fd)
        except OSError:
            listing.leave_out(prefix + name, "unreadable")
            continue
        try:
            _list_folder(below, prefix + name + b"/", listing, depth=depth + 1)
        finally:
            os.close(below)


def _entries(fd: int, listing: Listing) -> Iterator[tuple[bytes, os.stat_result]]:
    with suppress(OSError), os.scandir(fd) as entries:
        for entry in entries:
            listing.num_entries += 1
            if listing.num_entries > MAX_ENTRIES:
                if listing.num_entries == MAX_ENTRIES + 1:
                    listing.leave_out(b"...", "too_many")
                return
            with suppress(OSError):
                yield os.fsencode(entry.name), entry.stat(follow_symlinks=False)


def _list_file(path: bytes, status: os.stat_result, listing: Listing) -> None:
    is_link = stat.S_ISLNK(status.st_mode)
    if not is_link and not stat.S_ISREG(status.st_mode):
        listing.leave_out(path, "special")
    elif is_link and path.rpartition(b"/")[2].lower().startswith(b".git"):
        # Git takes no link by the name of one of its own files.
        listing.leave_out(path, "reserved_name")
    elif status.st_size > MAX_FILE_BYTES:
        listing.leave_out(path, "too_large", status.st_size)
    else:
        stamp = (status.st_mode, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        listing.seen.append(Seen(path, is_link, status.st_size, stamp))


def _read(root: int, entry: Seen) -> Content | None:
    """The content; None when it has grown beyond the limit."""
    *folders, name = entry.path.split(b"/")
    at = os.dup(root)
    try:
        for part in folders:
            below = os.open(part, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        if entry.is_link:
            return Content(LINK, os.readlink(name, dir_fd=at))
        fd = os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)
    try:
        return _read_file(fd)
    finally:
        os.close(fd)


def _read_file(fd: int) -> Content | None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        return None
    return Content(EXECUTABLE if status.st_mode & stat.S_IXUSR else PLAIN, data)
