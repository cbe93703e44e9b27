"""What is in a data folder: found, compared with its record or its pinned digest, told apart."""

import dataclasses
import hashlib
import lzma
import os
from pathlib import Path

import pytest

from rl_bench.data.catalogue import DataFile, Download
from rl_bench.data.inventory import Found, State, look
from rl_bench.data.records import (
    RECORDS_FILE,
    Record,
    Trust,
    read_records,
    tree_digest,
    write_records,
)
from rl_bench.errors import DataError

CONTENT = b"one\ntwo\n"


def make_file(*, pinned: bool = True) -> DataFile:
    pin = hashlib.sha256(CONTENT).hexdigest() if pinned else ""
    return DataFile(
        path="a/train.txt",
        content="two words",
        downloads=(Download(name="train.txt", url="https://public.example/train.txt", sha256=pin),),
        variants=("a/train.txt.xz",),
        parts=("a/first*.txt",),
    )


def put(data: Path, name: str, content: bytes = CONTENT) -> Path:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def seen(data: Path, *, pinned: bool = True, full: bool = False) -> Found:
    return look(make_file(pinned=pinned), data=data, records=read_records(data), full=full)


def record(data: Path, *, pinned: bool = True) -> Record:
    found = seen(data, pinned=pinned)
    assert found.record is not None
    write_records(data, {"a/train.txt": found.record})
    return found.record


def test_nothing_is_missing(tmp_path: Path) -> None:
    assert seen(tmp_path).state is State.MISSING


def test_a_part_is_no_whole(tmp_path: Path) -> None:
    put(tmp_path, "a/first2.txt")

    found = seen(tmp_path)

    assert (found.state, found.detail) == (State.PART, "only first2.txt")


def test_a_part_tells_how_many_rows_of_the_whole_it_has(tmp_path: Path) -> None:
    put(tmp_path, "a/first2.txt", b"1\n2\n\n")
    file = dataclasses.replace(make_file(), num_rows=1319)

    found = look(file, data=tmp_path, records={})

    assert found.detail == "only 2 of 1,319 are in first2.txt"


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path, is_folder: bool) -> None:
    file = dataclasses.replace(make_file(pinned=False), is_folder=is_folder)
    path = put(tmp_path, "a/train.txt" if is_folder else "a/train.txt/x")

    found = look(file, data=tmp_path, records={})

    assert found.state is State.DAMAGED
    assert f"{'a folder' if is_folder else 'a file'} is expected" in found.detail
    assert path.exists()


@pytest.mark.parametrize(("pinned", "trust"), [(True, Trust.PINNED), (False, Trust.FIRST_USE)])
def test_a_file_that_was_there_is_compared_and_recorded(
    tmp_path: Path, pinned: bool, trust: Trust
) -> None:
    put(tmp_path, "a/train.txt")

    found = seen(tmp_path, pinned=pinned)

    assert found.state is State.OK
    assert found.record is not None
    assert (found.record.trust, found.record.source) == (trust, "found")


def test_a_file_that_is_compressed_is_compared_by_what_it_holds(tmp_path: Path) -> None:
    put(tmp_path, "a/train.txt.xz", lzma.compress(CONTENT))
    assert seen(tmp_path).state is State.OK

    put(tmp_path, "a/train.txt.xz", lzma.compress(b"other"))
    assert seen(tmp_path).state is State.DAMAGED

    put(tmp_path, "a/train.txt.xz", lzma.compress(CONTENT)[:-8])
    assert seen(tmp_path).state is State.DAMAGED


def test_another_file_than_the_pinned_one_is_damaged(tmp_path: Path) -> None:
    path = put(tmp_path, "a/train.txt", b"other")

    found = seen(tmp_path)

    assert found.state is State.DAMAGED
    assert str(path) in found.detail
    assert hashlib.sha256(b"other").hexdigest() in found.detail


@pytest.mark.parametrize("pinned", [True, False])
def test_a_changed_byte_is_noticed(tmp_path: Path, pinned: bool) -> None:
    path = put(tmp_path, "a/train.txt")
    record(tmp_path, pinned=pinned)
    path.write_bytes(CONTENT.replace(b"two", b"TWO"))
    os.utime(path, ns=(1, 1))

    found = seen(tmp_path, pinned=pinned)

    assert found.state is State.DAMAGED
    assert "was recorded" in found.detail


def test_a_change_that_keeps_size_and_time_takes_a_full_look(tmp_path: Path) -> None:
    path = put(tmp_path, "a/train.txt")
    mtime_ns = record(tmp_path).signature.mtime_ns
    path.write_bytes(CONTENT.replace(b"two", b"TWO"))
    os.utime(path, ns=(mtime_ns, mtime_ns))

    assert seen(tmp_path).state is State.OK
    assert seen(tmp_path, full=True).state is State.DAMAGED


def test_a_file_that_was_only_touched_is_the_same(tmp_path: Path) -> None:
    path = put(tmp_path, "a/train.txt")
    before = record(tmp_path, pinned=False)
    os.utime(path, ns=(1, 1))

    found = seen(tmp_path, pinned=False)

    assert found.state is State.OK
    assert found.record is not None
    assert found.record.sha256 == before.sha256
    assert found.record.signature.mtime_ns == 1


def test_the_digest_of_a_folder_depends_on_names_and_contents(tmp_path: Path) -> None:
    put(tmp_path, "t/a/x", b"1")
    put(tmp_path, "t/b/x", b"2")
    first = tree_digest(tmp_path / "t")

    put(tmp_path, "t/b/x", b"3")
    changed = tree_digest(tmp_path / "t")
    put(tmp_path, "t/b/x", b"2")
    (tmp_path / "t/b/x").rename(tmp_path / "t/b/y")

    assert len({first, changed, tree_digest(tmp_path / "t")}) == 3


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"\xff", b"[]", b'{"a": {"sha256": 1}}'])
def test_damaged_records_are_named_with_the_cure(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, RECORDS_FILE, content)

    with pytest.raises(DataError, match=str(tmp_path / RECORDS_FILE)) as caught:
        read_records(tmp_path)

    assert "Delete it" in caught.value.cure
