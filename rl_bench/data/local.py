"""Data from a local folder in the same layout: copied, or linked; the folder is only read.

What is looked for, in this order: the file as the task reads it, compressed or packed as the task
also reads it, the public files that it is made from (so that they can be fetched by hand, on
another machine, and brought along), and last a part of it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from rl_bench.data.catalogue import DataFile, Dataset
from rl_bench.data.inventory import (
    check_digest,
    check_kind,
    first_match,
    new_record,
    pinned_digest,
    whole,
)
from rl_bench.data.making import make
from rl_bench.data.records import Record, digest
from rl_bench.errors import ConfigError, DataError


def check_folder(folder: Path, *, data: Path) -> None:
    """Raises `ConfigError` unless data can be taken from ``folder`` without writing into it."""
    if not folder.is_dir():
        raise ConfigError(f"from={folder}: no such folder", cure="Name a folder that holds data")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise ConfigError(f"from={folder} cannot be read", cure="Give yourself access to it")
    source, target = folder.resolve(), data.resolve()
    if source == target or source in target.parents:
        raise ConfigError(
            f"from={folder} holds the data folder {data}, and is only read",
            cure="Choose another data folder with paths.data=; or, to use the data where they "
            f"are, set RL_BENCH_DATA={folder}",
        )


def take(
    file: DataFile, dataset: Dataset, *, folder: Path, data: Path, link: bool
) -> tuple[str, Record] | None:
    """Takes one file into the data folder.

    Args:
        file: Which.
        dataset: Whose.
        folder: Where it may be.
        data: Where it goes.
        link: Make symbolic links instead of copies.

    Returns:
        The path below ``data`` and the record, or ``None`` if ``folder`` has nothing of it, or
        only the part that ``data`` has already.

    Raises:
        DataError: It is there, but cannot be read, or is not the file that the catalogue knows.
    """
    try:
        return _take(file, dataset, folder=folder, data=data, link=link)
    except OSError as error:
        name = error.filename or folder
        raise DataError(f"{name} cannot be taken: {error.strerror or error}") from error


def _take(
    file: DataFile, dataset: Dataset, *, folder: Path, data: Path, link: bool
) -> tuple[str, Record] | None:
    there = whole(file, folder)
    if there is None and (originals := _originals(file, dataset, folder)):
        for download in file.downloads:
            if download.sha256:
                check_digest(originals[download.name], download.sha256)
        target = data / file.path
        if file.make is None:
            _put(originals[file.downloads[0].name], target, link=link)
        else:
            make(file, originals, target)
        return file.path, new_record(file, target, source=str(folder))
    if there is None:
        return _take_part(file, folder=folder, data=data, link=link)
    check_kind(file, there)
    if pinned := pinned_digest(file, there):
        check_digest(there, pinned)
    name = there.relative_to(folder).as_posix()
    _put(there, data / name, link=link)
    return name, new_record(file, data / name, source=str(there))


def _take_part(
    file: DataFile, *, folder: Path, data: Path, link: bool
) -> tuple[str, Record] | None:
    part = first_match(folder, file.parts)
    if part is None:
        return None
    check_kind(file, part)
    name = part.relative_to(folder).as_posix()
    target = data / name
    if target.is_file() and digest(target) == digest(part):
        return None
    _put(part, target, link=link)
    return name, new_record(file, target, source=str(part))


def _originals(file: DataFile, dataset: Dataset, folder: Path) -> Mapping[str, Path]:
    """The public files by name, if all of them lie in ``folder`` or below the data set's name."""
    found = {
        download.name: path
        for download in file.downloads
        for path in (folder / dataset.name / download.name, folder / download.name)
        if path.is_file()
    }
    return found if len(found) == len(file.downloads) else {}


def _put(source: Path, target: Path, *, link: bool) -> None:
    """Copies or links, beside the target first, so that a half copy never has its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.copy")  # hidden from the tasks' own patterns
    _remove(aside)
    if link:
        aside.symlink_to(source.resolve(), target_is_directory=source.is_dir())
    elif source.is_dir():
        shutil.copytree(source, aside)
    else:
        shutil.copyfile(source, aside)
    if target.is_dir() or target.is_symlink():
        _remove(target)
    aside.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
