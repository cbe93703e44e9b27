"""A disk that fills up during a run: an early warning, an end that is infrastructure's, no loss."""

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_bench.config import AgentConfig, RunSpec
from rl_bench.disk_watch import STOP_BYTES, STOP_FILES, WARN_BYTES, WARN_FILES, DiskWatch
from rl_bench.errors import LedgerError
from rl_bench.events import Entry, Note, RunEnd, RunFinished, RunState, StateChanged
from rl_bench.ledger import Ledger, read_ledger
from rl_bench.run import OnEntry
from tests.rl_bench.grading_scene import WordTask, make_spec
from tests.rl_bench.run_scene import make_run

AGENT = "import time; time.sleep(60)"


class FullDisk:
    """Each ledger write fails until a piece of the reserve at ``reserve`` is given up for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reserve: Path) -> None:
        self.reserve = reserve
        self.is_full = False
        self._last_size = 0
        self._write = os.write
        monkeypatch.setattr("rl_bench.ledger.os.write", self)

    def __call__(self, fd: int, data: bytes) -> int:
        size = self.reserve.stat().st_size
        if self.is_full and size == self._last_size:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._last_size = size
        return self._write(fd, data)


def test_how_a_run_ended_is_written_with_what_was_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        disk = FullDisk(monkeypatch, path.with_suffix(".reserve"))
        assert disk.reserve.stat().st_blocks > 0
        ledger.append(Note(level="info", topic="t", message="before"))
        disk.is_full = True
        with pytest.raises(LedgerError, match="No space left"):
            ledger.append(Note(level="info", topic="t", message="lost"))
        ledger.append(StateChanged(state=RunState.FINISHED))
        ledger.append(RunFinished(end=RunEnd.INFRA_ERROR))
    kinds = [entry.event.type for entry in read_ledger(path)]
    assert kinds == ["note", "state_changed", "run_finished"]
    assert not list(tmp_path.glob("*.reserve"))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Sets ``free`` bytes of every disk."""
    usage = SimpleNamespace(free=2 * WARN_BYTES)
    monkeypatch.setattr("rl_bench.disk_watch.shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr("rl_bench.disk_watch.CHECK_S", 0.0)
    return usage


def test_a_run_is_stopped_before_its_disk_is_full_and_says_why(
    tmp_path: Path, free: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_bench.run.make_task", lambda config, cache: WordTask(config.name))
    agent = AgentConfig(name="test", argv=(sys.executable, "-c", AGENT))

    def on_entry(entry: Entry) -> None:
        if entry.event.type == "agent_started":
            free.free = WARN_BYTES - 1
        if isinstance(entry.event, Note) and entry.event.topic == "disk":
            free.free = STOP_BYTES - 1

    end = attempt_at(tmp_path, make_spec(agent=agent), on_entry)

    assert end is RunEnd.INFRA_ERROR
    events = [e.event for e in read_ledger(tmp_path / "s" / "runs" / "r" / "ledger.jsonl")]
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert "16 MiB free: free some space and give the same command again" in last.detail
    assert not last.final


@pytest.mark.parametrize(
    ("num_files", "is_full", "num_warnings"),
    [(WARN_FILES, False, 0), (WARN_FILES - 1, False, 1), (STOP_FILES - 1, True, 0)],
)
def test_a_disk_can_run_out_of_files(
    tmp_path: Path,
    free: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    num_files: int,
    is_full: bool,
    num_warnings: int,
) -> None:
    status = SimpleNamespace(f_files=10**6, f_favail=num_files)
    monkeypatch.setattr("rl_bench.disk_watch.os.statvfs", lambda path: status)
    warnings: list[str] = []
    disk = DiskWatch(tmp_path, warn=warnings.append)
    assert disk.is_full() is is_full
    assert not disk.look() or "files" in disk.problem
    assert len(warnings) == num_warnings


def test_a_file_system_that_counts_no_files_has_room(
    tmp_path: Path, free: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(f_files=0, f_favail=0)
    monkeypatch.setattr("rl_bench.disk_watch.os.statvfs", lambda path: status)
    assert not DiskWatch(tmp_path, warn=lambda words: None).look()


def attempt_at(root: Path, spec: RunSpec, on_entry: OnEntry) -> RunEnd:
    return make_run(spec, root, on_entry=on_entry).execute(attempt=0, is_last=False)
