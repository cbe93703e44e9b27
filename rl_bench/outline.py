"""The outline of a submitted folder: a small copy that may be looked at before all is copied.

The folder is the agent's, and its files may be links to anything that the sweep's user can read: a
check that opened them would tell the agent, in what it refuses, what they hold. So the checks see a
copy: small files whole, of weights the header with a hole behind it that makes them as long as they
are. Each file is opened once, and lies within the folders that are allowed or is refused in one
way, there or not.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_bench.checkpoint_files import MAX_JSON_BYTES, TEMPLATES, check_num_files, is_content
from rl_bench.clone import OutsideError, open_fd, open_inside
from rl_bench.safetensors_header import MAX_HEADER_BYTES, PREFIX_BYTES, header_length

_BLOCK = 1024 * 1024
_NAMES_TELL = ("adapter_*", "pytorch_model*.bin")
"""Files that are never read; that they are there tells what is wrong."""


def write_outline(folder: Path, outline: Path, *, roots: Sequence[Path]) -> None:
    """Makes ``outline``, a new folder, look like the checkpoint in ``folder`` to who reads headers.

    Raises:
        OutsideError: A file is a link that does not lead to a file in ``roots``, resolved folders.
        SubmissionError: ``too_many_files``.
        OSError: A file cannot be read, or the disk refused.
    """
    outline.mkdir()
    names = sorted(_names(folder))
    check_num_files(len(names))
    for name in names:
        source, target = folder / name, outline / name
        if not _is_file_or_link(source):
            continue
        target.parent.mkdir(exist_ok=True)
        try:
            _write_file(source, target, roots=roots)
        except OSError as error:
            if not _leads_nowhere(source, error):
                raise
    for pattern in _NAMES_TELL:
        for path in folder.glob(pattern):
            (outline / path.name).touch()


def _names(folder: Path) -> Iterator[str]:
    """Of everything that counts by its name; whether it is a file is seen when it is opened."""
    yield from (entry.name for entry in os.scandir(folder) if is_content(Path(entry.name)))
    templates = folder / TEMPLATES
    if templates.is_dir():
        yield from (f"{TEMPLATES}/{path.name}" for path in templates.glob("*.jinja"))


def _is_file_or_link(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _write_file(source: Path, target: Path, *, roots: Sequence[Path]) -> None:
    with (
        open_inside(source, roots=roots) as read_fd,
        open_fd(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as write_fd,
    ):
        size = os.fstat(read_fd).st_size
        left = size if size <= MAX_JSON_BYTES else 0
        if source.suffix == ".safetensors":
            length = header_length(os.pread(read_fd, PREFIX_BYTES, 0))
            left = PREFIX_BYTES + (length if length <= MAX_HEADER_BYTES else 0)
        offset = 0
        while left > offset and (block := os.pread(read_fd, min(left - offset, _BLOCK), offset)):
            offset += os.write(write_fd, block)
        os.ftruncate(write_fd, size)


def _leads_nowhere(path: Path, error: OSError) -> bool:
    """A link in a circle, or to what is inside and no file, is not there for a checkpoint.

    Any other broken link is refused like one that leads outside: what lies there is not told.

    Raises:
        OutsideError: It is such a link.
    """
    if isinstance(error, OutsideError) or not path.is_symlink():
        return False
    if error.errno in (errno.ELOOP, errno.EINVAL):
        return True
    raise OutsideError(errno.EXDEV, "it leads to no file inside", str(path)) from error
