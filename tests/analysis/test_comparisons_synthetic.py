"""What was planted in a whole synthetic sweep comes out of the comparisons."""

from pathlib import Path

import polars as pl
import pytest

from analysis.comparisons.compare import Comparison, compare
from analysis.results import load
from analysis.synthetic.conditions import MULTI_SHARE, TASKS
from analysis.synthetic.sweep import Truth, write_sweep
from tests.analysis.synthetic_scene import SyntheticSweep

CELL = ["agent", "driver", "mode", "task"]


def test_every_run_is_counted_once(synthetic: SyntheticSweep) -> None:
    found = compare(synthetic.results)
    planted = synthetic.truth["runs"]
    assert found.failures["num_runs"].sum() == len(planted)
    counted = sum(run["counts"] for run in planted.values())
    scored, unscored = found.failures.select(pl.sum("num_scored", "num_unscored")).row(0)
    assert scored + unscored == counted
    invalid = sum(run["fate"] == "invalid" for run in planted.values())
    assert found.failures["num_invalid"].sum() == invalid
    ends = found.curves.filter(pl.col("share") == 1.0).sort("model", *CELL)
    cells = found.cells.filter(pl.col("num_scored") > 0).sort("model", *CELL)
    assert ends["kept_score"].to_list() == pytest.approx(cells["score"].to_list())
    assert ends["num_scored"].to_list() == cells["num_scored"].to_list()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Truth, Comparison]:
    folder: Path = tmp_path_factory.mktemp("large") / "sweep"
    truth = write_sweep(folder, runs=400, seed=5, items=60)
    return truth, compare(load([folder]))


@pytest.mark.slow
def test_item_tests_tell_planted_differences_from_none(large: tuple[Truth, Comparison]) -> None:
    truth, found = large
    gains = {
        (c["agent"] + "/" + c["driver"], c["mode"], c["task"]): c["gain"] for c in truth["cells"]
    }
    wide = right_side = 0
    for row in found.pairs.filter(pl.col("mode") != "multi").iter_rows(named=True):
        planted = gains[row["stack_b"], row["mode"], row["task"]]
        planted -= gains[row["stack_a"], row["mode"], row["task"]]
        if abs(planted) > 25:
            wide += 1
            right_side += row["difference"] * planted > 0 and row["p_holm"] < 0.05
        if row["p_holm"] < 0.05 and abs(planted) > 4:
            assert row["difference"] * planted > 0, row
    assert wide > 10
    assert right_side == wide


@pytest.mark.slow
def test_factors_are_recovered(large: tuple[Truth, Comparison]) -> None:
    truth, found = large
    skill = truth["skill"]
    free = found.driver_pairs.filter((pl.col("mode") == "free") & (pl.col("num_tasks") >= 4))
    checked = 0
    for row in free.iter_rows(named=True):
        planted = skill[f"{row['held']}/{row['b']}"] - skill[f"{row['held']}/{row['a']}"]
        if abs(planted) > 0.15:
            checked += 1
            assert row["difference"] * planted > 0, row
    assert checked > 0
    gains = found.multi_single.select("multi_gain", "single_gain").to_numpy().sum(axis=0)
    share = float(gains[0] / gains[1])
    assert share == pytest.approx(MULTI_SHARE, abs=0.12)
    spread = dict(found.mode_spread.select("task", "highest").iter_rows())
    for task, highest in spread.items():
        shares = {"free": 1.0, "sft_only": TASKS[task].sft_share, "rl_only": TASKS[task].rl_share}
        assert shares[highest] >= max(shares.values()) - 0.1, task


@pytest.mark.slow
def test_static_gains_go_with_interactive_ones_as_planted(large: tuple[Truth, Comparison]) -> None:
    _, found = large
    free = found.correlations.filter(pl.col("mode") == "free").row(0, named=True)
    assert free["rho"] > 0.7
    assert free["num_stacks"] >= 6
