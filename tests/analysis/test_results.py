"""Tables of many files are read some at a time, and come out as if read at once."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from analysis import results as reading
from analysis.errors import ResultsError
from analysis.results import Results
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
