"""Parquet and W&B hold what the ledgers say, again and again, and fail without hurting a run."""

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
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
import pytest

from rl_bench.config import WandbConfig
from rl_bench.errors import SinkError
from rl_bench.events import RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.records import SCHEMAS, RunSnapshot
from rl_bench.run_records import records_of
from rl_bench.sinks import wandb as wandb_sink
from rl_bench.sinks.parquet import ParquetSink, main, rebuild
from rl_bench.sinks.wandb import WandbSink, flatten

MakeStory = Callable[..., Any]


def snapshot_of(story: Any) -> RunSnapshot:  # noqa: ANN401  a Story of the conftest
    return records_of(story.run_id, story.entries).snapshot()


def parquet_sink(paths: SweepPaths) -> ParquetSink:
    sink = ParquetSink(paths.tables)
    sink.open()
    return sink


def inodes(folder: Path) -> dict[str, int]:
    return {str(p): p.stat().st_ino for p in folder.rglob("*.parquet")}


def test_parquet_files_carry_schema_and_rows(story: MakeStory, sweep_paths: SweepPaths) -> None:
    sink = parquet_sink(sweep_paths)
    for name in ("r0", "r1"):
        sink.write_run(snapshot_of(story(name).start().baseline(5.0).submit(1, 20.0).finish()))
    for table, schema in SCHEMAS.items():
        found = pq.read_table(sweep_paths.tables / table / "r0.parquet")
        assert found.schema.equals(schema)
        assert found.schema.metadata[b"schema_version"] == b"2"
    whole = pa_dataset.dataset(sweep_paths.tables / "items").to_table()
    assert whole.num_rows == 12
    runs = pq.read_table(sweep_paths.tables / "runs").to_pylist()
    assert [(r["run_id"], r["improvement"]) for r in runs] == [("r0", 15.0), ("r1", 15.0)]


def test_parquet_grows_with_the_run_and_is_idempotent(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    sink = parquet_sink(sweep_paths)
    run = story("r").start().baseline(5.0)
    sink.write_run(snapshot_of(run))
    run.submit(1, 20.0).submit(2, 30.0)
    sink.write_run(snapshot_of(run))
    assert pq.read_table(sweep_paths.tables / "submissions" / "r.parquet").num_rows == 2
    assert pq.read_table(sweep_paths.tables / "items" / "r.parquet").num_rows == 9
    before = inodes(sweep_paths.tables)
    sink.write_run(snapshot_of(run))
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    assert inodes(sweep_paths.tables) == before
    assert not list(sweep_paths.tables.rglob("*.tmp"))


def test_a_damaged_table_is_written_again(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0)
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    path = sweep_paths.tables / "runs" / "r.parquet"
    path.write_bytes(b"PAR1 half")
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    assert pq.read_table(path).num_rows == 1


def test_tables_of_an_older_schema_are_written_again(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0)
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    path = sweep_paths.tables / "runs" / "r.parquet"
    now = pq.read_table(path)
    older = now.drop_columns(["noise_floor"]).replace_schema_metadata(
        {**now.schema.metadata, b"schema_version": b"1"}
    )
    pq.write_table(older, path)
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    assert pq.read_table(path).equals(now)


def test_rebuild_makes_the_same_tables_from_ledgers_alone(
    story: MakeStory, sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = parquet_sink(sweep_paths)
    runs = [story(f"r{i}").start().baseline(5.0).submit(1, 20.0 + i) for i in range(3)]
    for run in runs:
        sink.write_run(snapshot_of(run))
    before = {t: pq.read_table(sweep_paths.tables / t) for t in SCHEMAS}
    shutil.rmtree(sweep_paths.tables)
    assert main([str(sweep_paths.root)]) == 0
    assert capsys.readouterr().out == "3 runs\n"
    for table, rows in before.items():
        assert pq.read_table(sweep_paths.tables / table).equals(rows)
    (sweep_paths.tables / "runs" / "gone.parquet").write_bytes(b"")
    assert rebuild(sweep_paths) == 3
    assert not (sweep_paths.tables / "runs" / "gone.parquet").exists()


def test_rebuild_answers_bad_input_in_one_line(
    tmp_path: Path, story: MakeStory, sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none")]) == 2
    run = story("r").start().baseline(5.0)
    lines = run.path.read_bytes().splitlines(keepends=True)
    run.path.write_bytes(lines[0] + b"{oops\n" + b"".join(lines[2:]))
    assert main([str(sweep_paths.root)]) == 1
    assert "line 2 is damaged" in capsys.readouterr().err


def test_comparison_csv_has_one_row_a_run(story: MakeStory, sweep_paths: SweepPaths) -> None:
    sink = parquet_sink(sweep_paths)
    rows = [
        *snapshot_of(story("a").start().baseline(5.0).submit(1, 20.0)).run_rows(),
        *snapshot_of(story("b").start().baseline(5.0).submit(1, None)).run_rows(),
    ]
    sink.close(rows)
    found = pa_csv.read_csv(sweep_paths.tables / "comparison.csv").to_pylist()
    assert [(r["run_id"], r["best_score"]) for r in found] == [("a", 20.0), ("b", None)]


def test_parquet_that_cannot_open_is_a_sink_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot write tables"):
        ParquetSink(tmp_path / "file" / "tables").open()


# W&B, for real, offline.


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
    story: MakeStory, sweep_paths: SweepPaths, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_wandb_that_cannot_open_is_a_sink_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = WandbSink(tmp_path / "file" / "wandb", config=WandbConfig(), sweep="s")
    with pytest.raises(SinkError, match="W&B"):
        sink.open()


def test_wandb_online_without_a_key_is_refused_before_anything_waits(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from rl_bench.config import WandbConfig\n"
        "from rl_bench.sinks.wandb import WandbSink\n"
        f"WandbSink(Path({str(tmp_path / 'wandb')!r}), config=WandbConfig(mode='online'), "
        "sweep='s').open()\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "SinkError: W&B is online but there is no API key. Run `wandb login`" in done.stderr


class _Mute:
    """Stands in for the sweep's own W&B run."""

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
    assert time.monotonic() - started < 3
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


REWRITER = """
import sys
from pathlib import Path
from rl_bench.ledger import read_ledger
from rl_bench.run_records import records_of
from rl_bench.sinks.parquet import ParquetSink
entries = read_ledger(Path(sys.argv[1]))
sink = ParquetSink(Path(sys.argv[2]))
sink.open()
while True:
    for end in range(1, len(entries) + 1):
        sink.write_run(records_of("r", entries[:end]).snapshot())
        print(end, flush=True)
"""


def test_kill_9_in_mid_write_leaves_whole_files(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0)
    for i in range(1, 6):
        run.submit(i, 10.0 * i)
    for pause_s in (0.0, 0.013, 0.031, 0.05):
        process = subprocess.Popen(
            [sys.executable, "-c", REWRITER, str(run.path), str(sweep_paths.tables)],
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(pause_s)
        process.kill()
        process.stdout.close()
        process.wait()
        for path in sweep_paths.tables.rglob("*.parquet"):
            pq.read_table(path).validate(full=True)
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    (row,) = pq.read_table(sweep_paths.tables / "runs" / "r.parquet").to_pylist()
    assert row["best_score"] == 50.0
    assert pq.read_table(sweep_paths.tables / "submissions" / "r.parquet").num_rows == 5
