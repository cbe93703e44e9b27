"""Views and tables say what the ledger says, and never turn a failure into a score."""

import json
import pickle
import re
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from rl_bench.agent_records import (
    DriverCallRow,
    FindingRow,
    ProcessRow,
    RevisionRow,
    TraceRow,
)
from rl_bench.events import RunEnd, RunState
from rl_bench.ledger import read_ledger
from rl_bench.records import SCHEMAS, EventRow, ItemRow, SubmissionRow
from rl_bench.run_records import records_of
from rl_bench.run_row import RUNS, RunRow
from rl_bench.run_view import RunView, fold_all
from tests.rl_bench.conftest import MakeStory, Story


def rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def tables(story: Story) -> dict[str, pa.Table]:
    return records_of(story.run_id, story.entries).snapshot().tables()


def test_a_run_from_start_to_finish(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).submit(2, 40.0).submit(3, 30.0)
    run.reject().finish()
    view = fold_all("r", run.entries)
    assert (view.state, view.end, view.is_final) == (RunState.FINISHED, RunEnd.COMPLETED, True)
    assert (view.baseline, view.best, view.improvement) == (5.0, 40.0, 35.0)
    assert view.tasks["alfworld"].best_submission_id == 2
    assert (view.num_submissions, view.num_graded, view.num_rejected) == (3, 3, 1)
    assert view.is_finished
    assert view.budget_used_s == 55.0


def test_the_first_of_equal_scores_is_the_best(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).submit(2, 20.0)
    assert fold_all("r", run.entries).tasks["alfworld"].best_submission_id == 1


def test_of_equal_scores_the_first_submitted_is_the_best_whichever_is_graded_first(
    story: MakeStory,
) -> None:
    run = story("r").start().baseline(5.0).accept(1).accept(2).grade(2, 20.0).grade(1, 20.0)
    task = fold_all("r", run.entries).tasks["alfworld"]
    assert (task.best, task.best_submission_id) == (20.0, 1)


def test_a_gain_is_held_against_the_baselines_noise(story: MakeStory) -> None:
    run = story("r").start().baseline(50.0, repeat_scores=(49.0, 51.0))
    run.submit(1, 51.0).submit(2, None).submit(3, 60.0)
    view = fold_all("r", run.entries).tasks["alfworld"]
    assert view.noise_floor == pytest.approx(1.96 * 2)
    assert (view.improvement, view.within_noise) == (10.0, False)
    found = tables(run)
    assert [r["within_noise"] for r in rows(found["submissions"])] == [True, None, False]
    (row,) = rows(found["runs"])
    assert row["baseline_scores"] == [49.0, 51.0]
    assert row["noise_floor"] == pytest.approx(1.96 * 2)
    assert (row["within_noise"], row["baseline_num_errors"]) == (False, 1)


def test_one_grading_of_the_base_model_tells_no_noise(story: MakeStory) -> None:
    run = story("r").start().baseline(50.0).submit(1, 51.0)
    assert fold_all("r", run.entries).within_noise is None
    (row,) = rows(tables(run)["runs"])
    assert (row["baseline_scores"], row["noise_floor"], row["within_noise"]) == ([], None, None)


def test_the_mean_gain_of_several_tasks_is_held_against_the_means_noise(story: MakeStory) -> None:
    run = story("r", tasks=("alfworld", "gsm8k")).start().baseline(50, 50, repeat_scores=(49, 51))
    run.submit(1, 53.0, 53.0)
    view = fold_all("r", run.entries)
    assert [task.within_noise for task in view.tasks.values()] == [True, True]
    assert view.within_noise is False


def test_items_without_a_verdict_are_told_apart_from_failures(story: MakeStory) -> None:
    run = story("r").start().baseline(50.0).submit(1, None, failure="void").submit(2, 60.0)
    task = fold_all("r", run.entries).tasks["alfworld"]
    assert task.baseline_missing == "1 of 3 env_error"
    assert (task.num_incomplete, task.num_failed) == (1, 1)
    assert task.incomplete_example == "submission 2: 1 of 3 env_error"


def test_items_of_two_checkpoints_join_on_their_ids(story: MakeStory) -> None:
    found = rows(tables(story("r").start().baseline(0.0).submit(1, 10.0))["items"])
    key = ("run_id", "attempt", "task", "item_id")
    base, submission = (
        [tuple(r[name] for name in key) for r in found if r["submission_id"] == submission_id]
        for submission_id in (0, 1)
    )
    assert base == submission
    assert len(set(base)) == 3


