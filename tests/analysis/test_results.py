"""Tables of many files are read some at a time, and come out as if read at once."""

import os
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from analysis import results as reading
from analysis.errors import ResultsError
from analysis.results import Results
from analysis.run_tables import run_rows
from tests.analysis.ledger_scene import LedgerScene
from tests.analysis.synthetic_scene import SyntheticSweep


def test_some_files_at_a_time_are_all_of_them(
    synthetic: SyntheticSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Results((synthetic.folder,))
    assert len(whole.runs) > 25
    monkeypatch.setattr(reading, "FILES_AT_ONCE", 4)
    parts = Results((synthetic.folder,))
    for name in ("runs", "submissions", "findings", "agent_events", "driver_calls"):
        assert_frame_equal(getattr(parts, name), getattr(whole, name))
    late = parts.collected("trace", lambda rows: rows.filter(pl.col("seq") > 20))
    wanted = whole.table("trace").filter(pl.col("seq") > 20).collect()
    assert_frame_equal(late, wanted)
    assert len(wanted) > 100


def test_a_table_without_a_file_has_its_columns(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.end(10)
    results = scene.results()
    (results.folders[0] / "tables" / "findings" / "r.parquet").unlink()
    assert results.findings.is_empty()
    assert "severity" in results.findings.columns


def test_a_damaged_table_of_runs_is_named_with_what_makes_it_anew(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.end(10)
    results = scene.results()
    file = results.folders[0] / "tables" / "runs" / "r.parquet"
    file.write_bytes(b"no table")
    with pytest.raises(ResultsError, match=r"runs/r\.parquet cannot be read") as refused:
        Results(results.folders).runs  # noqa: B018  it is read when it is asked for
    assert f"rl_bench.sinks.parquet {results.folders[0]}" in refused.value.cure


@pytest.mark.parametrize("name", ["submissions", "findings", "agent_events", "driver_calls"])
def test_a_damaged_file_of_any_table_is_named(tmp_path: Path, name: str) -> None:
    scene = LedgerScene(tmp_path)
    scene.end(10)
    results = scene.results()
    table = "events" if name == "agent_events" else name
    (results.folders[0] / "tables" / table / "r.parquet").write_bytes(b"no table")
    with pytest.raises(ResultsError, match=rf"{table}/r\.parquet cannot be read"):
        getattr(results, name)


@pytest.mark.parametrize("table", ["runs", "submissions"])
@pytest.mark.parametrize("what", ["a folder", "a pipe", "a link to nothing"])
def test_what_only_has_the_name_of_a_tables_file_is_told(
    tmp_path: Path, table: str, what: str
) -> None:
    scene = LedgerScene(tmp_path)
    scene.end(10)
    results = scene.results()
    file = results.folders[0] / "tables" / table / "r.parquet"
    file.unlink()
    if what == "a folder":
        file.mkdir()
    elif what == "a pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(tmp_path / "nothing")
    with pytest.raises(ResultsError, match=rf"{table}/r\.parquet is (no file|{what})"):
        getattr(Results(results.folders), table)
    with pytest.raises(OSError, match=rf"{table}/r\.parquet is (no file|{what})"):
        run_rows([(results.folders[0] / "runs" / "r", 0)], {table: ["run_id"]})


def test_a_linked_file_and_a_folder_with_brackets_are_read(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path / "a[b]*")
    scene.end(10)
    results = scene.results()
    file = results.folders[0] / "tables" / "runs" / "r.parquet"
    file.symlink_to(file.rename(tmp_path / "elsewhere.parquet"))
    assert list(Results(results.folders).runs["run_id"]) == ["r"]
    assert run_rows([(results.folders[0] / "runs" / "r", 0)], {"runs": ["run_id"]})[0]["runs"]
