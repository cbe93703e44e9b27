"""Making what a task reads from the public files, all of it or nothing."""

import shutil
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from rl_bench.data.catalogue import DataFile
from rl_bench.data.room import disk_errors
from rl_bench.errors import DataError

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)


def make(file: DataFile, downloads: Mapping[str, Path], target: Path) -> None:
    """Makes ``file`` beside its place and then gives it its name.

    Args:
        file: What to make; it has a ``make``.
        downloads: The public files by name.
        target: Its place; replaced if it is there.

    Raises:
        DataError: The public files are not what they should be.
    """
    assert file.make is not None
    aside = target.parent / ".making" / target.name
    shutil.rmtree(aside.parent, ignore_errors=True)
    aside.parent.mkdir(parents=True)
    try:
        with disk_errors(target):
            file.make(downloads, aside)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        aside.replace(target)
    except (ValueError, LookupError, TypeError, AttributeError, *_DAMAGED) as error:
        sources = ", ".join(str(path) for path in downloads.values())
        raise DataError(
            f"{file.path} cannot be made from {sources}: {type(error).__name__}: {error}",
            cure="They are not the public files that are expected: get them again",
        ) from error
    finally:
        shutil.rmtree(aside.parent, ignore_errors=True)
