"""Cells, failures, repeats and costs, on runs whose means can be done by hand."""

import math
from pathlib import Path

import polars as pl
import pytest

from analysis import published
from analysis.comparisons.cells import cells, failures, published_cells, with_standing
from analysis.comparisons.compare import compare
from analysis.comparisons.repeats import costs, over_seeds
from analysis.results import load
from tests.analysis.frames import Run, right, write


def runs_of(folder: Path, runs: list[Run]) -> pl.DataFrame:
    return with_standing(load([write(folder, runs)]).runs)


def one(frame: pl.DataFrame, **where: object) -> dict[str, object]:
    rows = frame.filter(pl.lit(value=True), *(pl.col(k) == value for k, value in where.items()))
    assert rows.height == 1, (where, rows)
    return rows.row(0, named=True)


MIXED = [
    Run(name="r0", seed=0, scores=[55.0, 60.0], cost=10.0),
    Run(name="r1", seed=1, scores=[70.0], cost=20.0),
    Run(name="nothing", seed=2, cost=5.0),
    Run(name="broken", seed=3, scores=[99.0], is_invalid=True, cost=7.0),
    Run(name="lost", seed=4, scores=[98.0], is_infrastructure=True, end="infra_error", cost=3.0),
    Run(name="going", seed=5, scores=[97.0], end=None, cost=1.0),
]


def test_only_scored_runs_enter_a_mean_and_all_are_counted(tmp_path: Path) -> None:
    cell = one(cells(runs_of(tmp_path, MIXED)))
    assert cell["score"] == 65.0
    assert cell["gain"] == 15.0
    assert cell["score_max"] == 70.0
    assert cell["best_run"] == "r1"
    assert cell["seeds"] == [0, 1]
    assert cell["num_runs"] == 6
    assert [cell[f"num_{name}"] for name in ("scored", "unscored", "invalid")] == [2, 1, 1]
    assert [cell[f"num_{name}"] for name in ("infrastructure", "unfinished")] == [1, 1]
    assert cell["stack"] == "a/d"
    # Student: 65 +- 12.7062 * sqrt(50) / sqrt(2)
    assert cell["seed_low"] == pytest.approx(65 - 12.7062 * 5, abs=0.01)
    assert cell["seed_high"] == pytest.approx(65 + 12.7062 * 5, abs=0.01)


def test_a_cell_without_a_score_has_nulls_not_zeros(tmp_path: Path) -> None:
    cell = one(cells(runs_of(tmp_path, [Run(name="nothing"), Run(name="lost", end=None)])))
    for name in (
        "score",
        "gain",
        "score_sd",
        "seed_low",
        "noise_floor",
        "within_noise",
        "best_run",
    ):
        assert cell[name] is None, name
    assert cell["best_run"] is None
    assert cell["num_scored"] == 0
    assert cell["seeds"] == []


def test_one_seed_shows_no_spread(tmp_path: Path) -> None:
    cell = one(cells(runs_of(tmp_path, [Run(name="r", scores=[60.0])])))
    assert cell["score"] == 60.0
    assert cell["score_sd"] is None
    assert cell["seed_low"] is None


def test_a_run_without_a_baseline_has_a_score_and_no_gain(tmp_path: Path) -> None:
    made = runs_of(
        tmp_path,
        [Run(name="a", scores=[60.0], baseline=None), Run(name="b", seed=1, scores=[70.0])],
    )
    cell = one(cells(made))
    assert (cell["score"], cell["gain"]) == (65.0, 20.0)
    assert (cell["num_scored"], cell["num_gains"]) == (2, 1)


@pytest.mark.parametrize(("gain", "within"), [(1.0, True), (1.5, False), (-1.0, True)])
def test_noise_of_a_mean_shrinks_with_its_runs(tmp_path: Path, gain: float, within: bool) -> None:
    # Two floors of 2 points: sqrt(2^2 + 2^2) / 2 = 1.414 for the mean.
    pair = [Run(name=f"r{i}", seed=i, scores=[50.0 + gain], floor=2.0) for i in range(2)]
    cell = one(cells(runs_of(tmp_path, pair)))
    assert cell["noise_floor"] == pytest.approx(math.sqrt(2))
    assert cell["noise_source"] == "measured"
    assert cell["within_noise"] is within


