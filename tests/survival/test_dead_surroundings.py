"""What is around a sweep fails for real: a disk without a byte left, a W&B that never answers."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.chaos_world import FilledDisk, SilentServer, small_disk
from rl_bench.config import AgentConfig, SinkConfig, WandbConfig
from rl_bench.errors import SinkError
from rl_bench.events import Entry, RunEnd, RunFinished
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.run import Run
from tests.needs import needs
from tests.rl_bench.conftest import Story, make_spec
from tests.rl_bench.grading_scene import WordTask
from tests.rl_bench.grading_scene import make_spec as spec_of_run
from tests.rl_bench.run_scene import make_run

QUIET = SinkConfig(name="t", flush_interval_s=0.05, wandb=WandbConfig(mode="disabled"))
ONLINE = SinkConfig(name="t", flush_interval_s=0.05, wandb=WandbConfig(mode="online"))
START_LIMIT_S = 120.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB that nobody else uses."""
    with small_disk(tmp_path / "disk", num_bytes=64 * 2**20) as is_there:
        needs("mount", is_there=is_there, cure="mounting a tmpfs wants root")
        yield tmp_path / "disk"


def run_on(disk: Path, agent: str, on_entry: Callable[[Entry], None]) -> Run:
    argv = (sys.executable, "-c", agent)
    spec = spec_of_run(agent=AgentConfig(name="test", argv=argv, expects_submissions=False))
    return make_run(spec, disk.parent, paths=SweepPaths(disk / "s"), on_entry=on_entry)


def test_a_disk_without_a_byte_ends_the_run_and_loses_nothing(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rl_bench.run.make_task", lambda config, cache: WordTask(config.name))
    monkeypatch.setattr("rl_bench.disk_watch.CHECK_S", 0.1)
    paths = SweepPaths(disk / "s")
    ledger = paths.run("r").ledger
    recorder = Recorder(paths, config=QUIET)
    full = FilledDisk(disk, left_bytes=0)

    def on_entry(entry: Entry) -> None:
        if entry.event.type == "agent_started":
            full.__enter__()
        recorder.record("r", [entry])

    end = run_on(disk, "import time; time.sleep(60)", on_entry).execute(attempt=0, is_last=False)

    assert end is RunEnd.INFRA_ERROR
    before = read_ledger(ledger)
    last = before[-1].event
    assert isinstance(last, RunFinished)
    assert not last.final
    full.__enter__()  # the run has given back what its ledger had set aside
    recorder.record("r")
    recorder.close()
    assert "parquet" in caplog.text, "the tables could not be written, and that was told"

    full.__exit__()
    again = run_on(disk, "pass", lambda entry: None)
    assert again.execute(attempt=1, is_last=True) is RunEnd.COMPLETED
    assert read_ledger(ledger)[: len(before)] == before
    Recorder(paths, config=QUIET).close()
    [row] = pq.read_table(paths.tables / "runs").to_pylist()
    assert (row["end"], row["attempt"]) == ("completed", 1)
    assert not [path for path in paths.tables.rglob(".*") if path.is_file()]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SilentServer]:
    """W&B is a server that takes connections and never answers."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("HOME", str(tmp_path))
    with SilentServer() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server


@pytest.mark.slow
def test_a_silent_wandb_stops_a_start_and_never_a_recorder_that_takes_anothers_place(
    silent: SilentServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = SweepPaths(tmp_path / "s")
    started = time.monotonic()
    with pytest.raises(SinkError, match="sink=no_wandb"):
        Recorder(paths, config=ONLINE)
    assert time.monotonic() - started < START_LIMIT_S

    story = Story(paths, "r", spec=make_spec()).start().baseline(5.0).submit(1, 20.0).finish()
    with caplog.at_level(logging.WARNING):
        recorder = Recorder(paths, config=ONLINE, must_open=lambda: False)
        recorder.record("r", story.entries)
        assert recorder.views()["r"].best == 20.0
        recorder.close()

    assert time.monotonic() - started < 3 * START_LIMIT_S
    assert "wandb: W&B (online) cannot open" in caplog.text
    [row] = pq.read_table(paths.tables / "runs").to_pylist()
    assert row["best_score"] == 20.0
