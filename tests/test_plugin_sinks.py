"""Sinks of plug-ins: what they are given, and what becomes of one that fails, hangs or exits."""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.errors import SinkError
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder, make_sinks
from rl_bench.records import RunSnapshot
from rl_bench.run_records import RunRecords
from rl_bench.run_row import RunRow
from rl_bench.sinks.base import RememberingSink
from rl_bench.sinks.outside import OutsideSink
from tests.plugin_scene import install

SINK = """\
class Sink:
    name = "lines"
    def __init__(self, folder, *, sweep, settings):
        self.path, self.settings, self.runs = folder / f"{sweep}.txt", settings, []
    def open(self):
        if self.settings.get("refuse"):
            raise OSError("no room")
        self.path.touch()
    def write_run(self, snapshot):
        if self.settings.get("fail"):
            raise OSError("disk is gone")
        self.runs.append(snapshot.run_id)
    def close(self, rows):
        self.path.write_text(" ".join(self.runs))
"""


def sink_config(**settings: bool) -> SinkConfig:
    plugins = {"lines": settings}
    return SinkConfig(name="t", wandb=WandbConfig(mode="disabled"), plugins=plugins)


def snapshot(run_id: str) -> RunSnapshot:
    return RunRecords(run_id).snapshot()


def test_a_sink_gets_snapshots_and_a_failing_one_only_warns(site: Path, tmp_path: Path) -> None:
    install(site, "ink", {"rl_bench.sinks": {"lines": "ink:Sink"}}, {"ink.py": SINK})
    paths = SweepPaths(tmp_path / "s")

    def outside(config: SinkConfig) -> OutsideSink:
        sinks = make_sinks(paths, config=config, sweep="s")
        assert [sink.name for sink in sinks] == ["parquet", "lines"]
        assert isinstance(sinks[1], OutsideSink)
        return sinks[1]

    sink = outside(sink_config())
    sink.open()
    sink.write_run(snapshot("a"))
    sink.write_run(snapshot("b"))
    sink.close([])
    assert (paths.sink("lines") / "s.txt").read_text() == "a b"

    failing = outside(sink_config(fail=True))
    failing.open()
    failing.write_run(snapshot("a"))
    with pytest.raises(SinkError, match="lines: OSError: disk is gone"):
        failing.close([])

    with pytest.raises(SinkError, match="no room"):
        Recorder(paths, config=sink_config(refuse=True))
    recorder = Recorder(paths, config=sink_config(fail=True))
    recorder.close()


def test_a_sink_that_no_plugin_has_stops_the_sweep_at_its_start(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="sink 'lines' does not exist"):
        Recorder(SweepPaths(tmp_path), config=sink_config())


class HangingSink:
    """Never returns from what it is given."""

    name = "hanging"

    def open(self) -> None:
        """Ready at once."""

    def write_run(self, snapshot: RunSnapshot) -> None:
        time.sleep(3600)

    def close(self, rows: Sequence[RunRow]) -> None:
        time.sleep(3600)


def test_a_sink_that_hangs_is_left_behind() -> None:
    sink = OutsideSink("hanging", HangingSink, close_timeout_s=0.2)
    sink.open()
    sink.write_run(snapshot("a"))
    sink.write_run(snapshot("b"))
    with pytest.raises(SinkError, match="hanging did not finish within"):
        sink.close([])


class LateSink(HangingSink):
    """Opens at the second try; takes what it is given."""

    tries = 0
    taken: ClassVar[list[str]] = []

    def open(self) -> None:
        """Refuses once."""
        type(self).tries += 1
        if self.tries == 1:
            raise SinkError("no room yet")

    def write_run(self, snapshot: RunSnapshot) -> None:
        self.taken.append(snapshot.run_id)

    def close(self, rows: Sequence[RunRow]) -> None:
        """Nothing is left to do."""


def test_a_sink_that_could_not_open_can_be_opened_again() -> None:
    sink = OutsideSink("late", LateSink)
    with pytest.raises(SinkError, match="no room yet"):
        sink.open()
    sink.open()
    sink.write_run(snapshot("a"))
    sink.close([])
    assert LateSink.taken == ["a"]


class FlakySink:
    """Fails at the first snapshots of a run, and knows runs; all that it is asked is noted."""

    name = "flaky"

    def __init__(self, *, failures: int = 0, known: str = "", slow_s: float = 0.0) -> None:
        self.failures = failures
        self.known = known
        self.slow_s = slow_s
        self.taken: list[str] = []
        self.asked: list[tuple[str, int]] = []

    def open(self) -> None:
        """Ready at once."""

    def write_run(self, snapshot: RunSnapshot) -> None:
        if snapshot.run_id == "a" and self.failures:
            self.failures -= 1
            raise OSError("disk is gone")
        self.taken.append(snapshot.run_id)

    def has(self, run_id: str, mark: str) -> bool:
        """Whether it was said to; a run ``ill`` cannot be told."""
        self.asked.append((run_id, threading.get_ident()))
        time.sleep(self.slow_s)
        if run_id == "ill":
            raise OSError("index is gone")
        return run_id in self.known

    def close(self, rows: Sequence[RunRow]) -> None:
        """Nothing is left to do."""


@pytest.mark.parametrize(("runs", "failures"), [("ab", 1), ("a", 1), ("ba", 1), ("ab", 2)])
def test_a_sink_that_recovers_gets_the_last_of_each_run(runs: str, failures: int) -> None:
    flaky = FlakySink(failures=failures)
    sink = OutsideSink("flaky", lambda: flaky)
    sink.open()
    told = 0
    for run_id in runs:
        try:
            sink.write_run(snapshot(run_id))
        except SinkError:
            told += 1
    try:
        sink.close([])
    except SinkError as error:
        told += 1
        assert "disk is gone" in str(error)  # noqa: PT017  told here or at a run before
    assert told >= 1
    assert sorted(flaky.taken) == sorted(runs)


class QuitsSink(FlakySink):
    """Ends the program at its end, or so it thinks."""

    def close(self, rows: Sequence[RunRow]) -> None:
        sys.exit(3)


def test_a_sink_that_exits_has_failed() -> None:
    sink = OutsideSink("quits", QuitsSink)
    sink.open()
    with pytest.raises(SinkError, match="SystemExit"):
        sink.close([])


def test_a_sink_is_asked_what_it_has_in_its_own_thread() -> None:
    flaky = FlakySink(known="a")
    sink = OutsideSink("flaky", lambda: flaky)
    assert isinstance(sink, RememberingSink)
    assert not sink.has("a", "1@x")  # not open yet
    sink.open()
    assert [sink.has(run_id, "1@x") for run_id in ("a", "b")] == [True, False]
    assert [run_id for run_id, _ in flaky.asked] == ["a", "b"]
    assert threading.get_ident() not in {thread for _, thread in flaky.asked}
    assert not sink.has("ill", "1@x")
    with pytest.raises(SinkError, match="index is gone"):
        sink.close([])


def test_a_sink_without_a_memory_or_slow_to_say_is_told_again() -> None:
    without = OutsideSink("late", LateSink)
    slow = OutsideSink("flaky", lambda: FlakySink(known="a", slow_s=1.0), ask_timeout_s=0.1)
    for sink in (without, slow):
        with suppress(SinkError):
            sink.open()
    started = time.monotonic()
    assert not any(sink.has("a", "1@x") for sink in (without, slow) for _ in range(20))
    assert time.monotonic() - started < 15.0
