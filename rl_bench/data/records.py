"""Digests of data files, and the record of them beside the data: ``<data>/checksums.json``.

A record is written when a file has been fetched, made, copied or first seen, and later tells
whether the file is still the same: at once by size and time, or by its digest. ``trust`` says what
the digest rests on: a pinned one, or the first look at the file.
"""

import hashlib
import json
import lzma
import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from rl_bench.config import Frozen
from rl_bench.errors import DataError
from rl_bench.whole_file import write_whole

RECORDS_FILE = "checksums.json"
_CHUNK_BYTES = 1 << 20


class Trust(StrEnum):
    """What a recorded digest rests on."""

    PINNED = "pinned"
    """It equals the one that the catalogue knows."""
    FIRST_USE = "first_use"
    """It is that of the first file that was fetched, made, copied or found there."""


class Signature(Frozen):
    """What changes with a file's content and is cheap to read; of a folder, summed over files."""

    num_files: int
    num_bytes: int
    mtime_ns: int


class Record(Frozen):
    """A file or folder, as it was when it was recorded.

    Attributes:
        sha256: Of the file as stored, or of the folder (see `tree_digest`).
        trust: What the digest rests on.
        source: Where it came from: an address, a folder, or ``found``.
    """

    sha256: str
    trust: Trust
    source: str
    signature: Signature


def read_records(data: Path) -> dict[str, Record]:
    """The records of a data folder, by path below it; empty when there are none.

    Raises:
        DataError: The file is damaged, or cannot be read.
    """
    path = data / RECORDS_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return {name: Record.model_validate(entry) for name, entry in raw.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", cure="Make it readable, or move it away"
        ) from error
    except (ValueError, AttributeError, RecursionError, ValidationError) as error:
        raise DataError(
            f"{path} is damaged: {str(error).splitlines()[0]}",
            cure="Delete it: files are then compared with the pinned digests and recorded anew",
        ) from error


def write_records(data: Path, records: Mapping[str, Record]) -> None:
    """Replaces the records at once; a reader never sees half of them."""
    entries = {name: records[name].model_dump(mode="json") for name in sorted(records)}
    write_whole(data / RECORDS_FILE, json.dumps(entries, indent=1) + "\n")


def signature(path: Path) -> Signature:
    """The signature of a file or folder."""
    files = list(_files(path)) if path.is_dir() else [path]
    stats = [file.stat() for file in files]
    return Signature(
        num_files=len(files),
        num_bytes=sum(stat.st_size for stat in stats),
        mtime_ns=max((stat.st_mtime_ns for stat in stats), default=0),
    )


def digest(path: Path) -> str:
    """The SHA-256 of a file, or of a folder."""
    return tree_digest(path) if path.is_dir() else file_digest(path)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file as stored."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(folder: Path) -> str:
    """The SHA-256 over the relative path and the digest of every file, in the paths' order."""
    total = hashlib.sha256()
    for file in _files(folder):
        name = file.relative_to(folder).as_posix()
        total.update(f"{name}\0{file_digest(file)}\n".encode())
    return total.hexdigest()


def content_digest(path: Path) -> str:
    """The SHA-256 of what a file holds: for ``.xz``, of the decompressed bytes.

    Raises:
        DataError: The compressed file is damaged.
    """
    if path.suffix != ".xz":
        return file_digest(path)
    total = hashlib.sha256()
    try:
        with lzma.open(path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                total.update(chunk)
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}", cure="Copy it again") from error
    return total.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield Path(root, name)
