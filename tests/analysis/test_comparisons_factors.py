"""What one factor does: by hand, on planted sweeps, and on the study's own figures."""

from pathlib import Path

import polars as pl
import pytest

from analysis.comparisons import factors
from analysis.comparisons.cells import cells, published_cells
from analysis.results import load
from tests.analysis.frames import LEVEL, Run, write

GAINS = {
    ("codex", "weak"): 2.0,
    ("codex", "strong"): 22.0,
    ("claude_code", "strong"): 32.0,
    ("claude_code", "odd"): 12.0,
}
TASKS = ("gsm8k", "alpacaeval", "alfworld", "webshop")


def planted(folder: Path, runs: list[Run] | None = None) -> pl.DataFrame:
    """Gains by stack, doubled on interactive tasks."""
    runs = runs or [
        Run(
            name=f"{agent}-{driver}-{task}-{seed}", agent=agent, driver=driver, task=task,
            seed=seed, baseline=20.0,
            scores=[20.0 + gain * (2 if LEVEL[task] == "L3" else 1)],
        )
        for (agent, driver), gain in GAINS.items()
        for task in TASKS
        for seed in range(2)
    ]  # fmt: skip
    return cells(load([write(folder, runs)]).runs)


def test_drivers_within_a_scaffold(tmp_path: Path) -> None:
    made = planted(tmp_path)
    found = factors.sensitivity(made, "driver")
    row = found.filter((pl.col("held") == "codex") & (pl.col("task") == "gsm8k")).row(0, named=True)
    assert (row["lowest"], row["highest"], row["spread"]) == ("weak", "strong", 20.0)
    pairs = factors.sensitivity_pairs(made, "driver")
    row = pairs.filter(pl.col("held") == "codex").row(0, named=True)
    assert (row["a"], row["b"], row["num_tasks"]) == ("strong", "weak", 4)
    # Twice -20 on static tasks and twice -40 on interactive ones.
    assert row["difference"] == pytest.approx(-30.0)
    assert row["low"] < -20 <= row["high"] + 1
    assert row["p_value"] == pytest.approx(2 / 2**4)


def test_scaffolds_within_a_driver(tmp_path: Path) -> None:
    made = planted(tmp_path)
    found = factors.sensitivity(made, "agent")
    assert set(found["held"]) == {"strong"}
    pairs = factors.sensitivity_pairs(made, "agent")
    assert pairs.height == 1
    assert (pairs["a"][0], pairs["b"][0]) == ("claude_code", "codex")
    assert pairs["difference"][0] == pytest.approx(-15.0)


def test_only_common_tasks_are_compared(tmp_path: Path) -> None:
    made = planted(
        tmp_path,
        [
            Run(name="a", driver="x", task="gsm8k", scores=[60.0]),
            Run(name="b", driver="y", task="gsm8k", scores=[70.0]),
            Run(name="c", driver="y", task="alfworld", scores=[99.0]),
        ],
    )
    row = factors.sensitivity_pairs(made, "driver").row(0, named=True)
    assert (row["num_tasks"], row["tasks"], row["difference"]) == (1, ["gsm8k"], 10.0)
    assert (row["low"], row["high"], row["p_value"], row["p_holm"]) == (None, None, None, None)


def test_levels_are_contrasted_on_the_same_stacks(tmp_path: Path) -> None:
    made = planted(tmp_path)
    means = factors.level_means(made)
    row = means.filter((pl.col("stack") == "codex/weak") & (pl.col("level") == "L3"))
    assert row["gain"].to_list() == [4.0]
    assert row["num_tasks"].to_list() == [2]
    assert row["headroom_share"].to_list() == [5.0]
    contrasts = factors.level_contrasts(made)
    found = {(row["a"], row["b"]): row for row in contrasts.to_dicts()}
    assert set(found) == {("L1", "L2"), ("L1", "L3"), ("L2", "L3")}
    assert found["L1", "L2"]["difference"] == 0.0
    assert found["L1", "L3"]["difference"] == pytest.approx(sum(GAINS.values()) / 4)
    assert found["L1", "L3"]["num_stacks"] == 4


