"""Files that are written whole: who reads one sees what was there before, or all of the new.

The content goes to a hidden file beside the place and takes its name by a rename. What stops in
between leaves the old file; a file that a killed process left beside it is replaced by the next.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


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
        is_shared: Others may write the same place at the same time; the last one stays.
        aside: A folder of the same file system to write in, if others may write in ``path``'s own.

    Raises:
        OSError: The disk refused; ``path`` is as it was.
    """
    own = f"{uuid.uuid4().hex}." if is_shared else ""
    part = (aside or path.parent) / f".{path.name}.{own}part"
    part.unlink(missing_ok=True)  # whatever it is: a pipe would block, a link lead elsewhere
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


def sync_folder(folder: Path) -> None:
    """Makes the names in ``folder`` durable: a new file's own fsync does not."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
