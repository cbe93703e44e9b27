"""Preparing data sets: what is missing or damaged is had from a folder or from its public home.

One preparation works on a data folder at a time. Every file is recorded as soon as it is there, so
that whatever ends a preparation, the next one goes on from there.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from rl_bench.data import local
from rl_bench.data.catalogue import DataFile, Dataset
from rl_bench.data.fetch import Report
from rl_bench.data.inventory import Found, State, look
from rl_bench.data.records import Record, read_records, write_records
from rl_bench.data.remote import DOWNLOADS, Remote, check_room
from rl_bench.errors import ConfigError, DataError

LOCK_FILE = ".prepare.lock"
Say = Callable[[str], None]
ShowProgress = Callable[[], AbstractContextManager[Callable[[str], Report]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where files come from.

    Attributes:
        folder: A local folder; ``None``: the public homes.
        link: Link to the folder's files instead of copying them.
        mirror: Asked instead of the public homes; see `rl_bench.data.remote.places`.
    """

    folder: Path | None = None
    link: bool = False
    mirror: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A file after a preparation; ``failure`` says why it could not be had."""

    dataset: Dataset
    found: Found
    failure: str = ""
    cure: str = ""


def survey(datasets: Sequence[Dataset], *, data: Path, full: bool = False) -> list[Result]:
    """What is in the data folder; changes nothing.

    Raises:
        DataError: The records are damaged.
    """
    records = read_records(data)
    return [
        Result(dataset=dataset, found=look(file, data=data, records=records, full=full))
        for dataset in datasets
        for file in dataset.files
    ]


def prepare(
    datasets: Sequence[Dataset],
    *,
    data: Path,
    source: Source,
    say: Say,
    show_progress: ShowProgress,
) -> list[Result]:
    """Gets what is missing, damaged or only there in part.

    Args:
        datasets: Which.
        data: The data folder; made when it is absent.
        source: Where from.
        say: Told what is done, a line at a time.
        show_progress: Shows downloads while its context lasts.

    Returns:
        Every file as it is now; one that could not be had says why.

    Raises:
        ConfigError: The data folder cannot be made, or not be written.
        DataError: The disk is too small, or the records are damaged.
        OSError: The data folder cannot be written any more.
    """
    if all(result.found.state is State.OK for result in survey(datasets, data=data)):
        return _recorded(datasets, data=data)
    _make_folder(data)
    with _alone(data, say=say), ExitStack() as stack:
        wanted = _wanted(datasets, data=data)
        get = _getter(wanted, data=data, source=source, stack=stack, show=show_progress)
        failures = dict(_get_all(wanted, get, data=data, say=say))
        results = _recorded(datasets, data=data)
        _tidy(results, data=data)
    return [
        Result(
            dataset=result.dataset,
            found=result.found,
            failure=failure.message if failure else "",
            cure=failure.cure if failure else "",
        )
        for result in results
        for failure in [failures.get(result.found.file.path)]
    ]


def check_data_folder(data: Path) -> None:
    """Raises `ConfigError` unless ``data`` can be read, or is not there yet."""
    try:
        is_folder = stat.S_ISDIR(data.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_folder(data, f"cannot be made: {error.strerror}") from error
    if not is_folder:
        raise _no_folder(data, "cannot be made: it is a file")
    if not os.access(data, os.R_OK | os.X_OK):
        raise _no_folder(data, "cannot be read")


def _make_folder(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(data, f"cannot be made: {error.strerror}") from error
    if not os.access(data, os.W_OK | os.X_OK):
        raise _no_folder(data, "cannot be written")


def _no_folder(data: Path, reason: str) -> ConfigError:
    cure = "Name another with paths.data= or RL_BENCH_DATA"
    return ConfigError(f"the data folder {data} {reason}", cure=cure)


Get = Callable[[DataFile, Dataset], tuple[str, Record] | None]
Wanted = list[tuple[DataFile, Dataset]]


def _wanted(datasets: Sequence[Dataset], *, data: Path) -> Wanted:
    return [
        (result.found.file, result.dataset)
        for result in survey(datasets, data=data)
        if result.found.state is not State.OK
    ]


def _getter(
    wanted: Wanted, *, data: Path, source: Source, stack: ExitStack, show: ShowProgress
) -> Get:
    """How a file is had from ``source``."""
    if source.folder is not None:
        folder, link = source.folder, source.link
        return lambda file, dataset: local.take(file, dataset, folder=folder, data=data, link=link)
    files = [file for file, _ in wanted]
    check_room(files, data=data)
    downloads = [download for file in files for download in file.downloads]
    remote = Remote(downloads, mirror=source.mirror)
    stack.callback(remote.close)
    progress = stack.enter_context(show())
    return lambda file, _dataset: remote.get(file, data=data, progress=progress)


def _get_all(wanted: Wanted, get: Get, *, data: Path, say: Say) -> Iterator[tuple[str, DataError]]:
    """Gets file by file; yields the failures."""
    for file, dataset in wanted:
        try:
            had = get(file, dataset)
        except DataError as error:
            yield file.path, error
            continue
        if had is not None:
            name, record = had
            write_records(data, read_records(data) | {name: record})
            say(f"  got {name}")


def _recorded(datasets: Sequence[Dataset], *, data: Path) -> list[Result]:
    """Every file as it is, and its record written if it had none; a read-only folder stays so."""
    results = survey(datasets, data=data)
    records = read_records(data)
    seen = {
        result.found.path.relative_to(data).as_posix(): result.found.record
        for result in results
        if result.found.path is not None and result.found.record is not None
    }
    if any(records.get(name) != record for name, record in seen.items()):
        try:
            write_records(data, records | seen)
        except OSError:
            return results  # nothing depends on it: the files are read again the next time
    return results


def _tidy(results: Sequence[Result], *, data: Path) -> None:
    """Removes downloads once every file that is made from them is there."""
    wanted = {
        (download.name, result.found.state is State.OK)
        for result in results
        if result.found.file.make is not None
        for download in result.found.file.downloads
    }
    for name in {name for name, _ in wanted} - {name for name, is_made in wanted if not is_made}:
        (data / DOWNLOADS / name).unlink(missing_ok=True)
    folder = data / DOWNLOADS
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def _alone(data: Path, *, say: Say) -> Iterator[None]:
    """Waits until no other preparation works on the folder."""
    lock = FileLock(data / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another preparation works on {data}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
