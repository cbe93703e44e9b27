"""What a code history withstands: many writers, dead ones, damage, a full disk, git's absence."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rl_bench.errors import PreflightError, WorkspaceError
from rl_bench.lineage import code_history
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.lineage.git import check_git
from rl_bench.lineage.read import CodeReader
from tests.rl_bench.lineage_scene import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_threads_and_processes_share_a_history(lab: Lab) -> None:
    others = [lab.again() for _ in range(3)]

    def work(number: int) -> str:
        lab.write(f"f{number}.py", str(number))
        history = [lab.history, *others][number % 4]
        return history.record("submission", submission_id=number).id

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(work, range(1, 17)))
    reader = lab.reader()
    assert set(reader.submissions().values()) == set(ids)
    assert lab.again().record("end").num_files == 16
    for number, revision in enumerate(ids, start=1):
        # A tag that another writer's older view could not pass over.
        assert f"f{number}.py" in lab.paths(revision)
    lab.fsck()


WRITER = """
import sys, time
from pathlib import Path
from rl_bench.lineage.code_history import CodeHistory
code, history = Path(sys.argv[1]), Path(sys.argv[2])
recorder = CodeHistory(code, history=history)
print("ready", flush=True)
for number in range(10_000):
    for part in range(6):
        (code / f"part{part}.txt").write_text(f"{number} {part} " * 20_000)
    recorder.record("submission", submission_id=number + 1)
"""


def test_a_writer_killed_at_any_moment_leaves_a_history_that_goes_on(lab: Lab) -> None:
    chance = random.Random(4)
    known: tuple[str, ...] = ()
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(lab.code), str(lab.path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(0.05 + chance.random() * 0.3)
            # Its git is killed with it half of the time, else it finds its input cut off.
            (os.killpg if chance.random() < 0.5 else os.kill)(writer.pid, signal.SIGKILL)
        lab.write("after.py", str(chance.random()))
        assert lab.again().record("change").is_new
        ids = tuple(revision.id for revision in lab.reader().revisions())
        assert ids[: len(known)] == known, "what was stored stays"
        known = ids
    assert len(known) > 8
    lab.fsck()
    assert not list(lab.path.rglob("*.lock"))
    assert not list(lab.path.parent.glob("*.damaged-*"))


def damage_branch(history: Path) -> None:
    (history / "refs" / "heads" / "main").write_text("")


def damage_head(history: Path) -> None:
    (history / "HEAD").unlink()


def damage_objects(history: Path) -> None:
    shutil.rmtree(history / "objects")
    (history / "objects").mkdir()


def leave_locks(history: Path) -> None:
    (history / "refs" / "heads" / "main.lock").touch()
    (history / "objects" / "pack" / "tmp_pack_x").touch()


@pytest.mark.parametrize("damage", [damage_branch, damage_head, damage_objects])
def test_a_damaged_history_is_set_aside_and_a_new_one_begins(lab: Lab, damage: object) -> None:
    assert callable(damage)
    lab.write("train.py")
    lab.record()
    damage(lab.path)
    assert lab.again().record("change").is_new
    assert lab.paths() == ["train.py"]
    assert (lab.path.parent / "code.git.damaged-1").is_dir()


def test_locks_of_the_dead_hinder_nobody(lab: Lab) -> None:
    first = lab.record()
    leave_locks(lab.path)
    lab.write("train.py")
    assert lab.again().record("change").is_new
    assert lab.reader().revisions()[0].id == first.id


def test_what_git_refuses_is_told_and_passes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.record()
    lab.write("train.py")
    with monkeypatch.context() as patch:
        patch.setattr(code_history, "import_stream", lambda *args, **facts: b"feature none\n")
        with pytest.raises(WorkspaceError, match="fast-import"):
            lab.record()
    assert lab.record().is_new
    assert lab.paths() == ["train.py"]


def noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(900_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing_that_was_stored(small_disk: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("one")
    history = CodeHistory(code, history=small_disk / "code.git")
    first = history.record("change")
    (code / "noise.bin").write_bytes(noise(0))
    history.record("change")
    for seed in (1, 2, 3):
        (code / f"more{seed}.bin").write_bytes(noise(seed))
    with pytest.raises(WorkspaceError):
        history.record("change")
    for path in code.glob("*.bin*"):
        path.unlink()
    (code / "train.py").write_text("two")
    last = history.record("change")
    reader = CodeReader(small_disk / "code.git")
    assert [r.id for r in reader.revisions()][:: len(reader.revisions()) - 1] == [first.id, last.id]
    assert reader.read("main", "train.py") == b"two"


def test_missing_git_is_said(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_git()[0].isdigit()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PreflightError, match="git"):
        check_git()
    with pytest.raises(WorkspaceError, match="Install git"):
        lab.record()