def test_a_ledger_from_before_noise_was_measured_reads(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0)
    text = run.path.read_text()
    older = re.sub(r'"repeat_scores":\[\],"noise_floor":null,|"num_repeats":1,', "", text)
    assert "noise" not in older
    assert "repeat" not in older
    run.path.write_text(older)
    (row,) = rows(records_of("r", read_ledger(run.path)).snapshot().tables()["runs"])
    assert (row["improvement"], row["within_noise"]) == (15.0, None)


def test_a_failure_is_no_score(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, None, failure="engine died")
    task = fold_all("r", run.entries).tasks["alfworld"]
    assert (task.best, task.improvement, task.num_failed, task.num_graded) == (None, None, 1, 0)
    (row,) = rows(tables(run)["submissions"])
    assert (row["score"], row["status"], row["failure"]) == (None, "failed", "engine died")
    assert row["improvement"] is None
    (run_row,) = rows(tables(run)["runs"])
    assert (run_row["best_score"], run_row["num_failed"]) == (None, 1)


def test_a_score_that_is_no_number_is_a_failure(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, float("nan"))
    assert fold_all("r", read_ledger(run.path)).best is None
    (row,) = rows(records_of("r", read_ledger(run.path)).snapshot().tables()["submissions"])
    assert (row["score"], row["failure"]) == (None, "no score")


def test_a_failed_baseline_leaves_no_improvement(story: MakeStory) -> None:
    run = story("r").start().baseline(None).submit(1, 20.0)
    view = fold_all("r", run.entries)
    assert (view.best, view.improvement) == (20.0, None)
    assert view.tasks["alfworld"].baseline_failure == "no score"


def test_a_second_verdict_replaces_a_failure_only(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).submit(1, None, failure="lost").grade(1, 30.0)
    run.grade(1, 99.0)
    task = fold_all("r", run.entries).tasks["alfworld"]
    assert (task.best, task.num_graded, task.num_failed, task.num_pending) == (30.0, 1, 0, 0)
    (row,) = rows(tables(run)["submissions"])
    assert (row["score"], row["status"], row["failure"]) == (30.0, "graded", "")


def test_the_base_model_as_best_is_flagged(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0).accept(1, unchanged=True).grade(1, 5.0)
    (row,) = rows(tables(run)["runs"])
    assert (row["improvement"], row["best_unchanged"]) == (0.0, True)


def test_only_the_last_attempt_counts_and_earlier_rows_stay(story: MakeStory) -> None:
    run = story("r").start(0).baseline(5.0).submit(1, 90.0)
    run.finish(RunEnd.INFRA_ERROR, final=False)
    assert not fold_all("r", run.entries).is_final
    run.start(1).baseline(6.0).submit(1, 16.0).finish()
    view = fold_all("r", run.entries)
    assert (view.best, view.baseline, view.num_submissions, view.num_attempts) == (16, 6, 1, 2)
    found = rows(tables(run)["submissions"])
    assert [(r["attempt"], r["score"], r["improvement"]) for r in found] == [
        (0, 90.0, 85.0),
        (1, 16.0, 10.0),
    ]
    assert {r["attempt"] for r in rows(tables(run)["items"])} == {0, 1}


def test_multi_has_one_row_a_task(story: MakeStory) -> None:
    run = story("r", tasks=("alfworld", "gsm8k")).start().baseline(5.0, 50.0)
    run.submit(1, 20.0, 40.0).submit(2, None, 60.0)
    found = {row["task"]: row for row in rows(tables(run)["runs"])}
    assert (found["alfworld"]["best_score"], found["alfworld"]["num_failed"]) == (20.0, 1)
    assert (found["gsm8k"]["best_score"], found["gsm8k"]["improvement"]) == (60.0, 10.0)
    assert (found["alfworld"]["first_score"], found["gsm8k"]["first_score"]) == (20.0, 40.0)
    assert found["gsm8k"]["tasks"] == ["alfworld", "gsm8k"]
    assert len(rows(tables(run)["submissions"])) == 4
    view = fold_all("r", run.entries)
    assert (view.best, view.improvement) == (40.0, 12.5)


def test_best_so_far_never_falls(story: MakeStory) -> None:
    run = story("r").start().baseline(0.0)
    for i, score in enumerate((10.0, 30.0, None, 20.0), start=1):
        run.submit(i, score)
    found = rows(tables(run)["submissions"])
    assert [r["best_so_far"] for r in found] == [10.0, 30.0, 30.0, 30.0]


def test_a_pending_submission_has_a_row(story: MakeStory) -> None:
    run = story("r").start().baseline(0.0).accept(1)
    (row,) = rows(tables(run)["submissions"])
    assert (row["status"], row["score"], row["graded_at"]) == ("pending", None, None)
    (run_row,) = rows(tables(run)["runs"])
    assert run_row["num_pending"] == 1


