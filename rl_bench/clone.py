"""Copies of files that later writes to the original cannot reach.

A hard link shares its bytes with the original, so an in-place write would change both; a reflink
shares blocks only until one side is written, costs nothing and is used where the file system has
it (btrfs, XFS). Everywhere else bytes are copied.
"""

import contextlib
import errno
import fcntl
import io
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

FICLONE = 0x40049409
"""The ioctl that makes a reflink (linux/fs.h)."""
_COPY_BYTES = 8 * 1024 * 1024


class OutsideError(OSError):
    """A file to copy really lies outside the folders that are allowed."""


def clone_file(source: Path, target: Path, *, roots: Sequence[Path] | None = None) -> bool:
    """Makes ``target`` a read-only copy of ``source``, following links; True for a reflink.

    Args:
        source: The file to copy.
        target: Must not exist.
        roots: As for `open_inside`.

    Raises:
        OutsideError: The file lies outside ``roots``.
        OSError: It is no regular file, or reading or writing failed.
    """
    with (
        open_inside(source, roots=roots) as read_fd,
        open_fd(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as write_fd,
    ):
        cloned = _reflink(read_fd, write_fd)
        if not cloned:
            _copy(read_fd, write_fd)
        os.fchmod(write_fd, 0o444)
    return cloned


def can_reflink(folder: Path, *, source: Path) -> bool:
    """Whether files of ``source``'s file system can be reflinked into ``folder``."""
    probe = folder / ".reflink-probe"
    origin = next((path for path in sorted(source.iterdir()) if path.is_file()), None)
    if origin is None:
        return False
    try:
        with (
            open_fd(origin, os.O_RDONLY) as read_fd,
            open_fd(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as write_fd,
        ):
            return _reflink(read_fd, write_fd)
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def make_read_only(folder: Path) -> None:
    """Takes the write permission from everything in ``folder``; links are left alone."""
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(root, name)
            if not path.is_symlink():
                path.chmod(0o444)
        for name in folders:
            path = Path(root, name)
            if not path.is_symlink():
                path.chmod(0o555)
    folder.chmod(0o555)


def remove_tree(folder: Path) -> None:
    """Removes ``folder`` even where something in it may not be written or listed.

    A missing one is no error. Nothing may work in it meanwhile.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    _open_up(folder)
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        # Deeper than Python's stack, or than a path may be long: these go down step by step.
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            words = [*command, "--", str(folder)]
            subprocess.run(words, stderr=subprocess.DEVNULL, check=False)
        if folder.exists():
            raise


def _open_up(folder: Path) -> None:
    """Opens the folders of a tree to us, each before it is listed; no link is followed."""
    with contextlib.suppress(OSError):
        folder.chmod(0o755)
    with contextlib.suppress(RecursionError):
        for root, names, _ in os.walk(folder):
            for path in (Path(root, name) for name in names):
                with contextlib.suppress(OSError):
                    if not path.is_symlink():
                        path.chmod(0o755)


@contextlib.contextmanager
def open_fd(path: Path, flags: int) -> Iterator[int]:
    """A raw descriptor, closed at the end."""
    fd = os.open(path, flags, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_inside(path: Path, *, roots: Sequence[Path] | None = None) -> Iterator[int]:
    """A descriptor to read a regular file, links followed; closed at the end.

    Args:
        path: The file.
        roots: Resolved folders; the file that is really opened must lie in one of them. Checked on
            a handle that opens nothing yet, so that swapping a link gains nothing and no device
            outside is touched.

    Raises:
        OutsideError: The file lies outside ``roots``.
        OSError: It is no regular file, or cannot be read.
    """
    with open_fd(path, os.O_PATH) as handle:
        itself = Path(f"/proc/self/fd/{handle}")
        if roots is not None:
            real = itself.readlink()
            if not any(real.is_relative_to(root) for root in roots):
                raise OutsideError(errno.EXDEV, f"it lies outside, at {real}", str(path))
        require_regular(path, handle)
        with open_fd(itself, os.O_RDONLY) as fd:
            yield fd


@contextlib.contextmanager
def open_regular(path: Path, *, follow: bool = False) -> Iterator[io.BufferedReader]:
    """Opens a regular file to read; a named pipe or a device, which could block, is an error.

    Args:
        path: The file.
        follow: It may be a link: one of the user's own files, whose place no agent chooses.

    Raises:
        OSError: It is no regular file, or a link that is not followed, or cannot be read.
    """
    # Not blocking: opening a named pipe would otherwise wait for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    with open_fd(path, flags) as fd:
        require_regular(path, fd)
        with os.fdopen(fd, "rb", closefd=False) as file:
            yield file


def read_regular(path: Path) -> bytes:
    """The whole of a regular file, links followed.

    Raises:
        OSError: It is no regular file, or cannot be read.
    """
    with open_regular(path, follow=True) as file:
        return file.read()


def require_regular(path: Path, fd: int) -> None:
    """Refuses what is open and no regular file; ``path`` is its name in the error.

    Raises:
        OSError: It is none.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _reflink(read_fd: int, write_fd: int) -> bool:
    try:
        fcntl.ioctl(write_fd, FICLONE, read_fd)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    return True


def _copy(read_fd: int, write_fd: int) -> None:
    with os.fdopen(os.dup(read_fd), "rb") as reader, os.fdopen(os.dup(write_fd), "wb") as writer:
        shutil.copyfileobj(reader, writer, _COPY_BYTES)
