"""The generator writes what the runner writes, and the analysis finds what was planted."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.comparisons.cells import cells
from analysis.results import load
from analysis.synthetic.__main__ import main
from analysis.synthetic.conditions import STACKS, TASKS, mean_gain, plan, skill
from analysis.synthetic.outline import outline
from analysis.synthetic.sweep import write_sweep
from rl_bench.ledger import read_ledger
from rl_bench.lineage.read import CodeReader
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.run_view import fold_all
from rl_bench.sinks.parquet import rebuild
from tests.analysis.synthetic_scene import SyntheticSweep


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_sweep(tmp_path / name / "sweep", runs=3, seed=5, items=12)
    first, second = (files_of(tmp_path / name / "sweep") for name in ("a", "b"))
    assert first == second
    write_sweep(tmp_path / "c" / "sweep", runs=3, seed=6, items=12)
    assert files_of(tmp_path / "c" / "sweep") != first


def test_ledgers_are_the_runners_own(synthetic: SyntheticSweep) -> None:
    for name, truth in synthetic.truth["runs"].items():
        view = fold_all(name, read_ledger(synthetic.folder / "runs" / name / "ledger.jsonl"))
        assert view.counts == truth["counts"], truth["fate"]
        accepted = [o for o in truth["outcomes"] if o != "rejected"]
        assert view.num_submissions == len(accepted)
        assert view.num_revisions == (
            truth["num_revisions"] if truth["fate"] != "infra_error" else 0
        )


def test_tables_are_what_the_ledgers_make(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep", runs=4, seed=1, items=12)
    before = files_of(tmp_path / "sweep" / "tables")
    assert rebuild(SweepPaths(tmp_path / "sweep")) == 4
    assert files_of(tmp_path / "sweep" / "tables") == before


def test_code_histories_hold_each_revision(synthetic: SyntheticSweep) -> None:
    revisions = synthetic.results.table("revisions").collect()
    for name, truth in synthetic.truth["runs"].items():
        if not truth["has_code"]:
            continue
        reader = CodeReader(synthetic.folder / "runs" / name / "code.git")
        told = revisions.filter(pl.col("run_id") == name).sort("seq")
        assert [revision.id for revision in reader.revisions()] == told["revision"].to_list()
        accepted = [o for o in truth["outcomes"] if o != "rejected"]
        assert len(reader.submissions()) == len(accepted)


def test_best_scores_are_the_planted_ones(synthetic: SyntheticSweep) -> None:
    for row in synthetic.results.runs.iter_rows(named=True):
        planted = synthetic.truth["runs"][row["run_id"]]["tasks"][row["task"]]
        assert row["best_submission_id"] == planted["best_submission_id"], row["run_id"]
        if planted["best_score"] is not None:
            one_item = 100 / row["num_items"]
            assert row["best_score"] == pytest.approx(planted["best_score"], abs=one_item)


def ended(runs: pl.DataFrame) -> set[str]:
    return set(runs["run_id"])


def planted(synthetic: SyntheticSweep, *fates: str) -> set[str]:
    return {name for name, run in synthetic.truth["runs"].items() if run["fate"] in fates}


def test_few_runs_have_every_way_to_end(synthetic: SyntheticSweep) -> None:
    fates = {run["fate"] for run in synthetic.truth["runs"].values()}
    assert {"infra_error", "driver_error", "invalid", "invalid_submission", "running"} <= fates
    runs = synthetic.results.runs
    assert ended(runs.filter("is_invalid")) == planted(synthetic, "invalid")
    assert ended(runs.filter("is_infrastructure")) == planted(
        synthetic, "infra_error", "driver_error"
    )
    assert ended(runs.filter(pl.col("num_attempts") == 2)) == planted(synthetic, "retried")
    assert ended(runs.filter(pl.col("state") != "finished")) == planted(synthetic, "running")


def test_what_does_not_count_is_in_no_mean(synthetic: SyntheticSweep) -> None:
    found = cells(synthetic.results.runs)
    for cell in found.iter_rows(named=True):
        own = synthetic.results.runs.filter(
            *(pl.col(n) == cell[n] for n in ("agent", "driver", "mode", "task"))
        )
        scored = own.filter(
            pl.col("run_id").is_in(
                [name for name, run in synthetic.truth["runs"].items() if run["counts"]]
            )
        )["best_score"].drop_nulls()
        assert cell["num_scored"] == len(scored)
        if len(scored):
            assert cell["score"] == pytest.approx(scored.mean())


@pytest.mark.slow
def test_stacks_and_gains_are_recovered(tmp_path: Path) -> None:
    """About nine seeds a cell: order of stacks, and cells' means against their own intervals."""
    truth = write_sweep(tmp_path / "sweep", runs=560, seed=3, items=100)
    runs = load([tmp_path / "sweep"]).runs
    found = cells(runs)
    for task in ("alfworld", "webshop"):
        free = found.filter((pl.col("task") == task) & (pl.col("mode") == "free"))
        assert free.sort("gain", descending=True)["stack"].to_list() == truth["stacks"], task
    planted = pl.DataFrame(truth["cells"]).rename({"gain": "planted"})
    both = found.join(planted, on=["agent", "driver", "mode", "task"], how="inner")
    assert both.height == planted.height
    inside = both.select(
        pl.col("planted").is_between("gain_seed_low", "gain_seed_high")
    ).to_series()
    # Of 68 intervals of 95 %, fewer than 58 hold the truth once in 10,000 sweeps.
    assert inside.sum() >= 58
    errors = (both["gain"] - both["planted"]).to_numpy()
    spread = both["gain_sd"].to_numpy() / np.sqrt(both["num_gains"].to_numpy())
    assert abs(np.mean(errors / spread)) < 0.45, "the best of many must not be biased"


def test_driver_and_scaffold_effects_multiply() -> None:
    gains = {stack: mean_gain(stack, "alfworld", "free") for stack in STACKS}
    assert all(
        gain == pytest.approx(TASKS["alfworld"].headroom * skill(stack))
        for stack, gain in gains.items()
    )
    assert len({round(skill(stack), 3) for stack in STACKS}) == len(STACKS)


def test_the_planted_best_is_the_highest() -> None:
    for number, spec in enumerate(plan(200, items=50)):
        made = outline(spec, number, np.random.default_rng([0, number]))
        if made.best is None:
            continue
        task = spec.tasks[0].name
        valid = [r for r in made.requests if r.scores and not r.cheats]
        best = max(r.scores[task] for r in valid)
        assert best == next(r for r in valid if r.training == made.best).scores[task]


def test_ids_are_unique() -> None:
    ids = [run_id(spec) for spec in plan(300, items=50)]
    assert len(set(ids)) == 300


def test_the_command_writes_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sweep"
    assert main([str(out), "--runs", "2", "--items", "10"]) == 0
    assert json.loads((out / "truth.json").read_text())["version"] == 1
    for taken in (out, out / "truth.json"):
        assert main([str(taken), "--runs", "2"]) == 2
        assert f"error: {taken} is no empty folder" in capsys.readouterr().err
    for words in (["--runs", "0"], ["--runs", "x"], ["--items", "9"], ["--seed", "-1"]):
        with pytest.raises(SystemExit) as refused:
            main([str(tmp_path / "other"), *words])
        assert refused.value.code == 2
    assert not (tmp_path / "other").exists()


def test_the_generator_is_light() -> None:
    code = (
        "import sys, analysis.synthetic.__main__, analysis.case_study\n"
        "heavy = {'ray', 'torch', 'vllm', 'transformers'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
