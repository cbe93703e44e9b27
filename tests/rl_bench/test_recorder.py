"""The recorder is complete whatever is lost on the way, and never fails a run."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.errors import SinkError
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.records import RunRow, RunSnapshot
from rl_bench.sinks.base import Sink

MakeStory = Callable[..., Any]
FAST = SinkConfig(name="t", flush_interval_s=0.02, wandb=WandbConfig(mode="disabled"))
SLOW = FAST.model_copy(update={"flush_interval_s": 3600.0})


class ListSink:
    """Keeps what it is given; fails on demand."""

    name = "list"

    def __init__(self, *, fail: bool = False, fail_open: bool = False) -> None:
        self.fail = fail
        self.fail_open = fail_open
        self.seqs: list[tuple[str, int]] = []
        self.rows: list[RunRow] = []

    def open(self) -> None:
        if self.fail_open:
            raise SinkError("no room")

    def write_run(self, snapshot: RunSnapshot) -> None:
        self.seqs.append((snapshot.run_id, snapshot.view.next_seq))
        if self.fail:
            raise OSError("disk is gone")

    def close(self, rows: Sequence[RunRow]) -> None:
        self.rows = list(rows)
        if self.fail:
            raise OSError("disk is gone")


def lines(story: Any) -> list[str]:  # noqa: ANN401  a Story of the conftest
    return list(story.path.read_text().splitlines())


def open_recorder(paths: SweepPaths, *sinks: Sink, config: SinkConfig = SLOW) -> Recorder:
    return Recorder(paths, config=config, sinks=sinks or None)


def test_pushed_entries_make_views(story: MakeStory, sweep_paths: SweepPaths) -> None:
    recorder = open_recorder(sweep_paths, ListSink())
    run = story("r").start().baseline(5.0)
    recorder.record("r", lines(run))
    assert recorder.views()["r"].baseline == 5.0
    run.submit(1, 20.0)
    recorder.record("r", run.entries[-2:])
    assert recorder.views()["r"].best == 20.0
    recorder.close()


def test_gaps_repeats_and_pokes_are_made_good_from_the_ledger(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    recorder = open_recorder(sweep_paths, ListSink())
    run = story("r").start().baseline(5.0).submit(1, 20.0)
    recorder.record("r", [run.entries[-1]])
    assert recorder.views()["r"].num_submissions == 1
    recorder.record("r", run.entries)
    assert recorder.views()["r"].next_seq == len(run.entries)
    run.submit(2, 50.0).submit(3, 40.0)
    recorder.record("r", run.entries[-1:])
    assert recorder.views()["r"].best == 50.0
    run.reject()
    recorder.record("r")
    assert recorder.views()["r"].num_rejected == 1
    recorder.close()


def test_a_restarted_recorder_is_complete(story: MakeStory, sweep_paths: SweepPaths) -> None:
    story("a").start().baseline(5.0).submit(1, 20.0).finish()
    story("b").start().baseline(5.0)
    recorder = open_recorder(sweep_paths, ListSink())
    views = recorder.views()
    assert (views["a"].best, views["a"].is_finished) == (20.0, True)
    assert views["b"].baseline == 5.0
    recorder.close()


def test_closing_reads_what_was_never_pushed(story: MakeStory, sweep_paths: SweepPaths) -> None:
    sink = ListSink()
    recorder = open_recorder(sweep_paths, sink)
    run = story("r").start().baseline(5.0)
    recorder.record("r", run.entries)
    run.submit(1, 20.0).finish()
    unseen = story("u").start()
    recorder.close()
    assert {row.run_id: row.best_score for row in sink.rows} == {"r": 20.0, "u": None}
    assert set(sink.seqs) >= {("r", len(run.entries)), ("u", len(unseen.entries))}


def test_a_finished_run_that_is_tried_again_goes_on(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 90.0).finish()
    recorder = open_recorder(sweep_paths, ListSink())
    recorder.record("r", run.entries[-1:])
    assert recorder.views()["r"].best == 90.0
    run.start(1).baseline(6.0)
    recorder.record("r", run.entries[-3:])
    view = recorder.views()["r"]
    assert (view.attempt, view.best, view.baseline) == (1, None, 6.0)
    recorder.close()


def test_writing_is_throttled_and_the_last_word_is_written_unasked(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    sink = ListSink()
    recorder = open_recorder(sweep_paths, sink, config=FAST)
    run = story("r").start().baseline(5.0)
    for i in range(1, 40):
        run.submit(i, float(i))
        recorder.record("r", run.entries[recorder.views().get("r", _EMPTY).next_seq :])
    deadline = time.monotonic() + 10
    while ("r", len(run.entries)) not in sink.seqs and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sink.seqs[-1] == ("r", len(run.entries))
    assert len(sink.seqs) < 40
    recorder.close()


class _Empty:
    next_seq = 0


_EMPTY: Any = _Empty()


def test_a_failing_sink_warns_once_and_stops_nobody(
    story: MakeStory, sweep_paths: SweepPaths, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = ListSink(fail=True), ListSink()
    recorder = open_recorder(sweep_paths, bad, good)
    run = story("r").start().baseline(5.0)
    with caplog.at_level(logging.WARNING):
        for i in range(1, 4):
            recorder.record("r", run.submit(i, 10.0).entries)
            recorder.flush()
        recorder.close()
    assert len([r for r in caplog.records if "disk is gone" in r.message]) == 1
    assert good.seqs[-1] == ("r", len(run.entries))
    assert [row.best_score for row in good.rows] == [10.0]


def test_a_sink_that_cannot_open_stops_the_recorder(sweep_paths: SweepPaths) -> None:
    with pytest.raises(SinkError, match="no room"):
        open_recorder(sweep_paths, ListSink(fail_open=True))


def test_a_damaged_ledger_is_told_and_the_others_go_on(
    story: MakeStory, sweep_paths: SweepPaths, caplog: pytest.LogCaptureFixture
) -> None:
    bad = story("bad").start().baseline(5.0)
    bad.path.write_bytes(b"{oops\n" + bad.path.read_bytes())
    story("good").start().baseline(5.0)
    recorder = open_recorder(sweep_paths, ListSink())
    assert set(recorder.views()) == {"good"}
    assert "line 1 is damaged" in caplog.text
    recorder.record("bad", ["not JSON"])
    recorder.record("good", ["not JSON"])
    assert recorder.views()["good"].baseline == 5.0
    recorder.close()


def test_tables_and_wandb_come_out_of_the_default_config(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    recorder = Recorder(sweep_paths, config=SinkConfig(name="default"))
    recorder.record("r", run.entries)
    recorder.close()
    (row,) = pq.read_table(sweep_paths.tables / "runs" / "r.parquet").to_pylist()
    assert row["improvement"] == 15.0
    assert (sweep_paths.tables / "comparison.csv").exists()
    assert list(Path(sweep_paths.wandb).glob("offline-run-*-s-r/run-s-r.wandb"))


def test_cost_of_an_event_does_not_grow_with_the_run(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    recorder = open_recorder(sweep_paths, ListSink())
    run = story("r").start().baseline(5.0)
    recorder.record("r", run.entries)
    costs = []
    for i in range(1, 301):
        run.submit(i, float(i))
        started = time.perf_counter()
        recorder.record("r", run.entries[-2:])
        costs.append(time.perf_counter() - started)
    first, last = sorted(costs[:100])[50], sorted(costs[-100:])[50]
    assert last < 4 * first
    recorder.close()