def test_items_hold_the_baseline_as_submission_0(story: MakeStory) -> None:
    run = story("r").start().baseline(0.0).submit(1, 10.0)
    found = rows(tables(run)["items"])
    assert [r["submission_id"] for r in found] == [0, 0, 0, 1, 1, 1]
    assert [r["score"] for r in found[:2]] == [None, 1.0]
    assert json.loads(found[0]["detail"]) == {"won": False, "actions": 'take "x"\n'}


def test_events_hold_every_entry_without_items(story: MakeStory) -> None:
    run = story("r").start().baseline(0.0).submit(1, 10.0).finish()
    found = rows(tables(run)["events"])
    assert [r["seq"] for r in found] == [e.seq for e in run.entries]
    graded = [json.loads(r["payload"]) for r in found if r["type"] == "submission_graded"]
    assert graded[0]["evaluations"][0]["score"] == 10.0
    assert "items" not in graded[0]["evaluations"][0]
    assert found[0]["time"].utcoffset() == timedelta(0)


def test_metrics_are_a_map(story: MakeStory) -> None:
    run = story("r").start().baseline(0.0).submit(1, 10.0)
    (row,) = rows(tables(run)["submissions"])
    assert dict(row["metrics"]) == {"mean_steps": 4.0}


def test_schemas_are_versioned_and_match_their_rows() -> None:
    row_of = {
        "runs": RunRow,
        "submissions": SubmissionRow,
        "items": ItemRow,
        "events": EventRow,
        "driver_calls": DriverCallRow,
        "trace": TraceRow,
        "revisions": RevisionRow,
        "processes": ProcessRow,
        "findings": FindingRow,
    }
    assert set(SCHEMAS) == set(row_of)
    for table, schema in SCHEMAS.items():
        assert schema.metadata == {b"table": table.encode(), b"schema_version": b"4"}
        assert schema.names == [f.name for f in fields(row_of[table])]
    assert RUNS.field("best_score").nullable
    assert not RUNS.field("run_id").nullable


def test_folding_out_of_order_is_refused(story: MakeStory) -> None:
    run = story("r").start()
    view = RunView(run_id="r")
    with pytest.raises(ValueError, match="entry 1 folded where 0 belongs"):
        view.fold(run.entries[1])


def test_budget_left_runs_with_the_agent_only(story: MakeStory) -> None:
    run = story("r").start()
    view = fold_all("r", run.entries)
    assert view.started_utc is not None
    later = view.started_utc + timedelta(hours=1)
    assert view.budget_left_s(later) == 600.0
    run.baseline(1.0).accept(1, used_s=100.0)
    view = fold_all("r", run.entries)
    assert view.budget_known_utc is not None
    assert view.budget_left_s(view.budget_known_utc + timedelta(seconds=20)) == 480.0
    assert view.budget_left_s(later) == 0.0
    run.finish()
    run_view = fold_all("r", run.entries)
    assert run_view.budget_left_s(later) == 545.0


def test_an_attempts_time_runs_to_its_end(story: MakeStory) -> None:
    run = story("r").start()
    started = fold_all("r", run.entries).started_utc
    assert started is not None
    later = started + timedelta(hours=1)
    assert RunView(run_id="r").elapsed_s(later) == 0.0
    view = fold_all("r", run.entries)
    assert (view.elapsed_s(later), view.elapsed_s(started - timedelta(hours=1))) == (3600.0, 0.0)
    ended = fold_all("r", run.finish().entries)
    assert ended.elapsed_s(later) == ended.duration_s < 3600.0


def test_a_request_after_the_agents_exit_leaves_the_clock_stopped(story: MakeStory) -> None:
    run = story("r").start().baseline(1.0).finish().reject()
    assert fold_all("r", run.entries).budget_known_utc is None


@pytest.mark.parametrize("end", list(RunEnd))
def test_infrastructure_ends_are_never_finished(story: MakeStory, end: RunEnd) -> None:
    view = fold_all("r", story("r").start().baseline(1.0).finish(end).entries)
    assert view.is_finished is not end.is_infrastructure


def test_a_view_crosses_processes(story: MakeStory) -> None:
    view = fold_all("r", story("r").start().baseline(1.0).submit(1, None).entries)
    assert pickle.loads(pickle.dumps(view)) == view  # noqa: S301  our own bytes


def test_a_snapshot_does_not_move_with_later_entries(story: MakeStory) -> None:
    run = story("r").start().baseline(1.0).submit(1, 10.0)
    records = records_of("r", run.entries)
    before = records.snapshot()
    run.submit(2, 50.0)
    for entry in run.entries[before.view.next_seq :]:
        records.fold(entry)
    assert before.view.best == 10.0
    assert len(before.submissions) == 1
    assert before.tables()["items"].num_rows == 6
    assert before.tables()["events"].num_rows == before.view.next_seq