def test_published_noise_stands_in_and_says_so(tmp_path: Path) -> None:
    pair = [
        Run(name="told", task="deepsearchqa", baseline=10.0, scores=[12.0]),
        Run(name="unknown", task="gsm8k", scores=[50.1]),
    ]
    made = cells(runs_of(tmp_path, pair))
    told = one(made, task="deepsearchqa")
    assert told["noise_floor"] == published.noise("deepsearchqa")
    assert (told["noise_source"], told["within_noise"]) == ("published", True)
    unknown = one(made, task="gsm8k")
    assert (unknown["noise_floor"], unknown["within_noise"]) == (None, None)


def test_conditions_that_differ_within_a_cell_are_named(tmp_path: Path) -> None:
    pair = [
        Run(name="long", scores=[60.0]),
        Run(name="short", seed=1, scores=[55.0], budget="4h", budget_h=4.0),
        Run(name="other", task="humaneval", scores=[55.0], budget="4h"),
    ]
    made = cells(runs_of(tmp_path, pair))
    assert one(made, task="gsm8k")["mixed"] == "budget"
    assert one(made, task="humaneval")["mixed"] == ""


def test_the_papers_figure_stands_beside_ours(tmp_path: Path) -> None:
    run = Run(
        name="r", model="qwen3_8b_base", agent="claude_code", driver="opus_4_6", task="alfworld",
        baseline=8.0, scores=[90.0],
    )  # fmt: skip
    cell = one(cells(runs_of(tmp_path, [run])))
    assert cell["published_baseline"] == 8.96
    assert cell["published_score"] == 97.76
    assert cell["published_gain"] == pytest.approx(88.80)
    assert cell["score"] == 90.0
    assert set(published_cells()["stack"]) >= {"claude_code/opus_4_6", "codex/gpt_4o"}


def test_failures_count_a_run_on_many_tasks_once(tmp_path: Path) -> None:
    many = [
        Run(name="m", task=task, mode="multi", tasks=("gsm8k", "alfworld"), scores=scores)
        for task, scores in (("gsm8k", [60.0, None]), ("alfworld", []))
    ]
    found = failures(runs_of(tmp_path, [*MIXED, *many]))
    multi = one(found, mode="multi")
    assert (multi["num_runs"], multi["num_scored"], multi["num_failed"]) == (1, 1, 1)
    free = one(found, mode="free")
    assert free["ends"] == "completed 4, infra_error 1, still running 1"
    assert free["num_runs"] == 6


def test_pass_and_best_of_k_by_hand(tmp_path: Path) -> None:
    three = [
        Run(name="up", seed=0, scores=[60.0]),
        Run(name="down", seed=1, scores=[40.0]),
        Run(name="nothing", seed=2),
        Run(name="lost", seed=3, scores=[90.0], is_infrastructure=True),
    ]
    found = over_seeds(runs_of(tmp_path, three))
    assert found["k"].to_list() == [1, 2, 3]
    first, second, third = found.to_dicts()
    assert first["pass_at_k"] == pytest.approx(100 / 3)
    assert second["pass_at_k"] == pytest.approx(200 / 3)
    assert third["pass_at_k"] == 100.0
    assert (first["best_score"], second["best_score"], third["best_score"]) == (50.0, 60.0, None)
    assert (first["best_gain"], second["best_gain"]) == (0.0, 10.0)
    assert (first["num_runs"], first["num_scored"], first["num_succeeded"]) == (3, 2, 1)


def test_a_gain_within_noise_is_no_success(tmp_path: Path) -> None:
    found = over_seeds(runs_of(tmp_path, [Run(name="r", scores=[51.0], floor=2.0)]))
    assert found["num_succeeded"].to_list() == [0]
    assert found["pass_at_k"].to_list() == [0.0]


