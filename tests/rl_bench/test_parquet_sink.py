"""Parquet holds what the ledgers say, again and again, and whole."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from rl_bench.errors import SinkError
from rl_bench.paths import SweepPaths
from rl_bench.records import SCHEMAS, RunSnapshot
from rl_bench.run_records import records_of
from rl_bench.sinks.parquet import ParquetSink, main, rebuild
from tests.rl_bench.agent_story import (
    call,
    one_of_each,
)
from tests.rl_bench.conftest import MakeStory, Story


def snapshot_of(story: Story) -> RunSnapshot:
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
        assert found.schema.metadata[b"schema_version"] == b"4"
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


def test_only_tables_with_new_rows_are_written(story: MakeStory, sweep_paths: SweepPaths) -> None:
    sink = parquet_sink(sweep_paths)
    run = story("r").start().baseline(5.0).add(*one_of_each())
    sink.write_run(snapshot_of(run))
    before = inodes(sweep_paths.tables)
    sink.write_run(snapshot_of(run.add(call(2))))
    after = inodes(sweep_paths.tables)
    changed = {Path(path).parent.name for path in after if after[path] != before[path]}
    assert changed == {"driver_calls", "submissions", "runs"}
    assert pq.read_table(sweep_paths.tables / "driver_calls" / "r.parquet").num_rows == 2


def test_a_damaged_table_is_written_again(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0)
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    path = sweep_paths.tables / "runs" / "r.parquet"
    path.write_bytes(b"PAR1 half")
    parquet_sink(sweep_paths).write_run(snapshot_of(run))
    assert pq.read_table(path).num_rows == 1


def test_what_was_written_is_told_from_what_was_not(
    story: MakeStory, sweep_paths: SweepPaths
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    snapshot = snapshot_of(run)
    sink = parquet_sink(sweep_paths)
    assert not sink.has("r", snapshot.mark)
    sink.write_run(snapshot)
    assert sink.is_behind([snapshot.view]), "it was never closed"
    sink.close(snapshot.run_rows())
    later = parquet_sink(sweep_paths)
    assert later.has("r", snapshot.mark)
    assert not later.is_behind([snapshot.view])
    assert later.is_behind([snapshot.view, snapshot_of(story("new").start()).view])
    assert later.is_behind([snapshot_of(run.start(attempt=1)).view]), "its ledger grew"
    for damaged in ('{"version": 1', "[" * 100_000):
        (sweep_paths.tables / "marks.json").write_text(damaged)
        assert later.is_behind([snapshot.view])


@pytest.mark.parametrize("table", SCHEMAS)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_that_is_gone_or_cut_is_noticed_and_written_again(
    table: str, story: MakeStory, sweep_paths: SweepPaths, *, is_there: bool
) -> None:
    snapshot = snapshot_of(story("r").start().baseline(5.0).submit(1, 20.0).finish())
    sink = parquet_sink(sweep_paths)
    sink.write_run(snapshot)
    sink.close(snapshot.run_rows())
    path = sweep_paths.tables / table / "r.parquet"
    before, times = path.read_bytes(), path.stat()
    path.unlink()
    if is_there:
        path.write_bytes(before[:-1])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    later = parquet_sink(sweep_paths)
    assert later.is_behind([snapshot.view])
    assert not later.has("r", snapshot.mark)
    later.write_run(snapshot)
    assert path.read_bytes() == before
    later.close(snapshot.run_rows())
    assert not later.is_behind([snapshot.view])
    (sweep_paths.tables / "comparison.csv").write_bytes(b"run_id")
    assert later.is_behind([snapshot.view])


def test_what_stands_in_a_files_place_is_told_and_nothing_is_left(
    story: MakeStory, sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    run = story("r").start().baseline(5.0)
    place = sweep_paths.tables / "items" / "r.parquet"
    place.mkdir(parents=True)
    with pytest.raises(SinkError, match=r"cannot write tables of run r: .*items/r\.parquet"):
        parquet_sink(sweep_paths).write_run(snapshot_of(run))
    assert not list(sweep_paths.tables.rglob("*.tmp"))
    assert main([str(sweep_paths.root)]) == 1
    assert "cannot remove" in capsys.readouterr().err


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
    assert capsys.readouterr().out == f"3 runs; tables in {sweep_paths.tables}\n"
    for table, rows in before.items():
        assert pq.read_table(sweep_paths.tables / table).equals(rows)
    (sweep_paths.tables / "runs" / "gone.parquet").write_bytes(b"")
    assert rebuild(sweep_paths) == 3
    assert not (sweep_paths.tables / "runs" / "gone.parquet").exists()


def test_rebuild_answers_bad_input_in_one_line(
    tmp_path: Path, story: MakeStory, sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'none'} holds no runs. Name a sweep's folder, RESULTS/SWEEP\n"
    )
    for words in ([], ["a", "b"], ["--hep"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert "usage: python -m rl_bench.sinks.parquet" in capsys.readouterr().err
    run = story("r").start().baseline(5.0)
    lines = run.path.read_bytes().splitlines(keepends=True)
    run.path.write_bytes(lines[0] + b"{oops\n" + b"".join(lines[2:]))
    assert main([str(sweep_paths.root)]) == 1
    assert "line 2 is damaged" in capsys.readouterr().err


def test_rebuild_goes_on_past_a_damaged_ledger_and_keeps_its_tables(
    story: MakeStory, sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = parquet_sink(sweep_paths)
    runs = [story(name).start().baseline(5.0).submit(1, 20.0) for name in ("a", "b", "c")]
    for run in runs:
        sink.write_run(snapshot_of(run))
    before = {path: path.read_bytes() for path in sweep_paths.tables.rglob("*.parquet")}
    runs[1].path.write_bytes(b"{oops\n" + runs[1].path.read_bytes())
    (sweep_paths.tables / "runs" / "c.parquet").unlink()
    assert main([str(sweep_paths.root)]) == 1
    assert "line 1 is damaged" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in sweep_paths.tables.rglob("*.parquet")} == before


def test_rebuild_leaves_a_running_sweep_alone(
    story: MakeStory, sweep_paths: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    story("r").start()
    with FileLock(sweep_paths.lock):
        assert main([str(sweep_paths.root)]) == 2
    told = capsys.readouterr().err
    assert "sweep 's' is being run" in told
    assert "wait until it has ended" in told
    assert main([str(sweep_paths.root)]) == 0
    sweep_paths.lock.unlink()
    sweep_paths.lock.mkdir()
    assert main([str(sweep_paths.root)]) == 2
    assert "cannot be used" in capsys.readouterr().err


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
