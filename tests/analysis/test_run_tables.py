"""Rows of several runs that are read together."""

from pathlib import Path

from analysis.run_tables import run_rows
from tests.analysis.synthetic_scene import SyntheticSweep

TABLES = {"submissions": ("run_id", "submission_id", "score"), "trace": ("seq", "kind")}


def test_runs_read_together_have_the_rows_that_each_has_alone(synthetic: SyntheticSweep) -> None:
    folders = [Path(folder) for folder in synthetic.results.runs["folder"].unique()[:20]]
    together = run_rows([(folder, 0) for folder in folders], TABLES)
    assert together == [run_rows([(folder, 0)], TABLES)[0] for folder in folders]
    for folder, own in zip(folders, together, strict=True):
        assert {row["run_id"] for row in own["submissions"]} <= {folder.name}
        assert [row["seq"] for row in own["trace"]] == sorted(row["seq"] for row in own["trace"])
    assert any(own["submissions"] and own["trace"] for own in together)


def test_a_run_without_tables_and_another_attempt_have_no_rows(synthetic: SyntheticSweep) -> None:
    there = synthetic.results.submissions["run_id"][0]
    folder = synthetic.folder / "runs" / there
    rows = run_rows([(folder, 0), (folder.with_name("gone"), 0)], TABLES)
    assert rows[0]["submissions"]
    assert rows[1] == {"submissions": [], "trace": []}
    assert not run_rows([(folder, 7)], TABLES)[0]["submissions"]
