"""What is computed of a run's submissions, calls and failures, against runs told by hand."""

from pathlib import Path

import polars as pl
import pytest

from analysis.errors import ResultsError
from analysis.results import load
from analysis.trajectories import (
    failures,
    queue_credit,
    run_figures,
    score_at,
    spending,
    trajectory,
)
from rl_bench.config import Api
from rl_bench.events import DriverCall, DriverFailure, FindingMade
from tests.analysis.ledger_scene import BUDGET_S, LedgerScene
from tests.analysis.synthetic_scene import SyntheticSweep


def breach(number: int) -> FindingMade:
    return FindingMade(
        rule="known_checkpoint",
        severity="breach",
        rules_version="1",
        summary="it was downloaded",
        submission_id=number,
    )


def call(
    number: int, at_s: float, *, tokens: int | None = 100, usd: float | None = 0.5
) -> DriverCall:
    return DriverCall(
        call=number,
        api=Api.OPENAI,
        route="/v1/x",
        failure=None if tokens is not None else DriverFailure.TIMEOUT,
        latency_s=1.0,
        input_tokens=tokens,
        output_tokens=tokens,
        cost_usd=usd,
        budget_used_s=at_s,
    )


@pytest.fixture
def scene(tmp_path: Path) -> LedgerScene:
    """One submission of every kind."""
    made = LedgerScene(tmp_path)
    made.submit(1, 100, 50.0, unchanged=True)
    made.submit(2, 200, 60.0)
    made.submit(3, 300, None)
    made.submit(4, 400, 60.0, duplicate_of=2)
    made.refuse(450)
    made.submit(5, 500, 55.0)
    made.submit(6, 600, 70.0)
    made.submit(7, 700, 65.0)
    made.submit(8, 800, graded=False)
    made.tell(breach(6), 900)
    made.end(1000, credit_s=40)
    return made


def test_each_submission_is_of_one_kind(scene: LedgerScene) -> None:
    told = trajectory(scene.results())
    kinds = ["unchanged", "valid", "failed", "duplicate", "valid", "invalid", "valid", "pending"]
    assert told["kind"].to_list() == kinds
    assert told["submission_id"].to_list() == list(range(1, 9))


def test_the_best_so_far_is_of_what_counts(scene: LedgerScene) -> None:
    told = trajectory(scene.results())
    assert told["best_after"].to_list() == [50.0, 60.0, 60.0, 60.0, 60.0, 60.0, 65.0, 65.0]
    assert told["best_before"].to_list() == [None, 50.0, 60.0, 60.0, 60.0, 60.0, 60.0, 65.0]
    new = told.filter("is_new_best")["submission_id"].to_list()
    assert new == [1, 2, 7]
    assert told["score"][5] == 70.0, "the score of an invalid submission is kept"


def test_figures_of_a_run(scene: LedgerScene) -> None:
    figure = run_figures(scene.results()).row(0, named=True)
    counts = {name: figure[f"num_{name}"] for name in ("valid", "invalid", "failed", "pending")}
    assert counts == {"valid": 3, "invalid": 1, "failed": 1, "pending": 1}
    assert (figure["num_duplicate"], figure["num_unchanged"], figure["num_rejected"]) == (1, 1, 1)
    assert figure["first_valid_s"] == 100.0
    assert figure["first_improvement_s"] == 200.0
    assert figure["best_s"] == 700.0
    assert figure["num_new_bests"] == 3
    # Of the valid ones 2, 5 and 7 came after a first score, and 5 fell below it.
    assert figure["monotonic_ratio"] == pytest.approx(2 / 3)
    assert (figure["last_s"], figure["gap_after_last_s"]) == (800.0, 200.0)
    assert figure["gap_after_best_s"] == 300.0
    assert figure["budget_share"] == pytest.approx(1000 / BUDGET_S)
    assert figure["queue_wait_s"] == pytest.approx(2.0 * 8), "the baseline and seven verdicts"


def test_a_gain_within_the_noise_is_no_clear_one(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 100, 51.5)
    scene.submit(2, 200, 53.0)
    scene.end(300)
    figure = run_figures(scene.results()).row(0, named=True)
    assert figure["first_improvement_s"] == 100.0
    assert figure["first_clear_s"] == 200.0


def test_time_given_back_is_the_difference_of_two_clocks(scene: LedgerScene) -> None:
    results = scene.results()
    assert queue_credit(results)["queue_credit_s"].to_list() == [40.0]
    assert run_figures(results)["queue_credit_s"].to_list() == [40.0]


