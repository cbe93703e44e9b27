"""Room on the disk: asked for before a download, told clearly when it runs out on the way."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_bench.errors import DataError

MIB = 1024**2
SPARE_BYTES = 64 * MIB
"""Room that a download leaves."""


def require_room(folder: Path, num_bytes: int) -> None:
    """Raises `DataError` unless ``folder`` has room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if num_bytes + SPARE_BYTES > free:
        raise DataError(
            f"{folder}: {free / MIB:.0f} MiB free, {(num_bytes + SPARE_BYTES) / MIB:.0f} wanted",
            cure="Free some space, or choose another folder with paths.data=",
        )


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Raises `DataError` where the disk, or a quota, is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
        raise DataError(
            f"{target}: {error.strerror}",
            cure="What has come is kept: free some space, and the same command goes on",
        ) from error
