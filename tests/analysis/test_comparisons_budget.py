"""Best so far over the budget, cuts at hours, and the driver's use by hour."""

from pathlib import Path

import polars as pl
import pytest

from analysis.comparisons.budget import (
    best_so_far,
    budget_curves,
    curves_by_stack,
    truncations,
    usage_by_hour,
)
from analysis.results import Results, load
from tests.analysis.frames import Run, write


def of(folder: Path, *runs: Run) -> Results:
    return load([write(folder, list(runs))])


def test_cuts_by_hand(tmp_path: Path) -> None:
    results = of(
        tmp_path,
        Run(name="early", seed=0, scores=[55.0, 52.0, 70.0], hours=[0.5, 3.0, 7.0]),
        Run(name="late", seed=1, scores=[None, 60.0], hours=[1.0, 5.0]),
        Run(name="never", seed=2, scores=[None], hours=[1.0]),
        Run(name="lost", seed=3, scores=[99.0], hours=[0.1], is_infrastructure=True),
    )
    cut = truncations(results.submissions, results.runs)
    assert cut["hours"].to_list() == [1.0, 2.0, 4.0, 8.0, 12.0]
    assert cut["num_runs"].to_list() == [2] * 5
    assert cut["num_scored"].to_list() == [1, 1, 1, 2, 2]
    assert cut["score"].to_list() == [55.0, 55.0, 55.0, 65.0, 65.0]
    assert cut["kept_gain"].to_list() == [2.5, 2.5, 2.5, 15.0, 15.0]
    assert cut["final_gain"].to_list() == [15.0] * 5
    assert cut["reached"].to_list() == pytest.approx([100 / 6] * 3 + [100.0] * 2)


def test_an_hour_beyond_the_budget_is_no_moment_of_the_run(tmp_path: Path) -> None:
    results = of(
        tmp_path,
        Run(name="short", seed=0, scores=[60.0], hours=[1.0], budget_h=4.0),
        Run(name="long", seed=1, scores=[80.0], hours=[1.0]),
    )
    cut = truncations(results.submissions, results.runs)
    assert dict(cut.select("hours", "num_runs").iter_rows())[4.0] == 2
    assert dict(cut.select("hours", "num_runs").iter_rows())[8.0] == 1
    assert cut.filter(pl.col("hours") == 8.0)["kept_gain"].to_list() == [30.0]


def test_a_curve_starts_at_the_base_model_and_ends_at_the_best(tmp_path: Path) -> None:
    results = of(tmp_path, Run(name="r", scores=[40.0, 65.0], hours=[3.0, 6.0]))
    curve = budget_curves(results.submissions, results.runs, num_shares=4)
    assert curve["share"].to_list() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert curve["hours"].to_list() == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert curve["kept_score"].to_list() == [50.0, 40.0, 65.0, 65.0, 65.0]
    assert curve["score"].to_list() == [None, 40.0, 65.0, 65.0, 65.0]


def test_without_a_baseline_nothing_stands_in(tmp_path: Path) -> None:
    results = of(tmp_path, Run(name="r", scores=[65.0], hours=[6.0], baseline=None))
    curve = budget_curves(results.submissions, results.runs, num_shares=2)
    assert curve["kept_score"].to_list() == [None, 65.0, 65.0]
    assert curve["kept_gain"].to_list() == [None] * 3
    assert curves_by_stack(curve).is_empty()


def test_steps_only_rise_and_leave_invalid_submissions_out(tmp_path: Path) -> None:
    results = of(tmp_path, Run(name="r", scores=[60.0, 90.0, 55.0, 70.0]))
    submissions = results.submissions.with_columns(is_invalid=pl.col("score") == 90.0)
    steps = best_so_far(submissions, results.runs)
    assert steps["best"].to_list() == [60.0, 60.0, 70.0]


def test_a_stack_averages_its_tasks_once_each(tmp_path: Path) -> None:
    results = of(
        tmp_path,
        Run(name="a", task="gsm8k", scores=[60.0]),
        Run(name="b", task="gsm8k", seed=1, scores=[60.0]),
        Run(name="c", task="alfworld", scores=[80.0]),
    )
    curve = curves_by_stack(budget_curves(results.submissions, results.runs, num_shares=1))
    assert curve["kept_gain"].to_list() == [0.0, 20.0]
    assert curve["num_tasks"].to_list() == [2, 2]
    cut = curves_by_stack(truncations(results.submissions, results.runs), "hours")
    assert cut["kept_gain"].to_list() == [20.0] * 5


def test_use_by_hour_is_a_mean_over_the_runs_that_got_there(tmp_path: Path) -> None:
    results = of(
        tmp_path,
        Run(name="long", seed=0, calls=[(0.5, 100, 1.0), (2.5, 50, None)], used_h=3.0),
        Run(name="short", seed=1, calls=[(0.1, 300, 3.0)], used_h=0.5),
        Run(name="unknown", seed=2, used_h=3.0),
        Run(name="lost", seed=3, calls=[(0.1, 999, 9.0)], is_infrastructure=True),
    )
    use = usage_by_hour(results.driver_calls, results.runs)
    assert use["hour"].to_list() == [0, 1, 2]
    assert use["num_runs"].to_list() == [2, 1, 1]
    assert use["input_tokens"].to_list() == [200.0, 0.0, 50.0]
    assert use["cost_usd"].to_list() == [2.0, 0.0, None]


def test_a_run_on_many_tasks_is_used_once(tmp_path: Path) -> None:
    many = [
        Run(
            name="m", task=task, mode="multi", tasks=("gsm8k", "alfworld"),
            calls=[(0.5, 100, 1.0)] if task == "gsm8k" else [], used_h=1.0,
        )
        for task in ("gsm8k", "alfworld")
    ]  # fmt: skip
    results = of(tmp_path, *many)
    use = usage_by_hour(results.driver_calls, results.runs)
    assert use["input_tokens"].to_list() == [100.0]