def test_static_gains_go_with_interactive_ones(tmp_path: Path) -> None:
    made = planted(tmp_path)
    points = factors.static_interactive(made)
    assert points["is_complete"].all()
    row = factors.static_interactive_correlation(points).row(0, named=True)
    assert (row["num_stacks"], row["num_incomplete"], row["rho"]) == (4, 0, pytest.approx(1.0))
    assert row["p_value"] == pytest.approx(2 / 24)


def test_a_stack_that_lacks_a_task_is_left_out_of_the_correlation(tmp_path: Path) -> None:
    runs = [
        Run(name=f"{agent}{task}", agent=agent, task=task, scores=[50.0 + place])
        for place, agent in enumerate("abc")
        for task in ("gsm8k", "alfworld", "webshop")
        if (agent, task) != ("c", "webshop")
    ]
    points = factors.static_interactive(planted(tmp_path, runs))
    row = factors.static_interactive_correlation(points).row(0, named=True)
    assert (row["num_stacks"], row["num_incomplete"]) == (2, 1)
    assert (row["rho"], row["p_value"]) == (None, None)


def test_modes_are_compared_on_the_stacks_that_have_them_all(tmp_path: Path) -> None:
    runs = [
        Run(name=f"{agent}{mode}", agent=agent, mode=mode, scores=[score])
        for agent, mode, score in (
            ("a", "free", 60.0),
            ("a", "sft_only", 70.0),
            ("b", "free", 95.0),
            ("a", "multi", 55.0),
        )
    ]
    found = factors.modes(planted(tmp_path, runs))
    assert found["mode"].to_list() == ["free", "sft_only", "multi"]
    free = found.row(0, named=True)
    assert (free["score"], free["shared_score"], free["num_shared"]) == (77.5, 60.0, 1)
    assert free["best"] == 95.0
    assert found["shared_score"].to_list() == [60.0, 70.0, None]
    spread = factors.mode_spread(found).row(0, named=True)
    assert (spread["lowest"], spread["highest"], spread["spread"]) == ("free", "sft_only", 10.0)


def test_the_papers_modes_stand_beside_ours(tmp_path: Path) -> None:
    runs = [
        Run(name=mode, model="qwen2_5_7b_instruct", task="alfworld", mode=mode, scores=[60.0])
        for mode in ("free", "sft_only", "rl_only")
    ]
    found = factors.modes(planted(tmp_path, runs))
    told = dict(found.select("mode", "published_best").iter_rows())
    assert told == {"free": 95.52, "sft_only": 67.91, "rl_only": 93.28}


def test_one_run_on_all_tasks_against_a_run_a_task(tmp_path: Path) -> None:
    runs = [
        Run(
            name=f"{mode}{task}", model="qwen3_8b_base", agent="claude_code", driver="opus_4_6",
            mode=mode, task=task, scores=[score],
        )
        for mode, task, score in (
            ("free", "webshop", 70.0), ("multi", "webshop", 20.0), ("free", "gsm8k", 90.0)
        )
    ]  # fmt: skip
    found = factors.multi_single(planted(tmp_path, runs))
    assert found.height == 1
    assert found["difference"].to_list() == [-50.0]
    assert found["published_difference"].to_list() == [pytest.approx(13.00 - 67.00)]


def test_the_studys_own_spreads_come_out_of_the_same_functions() -> None:
    figures = published_cells([("alfworld", "L3")])
    found = factors.sensitivity(figures, "driver").filter(
        (pl.col("model") == "qwen3_8b_base") & (pl.col("task") == "alfworld")
    )
    spreads = {
        row["held"]: (row["lowest"], row["highest"], round(row["spread"], 2))
        for row in found.to_dicts()
    }
    assert spreads["codex"] == ("gpt_4o", "gpt_5_2", round(78.35 - 0.74, 2))
    assert spreads["claude_code"] == ("sonnet_4_5", "opus_4_6", round(88.80 - 6.71, 2))


def test_nothing_to_compare_gives_empty_frames() -> None:
    empty = published_cells().clear()
    assert factors.sensitivity(empty, "driver").is_empty()
    assert factors.sensitivity_pairs(empty, "agent").is_empty()
    points = factors.static_interactive(empty.with_columns(baseline=0.0))
    assert factors.static_interactive_correlation(points).is_empty()
