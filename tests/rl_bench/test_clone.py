"""Copies that later writes to the original cannot reach."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from rl_bench.clone import (
    OutsideError,
    can_reflink,
    clone_file,
    make_read_only,
    remove_tree,
)


def test_copy_is_equal_separate_and_read_only(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"one")
    clone_file(source, target)
    with source.open("r+b") as file:
        file.write(b"two")
    assert target.read_bytes() == b"one"
    assert target.stat().st_ino != source.stat().st_ino
    assert not target.stat().st_mode & 0o222


def test_existing_target_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        clone_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"mine"


@pytest.mark.timeout(10)
def test_special_files_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="regular file"):
            clone_file(source, tmp_path / "b")
        assert not (tmp_path / "b").exists()


def test_links_are_followed_only_inside_the_roots(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_bytes(b"x")
    (inside / "good").symlink_to(inside / "file")
    (inside / "bad").symlink_to(outside / "file")
    clone_file(inside / "good", tmp_path / "copy", roots=[inside])
    with pytest.raises(OutsideError):
        clone_file(inside / "bad", tmp_path / "other", roots=[inside])
    assert not (tmp_path / "other").exists()


def test_read_only_tree_can_be_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    inner = tmp_path / "tree" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    (inner / "link").symlink_to(outside)
    make_read_only(tmp_path / "tree")
    assert not inner.stat().st_mode & 0o222
    assert outside.stat().st_mode & 0o200
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert outside.exists()
    assert not (tmp_path / "tree").exists()


def test_an_ordinary_user_can_remove_what_was_closed() -> None:
    """An agent that closes its own folders must not hinder the next attempt."""
    with tempfile.TemporaryDirectory() as name:  # tmp_path lies in folders that only we may enter
        here = Path(name)
        closed = here / "tree" / "a" / "b" / "c"
        closed.mkdir(parents=True)
        (closed / "file").touch()
        (here / "outside").mkdir(mode=0o500)
        (here / "tree" / "link").symlink_to(here / "outside")
        for path in (closed / "file", closed, *closed.relative_to(here).parents):
            (here / path).chmod(0o777 if path == Path() else 0)
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:  # whom no permission keeps out
                for path in (here, *here.rglob("*")):
                    os.chown(path, 65534, 65534, follow_symlinks=False)
                os.setgid(65534)
                os.setuid(65534)
            with contextlib.suppress(BaseException):
                remove_tree(here / "tree")
            os._exit(0)
        os.waitpid(child, 0)
        assert [path.name for path in here.iterdir()] == ["outside"]
        assert (here / "outside").stat().st_mode & 0o777 == 0o500


def test_probe_for_reflinks_leaves_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    assert not can_reflink(target, source=source)
    (source / "file").write_text("x")
    can_reflink(target, source=source)
    assert list(target.iterdir()) == []