def test_cost_a_point_and_what_was_spent_without_a_score(tmp_path: Path) -> None:
    cost = one(costs(runs_of(tmp_path, MIXED)))
    assert cost["cost_usd"] == 15.0
    assert cost["usd_per_point"] == 1.0
    assert cost["wasted_usd"] == pytest.approx(5 + 7 + 3 + 1)
    assert (cost["num_priced"], cost["why"]) == (2, "")


def test_cost_of_no_gain_is_no_number(tmp_path: Path) -> None:
    made = costs(
        runs_of(
            tmp_path,
            [
                Run(name="flat", scores=[50.0]),
                Run(name="noise", task="humaneval", scores=[51.0], floor=2.0),
                Run(name="free", task="alpacaeval", scores=[60.0], cost=None),
                Run(name="none", task="alfworld"),
            ],
        )
    )
    assert made["usd_per_point"].to_list() == [None] * 4
    why = dict(made.select("task", "why").iter_rows())
    assert why == {
        "gsm8k": "no gain",
        "humaneval": "gain within noise",
        "alpacaeval": "no driver was called",
        "alfworld": "no scored run",
    }


def test_what_is_known_without_a_cost_is_told(tmp_path: Path) -> None:
    cost = one(costs(runs_of(tmp_path, [Run(name="r", scores=[60.0], used_h=5.0, cost=None)])))
    assert (cost["num_priced"], cost["cost_usd"], cost["usd_per_point"]) == (0, None, None)
    assert (cost["gain"], cost["hours"], cost["tokens"]) == (10.0, 5.0, 1100.0)
    assert cost["hours_per_point"] == 0.5
    half = [Run(name="a", scores=[60.0], used_h=5.0), Run(name="b", scores=[90.0], cost=None)]
    cost = one(costs(runs_of(tmp_path / "half", half)))
    assert (cost["num_priced"], cost["gain"], cost["hours"]) == (1, 10.0, 5.0)
    assert (cost["usd_per_point"], cost["why"]) == (1.0, "")


def test_a_run_on_many_tasks_shares_its_cost(tmp_path: Path) -> None:
    both = ("gsm8k", "alfworld")
    many = [
        Run(name="m", task=task, mode="multi", tasks=both, scores=[60.0], cost=30.0)
        for task in both
    ]
    assert costs(runs_of(tmp_path, many))["cost_usd"].to_list() == [15.0, 15.0]


@pytest.mark.parametrize(
    "runs",
    [
        [Run(name="nothing")],
        [Run(name="lost", is_infrastructure=True, end="infra_error")],
        [Run(name="going", end=None, used_h=0.0)],
        [Run(name="one", scores=[60.0])],
        [Run(name="no_base", scores=[60.0], baseline=None)],
        [Run(name="full", scores=[100.0], baseline=100.0)],
    ],
    ids=lambda runs: runs[0].name,
)
def test_degenerate_sweeps_compare_without_invented_numbers(
    tmp_path: Path, runs: list[Run]
) -> None:
    comparison = compare(load([write(tmp_path, runs)]))
    assert comparison.cells.height == 1
    assert comparison.pairs.is_empty()
    assert comparison.mode_spread.is_empty()
    assert comparison.cells["item_low"].to_list() == [None]
    assert comparison.cells["p_gain"].to_list() == [None]
    scored = runs[0].best is not None
    assert comparison.curves.is_empty() is not scored
    assert comparison.cells["score"].null_count() == int(not scored)


def test_the_same_seed_gives_the_same_comparison(tmp_path: Path) -> None:
    items = {0: right(50, 100, seed=1), 1: right(62, 100, seed=2)}
    runs = [
        Run(name=f"{agent}{seed}", agent=agent, seed=seed, scores=[62.0], items=items)
        for agent in "ab"
        for seed in range(2)
    ]
    folder = write(tmp_path, runs)
    first, second = compare(load([folder]), seed=3), compare(load([folder]), seed=3)
    assert first.cells.equals(second.cells)
    assert first.pairs.equals(second.pairs)
    assert first.curves.equals(second.curves)
    assert first.groups == [("m", "free")]
