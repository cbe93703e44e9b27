"""W&B, for real and offline, holds what the ledgers say, and fails without hurting a run."""

import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from rl_bench.config import WandbConfig
from rl_bench.errors import SinkError
from rl_bench.events import DriverFailure, ModeVerdict, RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.records import RunSnapshot
from rl_bench.run_records import records_of
from rl_bench.sinks import wandb as wandb_sink
from rl_bench.sinks.wandb import WandbSink, flatten
from rl_bench.sinks.wandb_tables import MAX_CHARS, TABLES
from tests.rl_bench.agent_story import (
    audited,
    call,
    failed_call,
    finding,
    one_of_each,
    tool_call,
)
from tests.rl_bench.conftest import MakeStory, Story


def snapshot_of(story: Story) -> RunSnapshot:
    return records_of(story.run_id, story.entries).snapshot()


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline W&B file: LevelDB's log format after a header of 7 bytes."""
    wandb_internal_pb2: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    data, offset, parts = path.read_bytes(), 7, b""
    while offset + 7 <= len(data):
        left_in_block = 32768 - offset % 32768
        if left_in_block < 7:
            offset += left_in_block
            continue
        length, kind = struct.unpack_from("<HB", data, offset + 4)
        parts += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def history(path: Path) -> list[dict[str, Any]]:
    points = []
    for record in wandb_records(path):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            points.append(
                {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
            )
    return points


def offline_files(paths: SweepPaths, wandb_id: str) -> list[Path]:
    return list(paths.wandb.glob(f"offline-run-*-{wandb_id}/run-{wandb_id}.wandb"))


def wandb_offline(paths: SweepPaths) -> WandbSink:
    sink = WandbSink(paths.wandb, config=WandbConfig(mode="offline"), sweep="s")
    sink.open()
    return sink


def test_wandb_offline_has_a_run_each_with_history_and_a_comparison(
    story: MakeStory,
    sweep_paths: SweepPaths,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openai", ModuleType("openai"))  # W&B has advice for it
    sink = wandb_offline(sweep_paths)
    run = story("r0").start().baseline(5.0, repeat_scores=(4.0, 6.0))
    run.submit(1, 20.0).submit(2, None, failure="x")
    sink.write_run(snapshot_of(run))
    sink.write_run(snapshot_of(run.submit(3, 15.0).finish()))
    multi = story("r1", tasks=("alfworld", "gsm8k")).start().baseline(1.0, 2.0).submit(1, 3.0, 4.0)
    sink.write_run(snapshot_of(multi))
    sink.close([*snapshot_of(run).run_rows(), *snapshot_of(multi).run_rows()])

    (path,) = offline_files(sweep_paths, "s-r0")
    points = history(path)
    assert [(p["submission_id"], p["score"], p["best"], p["improvement"]) for p in points] == [
        (1, 20.0, 20.0, 15.0),
        (3, 15.0, 20.0, 10.0),
    ]
    assert [p["budget_used_s"] for p in points] == [10.0, 10.0]
    assert [p["within_noise"] for p in points] == [False, False]
    records = list(wandb_records(path))
    (started,) = (r.run for r in records if r.WhichOneof("record_type") == "run")
    assert started.run_group == "s"
    config = {
        u.key or "/".join(u.nested_key): json.loads(u.value_json) for u in started.config.update
    }
    assert config["tasks.0.name"] == "alfworld"
    updates = [u for r in records for u in r.summary.update]
    summary = {u.key or "/".join(u.nested_key): json.loads(u.value_json) for u in updates}
    assert summary["noise_floor"] == pytest.approx(1.96 * 2)
    assert summary["within_noise"] is False
    (path,) = offline_files(sweep_paths, "s-r1")
    assert [p["gsm8k/score"] for p in history(path) if "gsm8k/score" in p] == [4.0]
    (path,) = offline_files(sweep_paths, "s-comparison")
    tables = list(path.parent.rglob("*.table.json"))
    table = json.loads(tables[0].read_text())
    runs = [row[table["columns"].index("run_id")] for row in table["data"]]
    assert runs == ["r0", "r1", "r1"]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_wandb_recorded_again_leaves_one_mirror_a_run(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    done = story("done").start().baseline(5.0).submit(1, 20.0).finish()
    broken_off = story("open").start().baseline(5.0).submit(1, 20.0)
    for _ in range(2):
        sink = wandb_offline(sweep_paths)
        sink.write_run(snapshot_of(done))
        sink.write_run(snapshot_of(broken_off))
        sink.close([])
        first = offline_files(sweep_paths, "s-done")
        broken_off.submit(2 + len(broken_off.entries), 30.0)
    assert len(first) == 1
    assert offline_files(sweep_paths, "s-done") == first
    (path,) = offline_files(sweep_paths, "s-open")
    assert [p["score"] for p in history(path)] == [20.0, 30.0]


def wandb_summary(path: Path) -> dict[str, Any]:
    updates = [update for record in wandb_records(path) for update in record.summary.update]
    return {u.key or "/".join(u.nested_key): json.loads(u.value_json) for u in updates}


def wandb_table(path: Path, name: str) -> list[dict[str, Any]]:
    """The table that the run's summary names."""
    table = json.loads((path.parent / "files" / wandb_summary(path)[name]["path"]).read_text())
    return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


def test_wandb_tells_what_driver_and_agent_did(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0).add(*one_of_each())
    run.submit(1, 20.0).add(failed_call(DriverFailure.AUTH, status=401, at_s=30.0))
    run.add(call(3, at_s=60.0, cost_usd=0.25)).submit(2, 30.0)
    sink = wandb_offline(sweep_paths)
    sink.write_run(snapshot_of(run))
    sink.write_run(snapshot_of(run.finish()))
    sink.close([])
    (path,) = offline_files(sweep_paths, "s-r")
    points = history(path)
    assert [p.get("score") for p in points] == [None, 20.0, None, None, 30.0]
    drivers = [p for p in points if "driver/calls" in p]
    assert [p["driver/calls"] for p in drivers] == [1, 2, 3]
    assert [p["driver/cost_usd"] for p in drivers] == [0.5, 0.5, 0.75]
    assert [p["driver/input_tokens"] for p in drivers] == [100, 100, 200]
    assert [p["driver/failed_calls"] for p in drivers] == [0, 1, 1]
    assert [p["budget_used_s"] for p in drivers] == [10.0, 30.0, 60.0]
    summary = wandb_summary(path)
    expected = {
        "sandbox": "bwrap",
        "driver_calls": 3,
        "driver_failure": "auth",
        "input_tokens": 200,
        "cost_usd": 0.75,
        "num_tool_calls": 1,
        "num_revisions": 1,
        "mode_verdict": "clean",
        "mode_methods": "sft",
        "num_findings": 1,
        "num_breaches": 0,
        "is_invalid": False,
        "counts": True,
    }
    assert {name: summary[name] for name in expected} == expected
    found = wandb_table(path, "findings")
    assert [(row["rule"], row["severity"]) for row in found] == [
        ("known_model", "warning"),
        ("mode", "info"),
    ]
    assert [row["kind"] for row in wandb_table(path, "trace")] == ["tool_call", "usage"]


def test_wandb_gets_the_end_of_a_long_trace_in_short_rows(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0)
    for n in range(TABLES["trace"] + 5):
        run.entries.append(
            run.entries[-1].model_copy(
                update={"seq": len(run.entries), "event": tool_call(f"{n} " + "x" * 4000)}
            )
        )
    snapshot = records_of("r", run.entries).snapshot()
    finished = replace(snapshot, view=replace(snapshot.view, end=RunEnd.COMPLETED, is_final=True))
    sink = wandb_offline(sweep_paths)
    sink.write_run(snapshot)
    sink.write_run(finished)
    sink.close([])
    (path,) = offline_files(sweep_paths, "s-r")
    rows = wandb_table(path, "trace")
    assert len(rows) == TABLES["trace"]
    assert rows[-1]["text"].startswith(f"{TABLES['trace'] + 4} ")
    assert {len(row["text"]) for row in rows} == {MAX_CHARS}
    assert "findings" not in wandb_summary(path)


def test_wandb_marks_an_invalid_run_failed_and_its_submission(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0).accept(1).add(finding("breach", submission_id=1))
    run.grade(1, 90.0).submit(2, 40.0).add(audited(ModeVerdict.BREACH, summary="GRPO"))
    sink = wandb_offline(sweep_paths)
    sink.write_run(snapshot_of(run.finish(RunEnd.INVALID)))
    sink.close([])
    (path,) = offline_files(sweep_paths, "s-r")
    exits = [r.exit for r in wandb_records(path) if r.WhichOneof("record_type") == "exit"]
    assert [e.exit_code for e in exits] == [1]
    points = history(path)
    assert [(p["score"], p.get("best"), p.get("is_invalid")) for p in points] == [
        (90.0, None, True),
        (40.0, 40.0, None),
    ]
    summary = wandb_summary(path)
    assert (summary["is_invalid"], summary["counts"]) == (True, False)
    assert (summary["invalid_reason"], summary["best_score"]) == ("GRPO", 40.0)


def test_wandb_that_cannot_open_is_a_sink_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = WandbSink(tmp_path / "file" / "wandb", config=WandbConfig(), sweep="s")
    with pytest.raises(SinkError, match="W&B"):
        sink.open()


def open_in_a_process(
    home: Path, *, mode: str, environment: dict[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Opens and closes a sink where W&B was never loaded."""
    code = (
        "from pathlib import Path\n"
        "from rl_bench.config import WandbConfig\n"
        "from rl_bench.sinks.wandb import WandbSink\n"
        f"sink = WandbSink(Path({str(home / 'wandb')!r}), config=WandbConfig(mode={mode!r}), "
        "sweep='s')\n"
        "sink.open()\n"
        "sink.close([])\n"
    )
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    own = {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | own | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_wandb_online_without_a_key_is_refused_before_anything_waits(tmp_path: Path) -> None:
    done = open_in_a_process(tmp_path, mode="online", environment={})
    assert done.returncode == 1
    assert "SinkError: W&B is online but there is no API key. Run `wandb login`" in done.stderr


class _Mute:
    """Stands in for the sweep's own W&B run."""

    summary: ClassVar[dict[str, object]] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def stub_sink(
    paths: SweepPaths, monkeypatch: pytest.MonkeyPatch, mirror: Callable[[RunSnapshot], object]
) -> WandbSink:
    """A sink whose mirroring is ``mirror``: what W&B may do to it."""
    sink = WandbSink(paths.wandb, config=WandbConfig(), sweep="s", close_timeout_s=0.3)
    monkeypatch.setattr(sink, "_init", lambda *args, **kwargs: _Mute())
    monkeypatch.setattr(sink, "_mirror", mirror)
    sink.open()
    return sink


def test_a_hanging_wandb_delays_nobody_and_is_left_behind(
    story: MakeStory, sweep_paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    sink = stub_sink(sweep_paths, monkeypatch, lambda snapshot: release.wait(30))
    snapshot = snapshot_of(story("r").start())
    started = time.monotonic()
    for _ in range(1000):
        sink.write_run(snapshot)
    with pytest.raises(SinkError, match="did not finish within"):
        sink.close([])
    assert time.monotonic() - started < 20
    assert len(sink._mailbox) <= 1  # the latest snapshot only
    release.set()


def test_a_failing_wandb_is_told_and_given_up(
    story: MakeStory, sweep_paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(snapshot: RunSnapshot) -> None:
        calls.append(snapshot.run_id)
        raise RuntimeError("server says no")

    sink = stub_sink(sweep_paths, monkeypatch, fail)
    snapshot = snapshot_of(story("r").start())
    told = 0
    for i in range(20):
        try:
            sink.write_run(snapshot)
        except SinkError as error:
            told += 1
            assert "server says no" in str(error)  # noqa: PT017  several calls, some of which raise
        deadline = time.monotonic() + 5
        while len(calls) < min(i + 1, wandb_sink.MAX_FAILURES) and time.monotonic() < deadline:
            time.sleep(0.001)
    assert told >= 1
    assert len(calls) == wandb_sink.MAX_FAILURES


def test_a_run_that_wandb_failed_to_take_once_is_mirrored(
    story: MakeStory, sweep_paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail_once(snapshot: RunSnapshot) -> None:
        calls.append(snapshot.run_id)
        if len(calls) == 1:
            raise RuntimeError("server is away")

    sink = stub_sink(sweep_paths, monkeypatch, fail_once)
    sink.write_run(snapshot_of(story("a").start().finish()))
    deadline = time.monotonic() + 5
    while not sink._num_failures and time.monotonic() < deadline:
        time.sleep(0.001)
    with pytest.raises(SinkError, match="server is away"):
        sink.write_run(snapshot_of(story("b").start()))
    sink.close([])
    assert calls == ["a", "b", "a"]


def test_what_waits_for_wandb_is_small(
    story: MakeStory, sweep_paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored: list[RunSnapshot] = []
    sink = wandb_offline(sweep_paths)
    monkeypatch.setattr(sink, "_mirror", mirrored.append)
    run = story("r").start().baseline(5.0).add(*one_of_each())
    sink.write_run(snapshot_of(run))
    sink.write_run(snapshot_of(run.finish()))
    sink.close([])
    assert {name for kept in mirrored[:-1] for name in kept.batches} == set()
    assert set(mirrored[-1].batches) == set(TABLES)
    assert mirrored[-1].table("trace").num_rows == 2


def test_flatten_names_nested_values() -> None:
    tree = {"a": {"b": 1, "c": [True, {"d": None}]}, "e": "x"}
    assert flatten(tree) == {"a.b": 1, "a.c.0": True, "a.c.1.d": None, "e": "x"}


def test_infrastructure_ends_mark_the_wandb_run_failed(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    sink = wandb_offline(sweep_paths)
    sink.write_run(snapshot_of(story("r").start().finish(RunEnd.INFRA_ERROR)))
    sink.close([])
    (path,) = offline_files(sweep_paths, "s-r")
    exits = [r.exit for r in wandb_records(path) if r.WhichOneof("record_type") == "exit"]
    assert [e.exit_code for e in exits] == [1]


def test_wandb_is_not_shared_with_the_process_that_started_the_sweep(tmp_path: Path) -> None:
    done = open_in_a_process(
        tmp_path, mode="offline", environment={"WANDB_SERVICE": "3-1-tcp-127.0.0.1-9"}
    )
    assert done.returncode == 0, done.stderr


def mirror_again(paths: SweepPaths, *runs: Story) -> bool:
    """Whether W&B was behind, which is then made up for."""
    sink = WandbSink(paths.wandb, config=WandbConfig(mode="offline"), sweep="s")
    snapshots = [snapshot_of(run) for run in runs]
    if not sink.is_behind([snapshot.view for snapshot in snapshots]):
        return False
    sink.open()
    for snapshot in snapshots:
        sink.write_run(snapshot)
    sink.close([])
    return True


@pytest.mark.parametrize("wandb_id", ["s-one", "s-comparison"])
def test_an_offline_folder_that_is_gone_is_written_again_and_no_other(
    story: MakeStory, sweep_paths: SweepPaths, wandb_id: str
) -> None:
    runs = [story(name).start().baseline(5.0).submit(1, 20.0).finish() for name in ("one", "two")]
    assert mirror_again(sweep_paths, *runs)
    assert not mirror_again(sweep_paths, *runs)
    kept = offline_files(sweep_paths, "s-two")

    [file] = offline_files(sweep_paths, wandb_id)
    shutil.rmtree(file.parent)
    assert mirror_again(sweep_paths, *runs)

    assert len(offline_files(sweep_paths, wandb_id)) == 1
    [file] = offline_files(sweep_paths, "s-one")
    assert [point["score"] for point in history(file)] == [20.0]
    assert offline_files(sweep_paths, "s-two") == kept
    assert not mirror_again(sweep_paths, *runs)


def test_a_folder_that_was_seen_synced_may_go(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    mirror_again(sweep_paths, run)
    files = [*offline_files(sweep_paths, "s-r"), *offline_files(sweep_paths, "s-comparison")]
    for file in files:
        file.with_suffix(".wandb.synced").touch()
    assert not mirror_again(sweep_paths, run)
    for file in files:
        shutil.rmtree(file.parent)
    assert not mirror_again(sweep_paths, run)
    run.start(attempt=1)
    assert mirror_again(sweep_paths, run), "its ledger grew"


def test_what_was_mirrored_online_needs_no_files_here(
    story: MakeStory, sweep_paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    sink = WandbSink(sweep_paths.wandb, config=WandbConfig(mode="online"), sweep="s")
    monkeypatch.setattr(sink, "_init", lambda *args, **kwargs: _Mute())
    monkeypatch.setattr(sink, "_check_login", lambda: None)
    monkeypatch.setattr(sink, "_mirror", lambda snapshot: sink._note_done("r", snapshot.mark))
    sink.open()
    sink.write_run(snapshot_of(run))
    sink.close([])
    assert not mirror_again(sweep_paths, run)
