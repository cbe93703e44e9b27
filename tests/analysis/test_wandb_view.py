"""The W&B view, by W&B itself, offline: read back from its file; the same again; and what fails."""

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import wandb_run, wandb_sheets, wandb_view
from analysis.comparisons.compare import compare
from analysis.comparisons.stack_tables import stack_table
from analysis.results import load
from analysis.synthetic.sweep import write_sweep
from analysis.tables import Cell, Column, Table
from analysis.wandb_sheets import (
    ITEMS_A_CELL,
    MAX_CHARS,
    Pages,
    comparison_sheet,
    submissions_sheet,
)
from rl_bench.config import WandbConfig
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.run_records import records_of
from rl_bench.sinks.wandb import WandbSink
from tests.analysis.synthetic_scene import SyntheticSweep
from tests.rl_bench.test_wandb_sink import history, wandb_records

NO_PAGES = Pages(ids={}, links={})


def view(
    *words: str | Path, cwd: Path | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, as W&B keeps artifacts as long as its process lives."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    return subprocess.run(
        [sys.executable, "-m", "analysis.wandb_view", *map(str, words)],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def records(path: Path, kind: str) -> list[Any]:
    found = (r for r in wandb_records(path) if r.WhichOneof("record_type") == kind)
    return [getattr(record, kind) for record in found]


def media(path: Path) -> dict[str, dict[str, Any]]:
    """The one step of the history, by key: nested values come as ``key/field``."""
    (point,) = history(path)
    found: dict[str, dict[str, Any]] = {}
    for name, value in point.items():
        key, _, field = name.rpartition("/")
        found.setdefault(key, {})[field] = value
    return found


def table(path: Path, key: str) -> list[dict[str, Any]]:
    told = json.loads((path.parent / "files" / media(path)[key]["path"]).read_text())
    return [dict(zip(told["columns"], row, strict=True)) for row in told["data"]]


def artifacts(path: Path, kind: str) -> dict[str, Any]:
    return {a.name: a for a in records(path, "artifact") if a.type == kind}


def the_file(folder: Path, wandb_id: str) -> Path:
    (path,) = (folder / "wandb").glob(f"offline-run-*-{wandb_id}/run-{wandb_id}.wandb")
    return path


@pytest.fixture(scope="module")
def copied(synthetic: SyntheticSweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep, with one of its runs mirrored by the runner, and a kept snapshot of the best."""
    folder: Path = tmp_path_factory.mktemp("wandb_view") / synthetic.folder.name
    shutil.copytree(synthetic.folder, folder)
    paths = SweepPaths(folder)
    run_id = mirrored_run(folder)
    sink = WandbSink(paths.wandb, config=WandbConfig(mode="offline"), sweep=folder.name)
    sink.open()
    sink.write_run(records_of(run_id, read_ledger(paths.run(run_id).ledger)).snapshot())
    sink.close([])
    best = best_on(folder, "gsm8k")
    snapshot = paths.snapshots / best["content_hash"]
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(b"w" * 1000)
    return folder


def mirrored_run(folder: Path) -> str:
    return str(load([folder]).runs.filter(pl.col("counts"))["run_id"][0])


def best_on(folder: Path, task: str) -> Mapping[str, Any]:
    results = load([folder])
    runs = results.runs.filter(pl.col("counts") & (pl.col("task") == task))
    best = runs.sort("best_score", descending=True, maintain_order=True, nulls_last=True).row(
        0, named=True
    )
    of_run = results.submissions.filter(
        (pl.col("run_id") == best["run_id"])
        & (pl.col("task") == task)
        & (pl.col("submission_id") == best["best_submission_id"])
    )
    return {**best, "content_hash": of_run["content_hash"][0]}


@pytest.fixture(scope="module")
def mirrored(copied: Path, report_site: Path) -> Path:
    done = view(copied, "--entity", "lab", "--report", report_site, "--models")
    assert done.returncode == 0, done.stderr
    return the_file(copied, f"{copied.name}-analysis")


def test_it_is_one_run_of_the_sweeps_group(mirrored: Path, copied: Path) -> None:
    (run,) = records(mirrored, "run")
    assert (run.job_type, run.run_group, run.project) == ("analysis", copied.name, "rl_bench")
    assert run.run_id == f"{copied.name}-analysis"
    assert [end.exit_code for end in records(mirrored, "exit")] == [0]


def test_comparison_tables_hold_numbers_beside_published_ones(mirrored: Path, copied: Path) -> None:
    comparison = compare(load([copied]))
    model, mode = comparison.groups[0]
    ours = stack_table(comparison, model, mode, "score")
    shown = table(mirrored, f"comparison/{ours.name}")
    labels = [column.label for column in ours.columns]
    assert [[row[label] for label in labels] for row in shown] == [
        [cell.value for cell in row] for row in ours.rows
    ]
    paper = [column.label for column in ours.columns if column.is_published]
    assert [type(shown[0][label]) for label in paper] == [float] * len(paper)
    assert paper
    details = [row[1].detail for row in ours.rows]
    assert [row[f"{labels[1]}: n"] for row in shown] == details
    assert any("n=2" in detail for detail in details)
    keys = media(mirrored)
    for name in ("cells", "driver-spread", "failures", "costs", f"modes-{model}".replace("_", "-")):
        assert f"comparison/{name}" in keys


def test_a_missing_score_is_no_number(mirrored: Path, synthetic: SyntheticSweep) -> None:
    rows = table(mirrored, "runs/all")
    runs = synthetic.results.runs
    assert len(rows) == len(runs)
    expected = {(r["run_id"], r["task"]): r["best_score"] for r in runs.iter_rows(named=True)}
    assert {(row["run_id"], row["task"]): row["best_score"] for row in rows} == expected
    assert None in expected.values()
    assert {row["standing"] for row in rows} >= {"scored", "invalid", "infrastructure"}


def test_runs_and_submissions_are_linked_where_the_runner_mirrored_them(
    mirrored: Path, copied: Path
) -> None:
    run_id = mirrored_run(copied)
    wandb_id = f"{copied.name}-{run_id}"
    for key in ("runs/all", "runs/submissions"):
        rows = table(mirrored, key)
        ((of_run, link),) = {(r["run_id"], r["wandb_page"]) for r in rows if r["wandb_page"]}
        assert of_run == run_id
        assert re.fullmatch(rf"https://[^ ]+/lab/rl_bench/runs/{re.escape(wandb_id)}", link)
        assert {row["wandb_run"] for row in rows} == {wandb_id, None}


def test_report_pages_of_runs_are_in_the_artifact(mirrored: Path, copied: Path) -> None:
    (artifact,) = artifacts(mirrored, "report").values()
    assert artifact.name == f"report-{copied.name}"
    files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
    assert "index.html" in files
    assert {row["report_page"] for row in table(mirrored, "runs/all")} <= set(files)
    assert all(path.is_file() for path in files.values())
    assert "staging" not in str(files["index.html"])  # read where it stands


def test_charts_are_there_at_once(mirrored: Path, copied: Path) -> None:
    panels = {
        update.nested_key[2]: json.loads(update.value_json)
        for config in records(mirrored, "config")
        for update in config.update
        if list(update.nested_key[:2]) == ["_wandb", "visualize"]
    }
    comparison = compare(load([copied]))
    lines = {f"charts/best-so-far-{model}-{mode}" for model, mode in comparison.groups}
    assert lines <= set(panels)
    model, mode = comparison.groups[0]
    panel = panels[f"charts/best-so-far-{model}-{mode}"]["panel_config"]
    assert panel["fieldSettings"] == {"x": "hours", "y": "gain", "stroke": "stack"}
    points = table(mirrored, f"charts/best-so-far-{model}-{mode}_table")
    last: dict[str, float] = {}
    for point in points:
        last[point["stack"]] = point["gain"]
    cells = comparison.cells.filter(
        (pl.col("model") == model) & (pl.col("mode") == mode) & pl.col("gain").is_not_null()
    )
    means = dict(cells.group_by("stack").agg(pl.mean("gain")).iter_rows())
    assert last == pytest.approx(means)
    bars = table(mirrored, f"charts/gain-gsm8k-{model}-{mode}_table")
    expected = dict(cells.filter(pl.col("task") == "gsm8k").select("stack", "gain").iter_rows())
    assert {bar["stack"]: bar["gain"] for bar in bars} == pytest.approx(expected)


def test_items_are_a_bounded_sample(mirrored: Path, synthetic: SyntheticSweep) -> None:
    rows = table(mirrored, "runs/items")
    by_cell: dict[tuple[str, ...], int] = {}
    for row in rows:
        cell = (row["stack"], row["mode"], row["task"], row["model"])
        by_cell[cell] = by_cell.get(cell, 0) + 1
    assert set(by_cell.values()) == {ITEMS_A_CELL}
    all_items = synthetic.results.table("items").collect()
    for row in rows[:5]:
        of_item = all_items.filter(
            (pl.col("run_id") == row["run_id"]) & (pl.col("item_id") == row["item_id"])
            & (pl.col("task") == row["task"])
        )  # fmt: skip
        scores = dict(of_item.select("submission_id", "score").iter_rows())
        assert row["score"] == scores[row["submission_id"]]
        assert row["base_score"] == scores[0]
    assert max(len(row["detail"]) for row in rows) <= MAX_CHARS
    listed = {row["table"]: (row["shown"], row["all"]) for row in table(mirrored, "contents")}
    assert listed["runs/items"] == (len(rows), 2 * len(rows))


def test_best_models_are_paths_unless_files_are_asked_for(mirrored: Path, copied: Path) -> None:
    best = best_on(copied, "gsm8k")
    (artifact,) = artifacts(mirrored, "model").values()
    assert artifact.name == f"best-{best['model']}-gsm8k"
    (entry,) = artifact.manifest.contents
    kept = copied / "snapshots" / best["content_hash"] / "model.safetensors"
    assert (entry.path, entry.ref) == ("checkpoint/model.safetensors", kept.resolve().as_uri())
    assert json.loads(artifact.metadata)["score_percent"] == best["best_score"]
    done = view(copied, "--no-report", "--dir", copied / "elsewhere", "--models", "1")
    assert done.returncode == 0, done.stderr
    (artifact,) = artifacts(
        the_file(copied / "elsewhere", f"{copied.name}-analysis"), "model"
    ).values()
    (entry,) = artifact.manifest.contents
    assert (entry.path, entry.size, entry.ref) == ("model.safetensors", 1000, "")
    assert "best models: 1 with their files, 0 by their paths" in done.stdout


def test_the_same_again_replaces_it(synthetic: SyntheticSweep, tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        done = view(synthetic.folder, "--no-report", "--dir", tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        path = the_file(tmp_path, f"{synthetic.folder.name}-analysis")
        assert done.stdout.splitlines()[-1] == f"{path.parent}: wandb sync {path.parent}"
        shown = {key: json.dumps(table(path, key)) for key in media(path) if "/" in key}
        staged = (tmp_path / "wandb" / "analysis-state").rglob("tmp*")
        made.append((shown, len(list(staged))))
    assert made[0] == made[1]
    assert made[0][1] > 0


def test_what_an_agent_wrote_is_cut_and_hides_nothing() -> None:
    text = "a\u202eb" + "x" * 1000
    told = Table(
        name="t", title="T", columns=(Column(key="a", header="A"),), rows=((Cell(value=text),),)
    )
    ((shown,),) = comparison_sheet(told).rows
    assert isinstance(shown, str)
    assert shown.startswith("a\ufffdbx")
    assert (len(shown), shown[-1]) == (MAX_CHARS, "…")


def test_numbers_that_are_none_are_missing() -> None:
    columns = (Column(key="a", header="A", kind="number"), Column(key="b", header="A"))
    row = (Cell(value=math.inf, detail="n=1"), Cell(value=True, is_best=True, mark="~"))
    sheet = comparison_sheet(Table(name="t", title="T", columns=columns, rows=(row,)))
    assert sheet.columns == ("A [a]", "A [a]: n", "A [b]", "A [b]: mark")
    assert sheet.rows == ((None, "n=1", True, "best ~"),)


def test_of_too_many_submissions_new_bests_stay(
    synthetic: SyntheticSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = synthetic.results
    whole = submissions_sheet(results, compare(results), NO_PAGES)
    assert whole.num_all == len(whole.rows) == len(results.submissions)
    at = whole.columns.index("is_new_best")
    bests = [row for row in whole.rows if row[at]]
    monkeypatch.setattr(wandb_sheets, "MAX_ROWS", len(bests) + 1)
    cut = submissions_sheet(results, compare(results), NO_PAGES)
    assert cut.num_all == whole.num_all
    assert [row for row in cut.rows if row[at]] == bests
    assert len(cut.rows) == len(bests) + 1
    assert list(cut.rows) == [row for row in whole.rows if row in cut.rows]


def test_ids_follow_from_the_set_of_sweeps() -> None:
    assert wandb_run.label_of(["a"]) == "a"
    several = wandb_run.label_of(["b", "a"])
    assert several == wandb_run.label_of(["a", "b", "b"])
    assert several != wandb_run.label_of(["a", "c"])
    assert len(wandb_run.label_of(["x" * 200])) < 100


def test_several_sweeps_are_one_run(tmp_path: Path) -> None:
    for name in ("first", "second"):  # whose runs have the same ids
        write_sweep(tmp_path / "results" / name, runs=4, seed=0, items=10)
    done = view("results", "--no-report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = the_file(tmp_path, f"{wandb_run.label_of(['second', 'first'])}-analysis")
    rows = table(path, "runs/all")
    assert {row["sweep"] for row in rows} == {"first", "second"}
    assert len({row["run_id"] for row in rows}) == 8


def test_a_hanging_wandb_is_left_behind(
    synthetic: SyntheticSweep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(wandb_view, "mirror", lambda job: time.sleep(30))
    words = [str(synthetic.folder), "--no-report", "--dir", str(tmp_path), "--timeout", "0.2"]
    started = time.monotonic()
    assert wandb_view.main(words) == 1
    assert time.monotonic() - started < 25
    assert "W&B did not finish within 0.2 s; left behind" in capsys.readouterr().err


def test_no_wandb_is_said(
    synthetic: SyntheticSweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert wandb_view.main([str(synthetic.folder)]) == 1
    assert "the package wandb is not installed. Install it" in capsys.readouterr().err


def test_bad_input_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wandb_view.main([str(tmp_path / "none")]) == 2
    assert wandb_view.main([str(tmp_path)]) == 2
    assert "holds no results" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_info:
        wandb_view.main([str(tmp_path), "--models", "-1"])
    assert exit_info.value.code == 2


def test_a_folder_that_is_no_report_is_refused(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    words = [str(synthetic.folder), "--report", str(tmp_path), "--dir", str(tmp_path)]
    assert wandb_view.main(words) == 2
    assert "is no report" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def online(
    folder: Path, home: Path, *more: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    words = ("--mode", "online", "--no-report", *more)
    return view(folder, "--dir", home, *words, cwd=home, HOME=str(home), **variables)


def test_online_without_a_key_asks_nobody(synthetic: SyntheticSweep, tmp_path: Path) -> None:
    done = online(synthetic.folder, tmp_path)
    assert done.returncode == 1
    assert "error: W&B is online but there is no API key. Run `wandb login`" in done.stderr


@pytest.mark.slow
def test_a_wandb_that_cannot_be_reached_is_told(synthetic: SyntheticSweep, tmp_path: Path) -> None:
    done = online(
        synthetic.folder, tmp_path, WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="a" * 40
    )
    assert done.returncode == 1
    # Now and then W&B tries for longer than the command waits.
    assert re.search(r"error: W&B (\(online\) cannot open|did not finish)", done.stderr)
    assert "Use --mode offline" in done.stderr


def test_a_wandb_that_never_answers_is_left_behind(
    synthetic: SyntheticSweep, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        done = online(
            synthetic.folder,
            tmp_path,
            *("--timeout", "2"),
            WANDB_BASE_URL=url,
            WANDB_API_KEY="a" * 40,
        )
        assert time.monotonic() - started < 60
    assert done.returncode == 1
    assert "error: W&B did not finish within 2 s; left behind. Use --mode offline" in done.stderr
