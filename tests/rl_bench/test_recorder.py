"""The recorder is complete whatever is lost on the way, and never fails a run."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rl_bench import recorder as recorder_module
from rl_bench.config import SinkConfig, WandbConfig
from rl_bench.errors import SinkError
from rl_bench.ledger import LedgerPart, read_ledger_part
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.records import RunSnapshot
from rl_bench.run_row import RunRow
from rl_bench.run_view import fold_all
from rl_bench.sinks.base import Sink
from tests.rl_bench.agent_story import call, finding, tool_call
from tests.rl_bench.conftest import MakeStory, Story

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


class MemorySink(ListSink):
    """Has the runs ``known``, by id and mark."""

    def __init__(self, **known: str) -> None:
        super().__init__()
        self.known = known

    def has(self, run_id: str, mark: str) -> bool:
        return self.known.get(run_id) == mark


def lines(story: Story) -> list[str]:
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


def test_views_that_the_caller_has_are_not_sent_again(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    recorder = open_recorder(sweep_paths, ListSink())
    over, live = story("over").start().baseline(5.0).finish(), story("live").start()
    recorder.record("over", over.entries)
    recorder.record("live", live.entries)
    recorder.flush()
    known = {name: view.next_seq for name, view in recorder.views().items()}
    assert set(known) == {"over", "live"}
    assert recorder.views(known) == {}
    live.baseline(7.0)
    recorder.record("live", live.entries[known["live"] :])
    news = recorder.views(known)
    assert set(news) == {"live"}
    assert news["live"].baseline == 7.0
    assert set(recorder.views({"live": known["live"]})) == {"over", "live"}
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


@pytest.fixture
def num_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the number of entries of each reading of a ledger."""
    counts: list[int] = []

    def counting(path: Path, *, offset: int = 0, next_seq: int = 0) -> LedgerPart:
        part = read_ledger_part(path, offset=offset, next_seq=next_seq)
        counts.append(len(part.entries))
        return part

    monkeypatch.setattr(recorder_module, "read_ledger_part", counting)
    return counts


def test_entries_out_of_order_cost_one_reading_together(
    story: MakeStory, sweep_paths: SweepPaths, num_read: list[int]
) -> None:
    recorder = open_recorder(sweep_paths, ListSink())
    run = story("r").start().baseline(5.0)
    recorder.record("r", run.entries)
    for n in range(1, 101):
        run.add(call(n), tool_call())
        # As two threads of a run may tell them.
        recorder.record("r", run.entries[-1:])
        recorder.record("r", run.entries[-2:-1])
    view = recorder.views()["r"]
    assert (view.driver_use.num_calls, view.agent_use.num_tool_calls) == (100, 100)
    assert len(num_read) == 100
    assert sum(num_read) == len(run.entries)
    recorder.close()
    assert len(num_read) == 100  # nothing was new


def test_what_a_sink_failed_to_take_is_given_again_at_the_end(
    story: MakeStory, sweep_paths: SweepPaths, num_read: list[int]
) -> None:
    sink = ListSink(fail=True)
    recorder = open_recorder(sweep_paths, sink)
    run = story("r").start().baseline(5.0).finish()
    recorder.record("r", run.entries)
    recorder.flush()
    sink.fail = False
    recorder.close()
    assert sink.seqs == [("r", len(run.entries))] * 2
    assert [row.baseline_score for row in sink.rows] == [5.0]


def test_what_a_sink_failed_to_take_at_the_start_is_given_again_at_the_end(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0).finish()
    sink = ListSink(fail=True)
    recorder = open_recorder(sweep_paths, sink)
    assert sink.seqs == [("r", len(run.entries))]
    sink.fail = False
    recorder.close()
    assert sink.seqs == [("r", len(run.entries))] * 2


def test_findings_after_the_end_are_recorded(story: MakeStory, sweep_paths: SweepPaths) -> None:
    sink = ListSink()
    recorder = open_recorder(sweep_paths, sink)
    run = story("r").start().baseline(5.0).submit(1, 90.0).finish()
    recorder.record("r", run.entries)
    recorder.flush()
    run.add(finding("breach", submission_id=1))
    recorder.record("r", run.entries[-1:])
    assert recorder.views()["r"].best is None
    recorder.close()
    assert [(row.best_score, row.num_invalid) for row in sink.rows] == [(None, 1)]


def test_a_restarted_recorder_is_complete(story: MakeStory, sweep_paths: SweepPaths) -> None:
    story("a").start().baseline(5.0).submit(1, 20.0).finish()
    story("b").start().baseline(5.0)
    recorder = open_recorder(sweep_paths, ListSink())
    views = recorder.views()
    assert (views["a"].best, views["a"].is_finished) == (20.0, True)
    assert views["b"].baseline == 5.0
    recorder.close()


def test_a_run_that_was_over_is_told_again_only_to_sinks_that_lack_it(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    over = story("over").start().baseline(5.0).submit(1, 20.0).finish()
    live = story("live").start().baseline(5.0)
    marks = {run.run_id: fold_all(run.run_id, run.entries).mark for run in (over, live)}
    has_all, has_less, has_none = MemorySink(**marks), MemorySink(over="1@x"), ListSink()

    for sinks, told in (
        ((has_all,), ["live"]),
        ((has_all, has_less), ["live", "over"]),
        ((has_all, has_none), ["live", "over"]),
    ):
        for sink in sinks:
            sink.seqs.clear()
        recorder = open_recorder(sweep_paths, *sinks)
        assert {name: view.best for name, view in recorder.views().items()} == {
            "live": None,
            "over": 20.0,
        }
        recorder.close()
        assert [sorted({name for name, _ in sink.seqs}) for sink in sinks] == [told] * len(sinks)
        assert sorted(row.run_id for row in sinks[0].rows) == ["live", "over"]


def test_a_run_that_every_sink_has_goes_on_when_its_ledger_does(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    sink = MemorySink(r=fold_all("r", run.entries).mark)
    recorder = open_recorder(sweep_paths, sink)
    assert sink.seqs == []
    run.start(attempt=1).baseline(5.0).submit(1, 30.0)
    recorder.record("r", run.entries[-2:])
    recorder.close()
    assert sink.seqs[-1] == ("r", len(run.entries))
    assert sink.rows[-1].best_score == 30.0


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


def test_a_recorder_that_takes_anothers_place_comes_up_whatever_cannot_open(
    story: MakeStory,
    sweep_paths: SweepPaths,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "REOPEN_S", 0.0)
    ended = story("ended").start().baseline(5.0).finish()
    run = story("r").start().baseline(5.0)
    late, lost = ListSink(fail_open=True), ListSink(fail_open=True)
    recorder = Recorder(
        sweep_paths, config=FAST, sinks=[late, lost, ListSink()], must_open=lambda: False
    )
    assert "no room" in caplog.text
    assert recorder.views()["r"].baseline == 5.0
    late.fail_open = False
    recorder.record("r", run.submit(1, 10.0).entries)
    deadline = time.monotonic() + 20
    while {("ended", len(ended.entries)), ("r", len(run.entries))} - set(late.seqs):
        assert time.monotonic() < deadline, late.seqs
        time.sleep(0.02)
    recorder.close()
    assert [row.best_score for row in late.rows] == [None, 10.0]
    assert not lost.seqs


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