def test_failures_and_what_repaired_them(scene: LedgerScene) -> None:
    found = failures(scene.results())
    assert found["kind"].to_list() == ["failed", "rejected", "invalid"]
    assert found["submission_id"].to_list() == [3, None, 6]
    # The duplicate in between repairs nothing.
    assert found["repaired_by"].to_list() == [5, 5, 7]
    assert found["repair_s"].to_list() == [200.0, 50.0, 100.0]
    assert found["reason"].to_list() == [
        "it does not load",
        "missing_config: no config.json",
        "known_checkpoint: it was downloaded",
    ]


def test_what_nothing_follows_is_not_repaired(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 100, 60.0)
    scene.submit(2, 200, None)
    scene.end(300)
    results = scene.results()
    assert failures(results)["repaired_by"].to_list() == [None]
    figure = run_figures(results).row(0, named=True)
    assert (figure["num_failures"], figure["num_repaired"]) == (1, 0)


def test_spending_by_hour(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.tell(call(1, 10), 11)
    scene.tell(call(2, 3599, tokens=None, usd=None), 3600)
    scene.tell(call(3, 3600, usd=0.25), 3601)
    scene.tell(call(4, 7300, tokens=None, usd=None), 7301)
    scene.end(8000)
    hours = spending(scene.results())
    assert hours["hour"].to_list() == [0, 1, 2]
    assert hours["calls"].to_list() == [2, 1, 1]
    assert hours["failed_calls"].to_list() == [1, 0, 1]
    assert hours["cost_usd"].to_list() == [0.5, 0.25, None], "not known is not nothing"
    assert hours["input_tokens"].to_list() == [100, 100, None]


def test_the_best_by_a_time(scene: LedgerScene) -> None:
    results = scene.results()
    at = {time: score_at(results, time)["best_score"][0] for time in (50.0, 250.0, 650.0, 1000.0)}
    assert at == {50.0: None, 250.0: 60.0, 650.0: 60.0, 1000.0: 65.0}


def test_a_run_without_submissions_has_no_figures(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.end(300)
    figure = run_figures(scene.results()).row(0, named=True)
    for name in ("first_valid_s", "best_s", "monotonic_ratio", "last_s", "gap_after_last_s"):
        assert figure[name] is None, name
    assert (figure["num_valid"], figure["num_failures"]) == (0, 0)


def test_a_run_without_a_baseline_has_scores_and_no_gain(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path, baseline=None)
    scene.submit(1, 100, 60.0)
    scene.end(300)
    figure = run_figures(scene.results()).row(0, named=True)
    assert figure["first_valid_s"] == 100.0
    assert figure["first_improvement_s"] is None


def test_a_run_that_goes_on_has_no_gap_yet(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 100, 60.0)
    figure = run_figures(scene.results()).row(0, named=True)
    assert (figure["best_s"], figure["gap_after_best_s"]) == (100.0, None)


def test_every_attempt_is_refused(synthetic: SyntheticSweep) -> None:
    with pytest.raises(ResultsError, match="last attempt"):
        trajectory(load([synthetic.folder], every_attempt=True))


def test_figures_of_a_sweep_are_those_of_its_tables(synthetic: SyntheticSweep) -> None:
    results = synthetic.results
    figures = run_figures(results)
    assert figures.height == results.runs.height
    assert figures["run_id"].to_list() == results.runs["run_id"].to_list()
    graded = pl.sum_horizontal("num_valid", "num_invalid", "num_duplicate", "num_unchanged")
    assert figures.select(graded).to_series().to_list() == results.runs["num_graded"].to_list()
    last = trajectory(results).group_by("run_id", "task", maintain_order=True).last()
    joined = last.join(results.runs, on=["run_id", "task"])
    assert joined["best_after"].to_list() == joined["best_score"].to_list()


def test_hours_add_up_to_the_run(synthetic: SyntheticSweep) -> None:
    results = synthetic.results
    whole = spending(results).group_by("run_id").agg(pl.col("calls", "cost_usd").sum())
    runs = results.runs.unique("run_id").join(whole, on="run_id")
    assert runs["calls"].to_list() == runs["driver_calls"].to_list()
    difference = (runs["cost_usd"] - runs["cost_usd_right"]).abs().max()
    assert isinstance(difference, float)
    assert difference < 1e-9
