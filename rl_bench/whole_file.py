"""Files that are written whole: who reads one sees what was there before, or all of the new.

The content goes to a hidden file beside the place and takes its name by a rename. What stops in
between leaves the old file; a file that a killed process left beside it is replaced by the next.
Writers of one place that may be several know by a lock whether such a file is still being written.
"""

import contextlib
import fcntl
import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

MAX_WRITERS = 16
"""Of one place at a time, as far as what they left is looked for."""
MAX_STEM_BYTES = 240
"""Of a name's 255 bytes; the rest is for what tells the hidden file from the place."""


def write_whole(
    path: Path,
    content: str | bytes,
    *,
    is_durable: bool = False,
    is_shared: bool = False,
    aside: Path | None = None,
) -> None:
    """Writes ``content``, text as UTF-8, to ``path``; the arguments are those of `replacing`.

    Raises:
        OSError: The disk refused; ``path`` is as it was.
        UnicodeEncodeError: The text holds lone surrogates; ``path`` is as it was.
    """
    with replacing(path, is_durable=is_durable, is_shared=is_shared, aside=aside) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(
    path: Path, *, is_durable: bool = False, is_shared: bool = False, aside: Path | None = None
) -> Iterator[Path]:
    """Gives the path of a file to write, which becomes ``path`` unless the block raises.

    Args:
        path: The place; its folder is there.
        is_durable: Nothing is lost with the machine's power: file and folder are synced.
        is_shared: Others may write the same place at the same time; the last one stays. The file
            is there already, and the block writes into it.
        aside: A folder of the same file system to write in, if others may write in ``path``'s own.

    Raises:
        OSError: The disk refused; ``path`` is as it was.
    """
    with contextlib.ExitStack() as stack:
        stem = (aside or path.parent) / f".{_stem(path.name)}"
        if is_shared:
            part = stack.enter_context(_own_part(stem))
        else:
            part = Path(f"{stem}.part")
            # Whatever it is: a pipe would block, a link lead elsewhere.
            part.unlink(missing_ok=True)
        try:
            yield part
            if is_durable:
                _sync(part, os.O_RDONLY)
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    if is_durable:
        sync_folder(path.parent)


def _stem(name: str) -> str:
    """The name, or where it leaves no room for more, a digest of it."""
    data = os.fsencode(name)
    return name if len(data) <= MAX_STEM_BYTES else hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _own_part(stem: Path) -> Iterator[Path]:
    """A new file that no other writer takes, the first of ``stem.part``, ``stem.1.part``, … ."""
    parts = (Path(f"{stem}.{n}.part" if n else f"{stem}.part") for n in itertools.count())
    for part in parts:
        while (fd := _locked(part)) is not None:
            try:
                if _is_at(part, fd):
                    _tidy(parts)
                    yield part
                    return
            finally:
                os.close(fd)


def _tidy(parts: Iterator[Path]) -> None:
    """Removes what several that were killed left; one that ended between them left a gap."""
    for part in itertools.islice(parts, MAX_WRITERS):
        _remove_stale(part)


def _locked(part: Path) -> int | None:
    """A descriptor of a new, locked file; None where another writer has one there."""
    _remove_stale(part)
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    if _lock(fd):
        return fd
    os.close(fd)
    return None


def _remove_stale(part: Path) -> None:
    """Removes what nobody writes: a killed process's file, or no file at all."""
    try:
        fd = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError:  # a link, or not ours to read: who writes it would find out
        part.unlink(missing_ok=True)
        return
    try:
        # Held while it is removed, so that nobody has made a new one of that name meanwhile.
        if _lock(fd) and _is_at(part, fd):
            part.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Whether nobody else holds the file; where a file system has no locks, nobody does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _is_at(part: Path, fd: int) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(part.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Makes the names in ``folder`` durable: a new file's own fsync does not."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
