"""What of a data set is in a folder, and whether it is still what it was.

Looking changes nothing. A file that was recorded and has the same size and time is taken as it was;
any other is read and compared with its record, or else with its pinned digest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rl_bench.data.catalogue import DataFile
from rl_bench.data.records import (
    Record,
    Signature,
    Trust,
    content_digest,
    digest,
    signature,
)
from rl_bench.errors import DataError

FOUND = "found"
"""The source of a file that was there before it was looked at."""


class State(StrEnum):
    """How a file of a data set is."""

    OK = "ok"
    PART = "part"
    """A file that the task reads, but that holds only a part."""
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of a `DataFile`.

    Attributes:
        path: Where it is; ``None`` if it is missing.
        detail: What is wrong with it.
        record: The record that it should have from now on.
    """

    file: DataFile
    state: State
    path: Path | None = None
    detail: str = ""
    record: Record | None = None


def look(file: DataFile, *, data: Path, records: Mapping[str, Record], full: bool = False) -> Found:
    """Looks for one file.

    Args:
        file: Which.
        data: The data folder.
        records: Its records.
        full: Whether to read it even when its size and time are as recorded.
    """
    path = whole(file, data)
    if path is None:
        part = first_match(data, file.parts)
        if part is None:
            return Found(file=file, state=State.MISSING)
        return Found(file=file, state=State.PART, path=part, detail=_how_much(file, part))
    known = records.get(path.relative_to(data).as_posix())
    try:
        check_kind(file, path)
        seen = signature(path)
        if known is not None and known.signature == seen and not full:
            return Found(file=file, state=State.OK, path=path, record=known)
        return _compared(file, path, known=known, seen=seen)
    except DataError as error:
        return Found(file=file, state=State.DAMAGED, path=path, detail=error.message)
    except OSError as error:
        detail = f"it cannot be read: {error.strerror}"
        return Found(file=file, state=State.DAMAGED, path=path, detail=detail)


def _how_much(file: DataFile, part: Path) -> str:
    """What a part holds of the whole, as far as that can be told."""
    if not file.num_rows or not part.is_file():
        return f"only {part.name}"
    try:
        num_rows = sum(1 for line in part.read_bytes().splitlines() if line.strip())
    except OSError as error:
        return f"only {part.name}, which cannot be read: {error.strerror}"
    return f"only {num_rows:,} of {file.num_rows:,} are in {part.name}"


def whole(file: DataFile, folder: Path) -> Path | None:
    """The file, or a variant that holds the same, in ``folder``."""
    return first_match(folder, (file.path, *file.variants))


def first_match(folder: Path, patterns: Iterable[str]) -> Path | None:
    """The first file that a pattern matches, the patterns in their order."""
    return next((path for each in patterns for path in sorted(folder.glob(each))), None)


def check_kind(file: DataFile, path: Path) -> None:
    """Raises `DataError` for a folder in the place of a file, or the other way round."""
    is_folder = file.is_folder and path.name == Path(file.path).name
    if path.is_dir() != is_folder:
        kinds = ("a file", "a folder") if is_folder else ("a folder", "a file")
        raise DataError(
            f"{path} is {kinds[0]}, {kinds[1]} is expected", cure="Move it out of the way"
        )


def check_digest(path: Path, pinned: str) -> None:
    """Raises `DataError` unless ``path`` holds what a pinned digest is of."""
    if (found := content_digest(path)) != pinned:
        raise DataError(
            f"{path} is another file than expected: SHA-256 {found}, {pinned} is pinned",
            cure="Replace it: get it again from its source",
        )


def new_record(file: DataFile, path: Path, *, source: str) -> Record:
    """The record of a file that has just been had.

    Raises:
        DataError: It is not the one that the catalogue knows.
    """
    pinned = pinned_digest(file, path)
    if pinned:
        check_digest(path, pinned)
    return Record(
        sha256=digest(path),
        trust=Trust.PINNED if pinned else Trust.FIRST_USE,
        source=source,
        signature=signature(path),
    )


def pinned_digest(file: DataFile, path: Path) -> str:
    """The digest of what ``path`` must hold; empty for another packing of it than is pinned."""
    is_same = path.name.removesuffix(".xz") == Path(file.path).name
    return file.sha256 if is_same else ""


def _compared(file: DataFile, path: Path, *, known: Record | None, seen: Signature) -> Found:
    if known is None:
        record = new_record(file, path, source=FOUND)
        return Found(file=file, state=State.OK, path=path, record=record)
    found = digest(path)
    if found != known.sha256:
        detail = f"its SHA-256 is {found}, {known.sha256} was recorded"
        return Found(file=file, state=State.DAMAGED, path=path, detail=detail)
    record = known.model_copy(update={"signature": seen})
    return Found(file=file, state=State.OK, path=path, record=record)
