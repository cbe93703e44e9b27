"""A file that is written whole is the old one or the new one, and nothing lies beside it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rl_bench.whole_file import replacing, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("is_shared", [False, True])
def test_it_takes_the_place_of_what_was_there(tmp_path: Path, is_shared: bool) -> None:
    path = tmp_path / "file"
    for content in ("one", "zwei — ü", b"\xff"):
        write_whole(path, content, is_shared=is_shared)
        wanted = content.encode() if isinstance(content, str) else content
        assert path.read_bytes() == wanted
    assert names(tmp_path) == ["file"]


def test_a_block_that_raises_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def stopped() -> None:
        with replacing(path) as part:
            part.write_text("half")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert (names(tmp_path), path.read_text()) == (["file"], "old")


def test_a_folder_in_its_place_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "file", "new", is_durable=True)
    assert names(tmp_path) == ["file"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("what", ["a pipe", "a link", "half a file"])
def test_what_lies_in_the_way_is_neither_waited_for_nor_written_through(
    tmp_path: Path, what: str, is_shared: bool
) -> None:
    with replacing(tmp_path / "file", is_shared=is_shared) as part:
        part.touch()
    other = tmp_path / "other"
    other.write_text("mine")
    if what == "a pipe":
        os.mkfifo(part)
    elif what == "a link":
        part.symlink_to(other)
    else:
        part.write_text("a long text of a process that was killed")
    write_whole(tmp_path / "file", "new", is_shared=is_shared)
    assert names(tmp_path) == ["file", "other"]
    assert ((tmp_path / "file").read_text(), other.read_text()) == ("new", "mine")


def test_it_is_written_aside_where_others_may_write(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with replacing(theirs / "file", aside=tmp_path) as part:
        assert part.parent == tmp_path
        part.write_text("new")
    assert (names(tmp_path), (theirs / "file").read_text()) == (["theirs"], "new")


def test_a_durable_one_is_on_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    synced: list[tuple[str, bool]] = []

    def fsync(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink().name, path.exists()))

    monkeypatch.setattr("rl_bench.whole_file.os.fsync", fsync)
    write_whole(path, "new")
    assert synced == []
    path.unlink()
    write_whole(path, "new", is_durable=True)
    assert synced == [(".file.part", False), (tmp_path.name, True)]


def test_several_at_once_leave_one_of_them_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [str(digit) * 200_000 for digit in range(8)]
    threads = [
        threading.Thread(target=write_whole, args=(path, content), kwargs={"is_shared": True})
        for content in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in contents
    assert names(tmp_path) == ["file"]


WRITER = """
import sys, time
from pathlib import Path
from rl_bench.whole_file import replacing
with replacing(Path(sys.argv[1]), is_shared=True) as part:
    part.write_text("half")
    print(flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1)], ids=str)
def test_what_killed_writers_left_goes_with_the_next_and_a_living_ones_stays(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    path = tmp_path / "file"
    begun: list[subprocess.Popen[bytes]] = []
    try:
        for _ in order:  # one after the other, so that each has its number
            words = [sys.executable, "-c", WRITER, str(path)]
            begun.append(subprocess.Popen(words, stdout=subprocess.PIPE))
            assert begun[-1].stdout is not None
            begun[-1].stdout.readline()
        writers = [begun[number] for number in order]
        write_whole(path, "new", is_shared=True)
        assert len(names(tmp_path)) == 4
        for left in (2, 0):
            for writer in writers[left:]:
                writer.kill()
                writer.wait()
            write_whole(path, "newer", is_shared=True)
            assert len(names(tmp_path)) == 1 + left
    finally:
        for writer in begun:
            with writer:
                writer.kill()
    assert path.read_text() == "newer"


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("name", ["n" * 216, "n" * 255, "ü" * 127])
def test_a_name_may_be_as_long_as_the_file_system_lets_it(
    tmp_path: Path, name: str, is_shared: bool
) -> None:
    write_whole(tmp_path / name, "new", is_shared=is_shared)
    assert names(tmp_path) == [name]
    with pytest.raises(OSError, match="File name too long"):
        write_whole(tmp_path / ("n" * 256), "new", is_shared=is_shared)
    assert names(tmp_path) == [name]
