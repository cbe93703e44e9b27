"""The grading API as an agent meets it: a real server, real checkpoints, a real ledger."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from rl_bench.config import BudgetConfig
from rl_bench.errors import GraderError, LedgerError, SubmissionError, WorkspaceError
from rl_bench.events import (
    BaselineGraded,
    Entry,
    Event,
    Note,
    SubmissionAccepted,
    SubmissionGraded,
    SubmissionRejected,
)
from rl_bench.ledger import read_ledger
from rl_bench.lineage.code_history import CodeHistory
from tests.rl_bench.grading_scene import Scene, get, make_spec, submit, write_checkpoint


def wait_for(condition: Callable[[], bool], *, limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_published_form_of_a_submission(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        first = submit(scene, scene.checkpoint("one", value=93.28358), gpu="0")
        second = submit(scene, str(scene.workspace.root / scene.checkpoint("two", value=40)))
    assert first.status_code == 200
    expected = {
        "submission_id": 1,
        "score": 93.28,
        "baseline_score": 5.0,
        "improvement": 88.28,
        "best": {"submission_id": 1, "score": 93.28, "unchanged": False},
        "total_submissions": 1,
    }
    assert expected.items() <= first.json().items()
    assert second.json()["best"] == expected["best"]
    assert (second.json()["submission_id"], second.json()["total_submissions"]) == (2, 2)
    baseline, accepted, graded = scene.events(BaselineGraded, SubmissionAccepted, SubmissionGraded)[
        :3
    ]
    assert isinstance(baseline, BaselineGraded)
    assert isinstance(accepted, SubmissionAccepted)
    assert accepted.code_revision
    assert isinstance(graded, SubmissionGraded)


def test_a_reply_says_whether_the_improvement_is_within_the_noise(tmp_path: Path) -> None:
    scene = Scene(tmp_path, make_spec(num_repeats=3))
    scene.grade.spread = 1.0
    with scene.serving():
        chance = submit(scene, scene.checkpoint("one", value=8)).json()
        better = submit(scene, scene.checkpoint("two", value=9)).json()
        scores = get(scene, "scores").json()
    assert (chance["baseline_score"], chance["improvement"]) == (6.0, 2.0)
    assert (chance["within_noise"], better["within_noise"]) == (True, False)
    assert scores["noise_floor"] == 2.77
    assert [body["within_noise"] for body in scores["submissions"]] == [True, False]
    assert '"within_noise": true' in (scene.workspace.root / "scores.json").read_text()
    assert "`within_noise` is true" in (scene.workspace.root / "instructions.md").read_text()


def test_noise_that_was_not_measured_is_null_and_not_explained(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        reply = submit(scene, scene.checkpoint("one", value=9)).json()
    assert reply["within_noise"] is None
    assert "within_noise" not in (scene.workspace.root / "instructions.md").read_text()


def test_acceptance_is_on_disk_before_the_grader_is_asked(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(submit, scene, scene.checkpoint("one", value=9))
            assert wait_for(lambda: bool(scene.grade.jobs))
            assert len(scene.events(SubmissionAccepted)) == 1
            assert not scene.events(SubmissionGraded)
            status = get(scene, "submissions/1").json()
            assert (status["status"], status["score"]) == ("pending", None)
            scene.grade.gate.set()
            assert answer.result().json()["score"] == 9


def test_not_waiting_gives_a_status_url(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.gate.clear()
        reply = submit(scene, scene.checkpoint("one", value=9), wait=False)
        assert reply.status_code == 202
        url = reply.json()["status_url"]
        assert httpx.get(url).json()["status"] == "pending"
        scene.grade.gate.set()
        assert wait_for(lambda: httpx.get(url).json()["status"] == "graded")
        assert httpx.get(url).json()["improvement"] == 4
        assert get(scene, "submissions/2").status_code == 404


def test_same_content_ten_times_at_once_is_one_submission(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.gate.clear()
        path = scene.checkpoint("one", value=9)
        with ThreadPoolExecutor(10) as pool:
            answers = [pool.submit(submit, scene, path) for _ in range(10)]
            time.sleep(0.5)
            scene.grade.gate.set()
            bodies = [answer.result().json() for answer in answers]
        later = submit(scene, scene.checkpoint("copy", value=9)).json()
    assert all(body == bodies[0] for body in bodies)
    assert later == bodies[0]
    assert later["total_submissions"] == 1
    assert len(scene.grade.jobs) == 1
    assert len(scene.events(SubmissionAccepted)) == 1


def test_client_that_hangs_up_loses_nothing(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.gate.clear()
        path = scene.checkpoint("one", value=9)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{scene.server.url}/submit", json={"model_path": path}, timeout=0.5)
        scene.grade.gate.set()
        again = submit(scene, path).json()
    assert (again["submission_id"], again["score"]) == (1, 9)
    assert len(scene.grade.jobs) == 1


def test_overwriting_while_queued_changes_nothing(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.gate.clear()
        path = scene.checkpoint("one", value=9)
        submit(scene, path, wait=False)
        new = write_checkpoint(tmp_path / "new", value=77) / "model.safetensors"
        with (scene.workspace.root / path / "model.safetensors").open("r+b") as file:
            file.write(new.read_bytes())
        scene.grade.gate.set()
        assert wait_for(lambda: get(scene, "submissions/1").json()["status"] == "graded")
        assert get(scene, "submissions/1").json()["score"] == 9
        assert submit(scene, path).json()["score"] == 77


def test_untouched_base_has_no_improvement(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        body = submit(scene, str(scene.workspace.model)).json()
    assert (body["score"], body["improvement"], body["unchanged"]) == (5.0, 0.0, True)
    assert body["best"]["unchanged"]
    assert not scene.grade.jobs
    (graded,) = scene.events(SubmissionGraded)
    assert isinstance(graded, SubmissionGraded)
    assert graded.evaluations[0].reused


def test_grading_that_is_down_gives_no_score_and_can_be_repeated(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.errors = [GraderError("the engine died"), RuntimeError("surprise")]
        path = scene.checkpoint("one", value=9)
        first, second, third = (submit(scene, path) for _ in range(3))
    for reply in (first, second):
        assert reply.status_code == 503
        assert int(reply.headers["Retry-After"]) > 0
        assert reply.json()["submission_id"] == 1
        assert "score" not in reply.json()
    assert (third.status_code, third.json()["score"]) == (200, 9)
    assert third.json()["total_submissions"] == 1
    scores = [event.evaluations[0].score for event in scene.events(SubmissionGraded)]
    assert scores == [None, None, 9]


def test_void_evaluation_is_no_score(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.broken = {"alfworld"}
        reply = submit(scene, scene.checkpoint("one", value=9))
        assert reply.status_code == 503
        assert "items" in reply.json()["message"]
        assert get(scene, "scores").json()["best"] is None


def test_checkpoint_refused_while_loading_keeps_its_id(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.errors = [SubmissionError("model.norm.weight has NaN", reason="non_finite")]
        path = scene.checkpoint("one", value=9)
        reply, again = submit(scene, path), submit(scene, path)
    assert reply.status_code == again.status_code == 422
    assert reply.json()["reason"] == "invalid_model"
    assert "NaN" in reply.json()["message"]
    assert reply.json()["submission_id"] == 1
    assert len(scene.grade.jobs) == 1


def test_no_baseline_is_an_error_of_the_run(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving(baseline=False) as scene:
        scene.grade.broken = {"alfworld"}
        with pytest.raises(GraderError, match="no baseline on alfworld"):
            scene.server.run(scene.desk.grade_baseline())
    assert len(scene.events(BaselineGraded)) == 1


def test_before_and_after_the_deadline(tmp_path: Path) -> None:
    spec = make_spec(budget=BudgetConfig(name="test", wall_clock_s=1.5))
    with Scene(tmp_path, spec).serving() as scene:
        scene.grade.gate.clear()
        early, late = scene.checkpoint("early", value=9), scene.checkpoint("late", value=10)
        assert submit(scene, early, wait=False).status_code == 202
        assert wait_for(lambda: scene.clock.expired)
        refused = submit(scene, late)
        assert refused.status_code == 410
        assert refused.json()["reason"] == "too_late"
        scene.desk.close()
        scene.grade.gate.set()
        assert scene.server.run(scene.desk.drain()) == []
        assert get(scene, "submissions/1").json()["score"] == 9
    (rejected,) = scene.events(SubmissionRejected)
    assert isinstance(rejected, SubmissionRejected)
    assert (rejected.reason, rejected.status) == ("too_late", 410)
    assert rejected.budget_used_s >= 1.5


def test_clock_is_one_everywhere(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        times = get(scene, "time").json()
    assert times["budget_s"] == 600
    assert times["used_s"] + times["remaining_s"] == pytest.approx(600)
    assert times["used_s"] == pytest.approx(scene.clock.used_s, abs=2)


def test_queue_wait_is_credited_to_those_who_wait(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.queue_s = 0.3
        scene.grade.gate.clear()
        path = scene.checkpoint("one", value=9)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(submit, scene, path) for _ in range(4)]
            time.sleep(0.6)
            scene.grade.gate.set()
            assert {answer.result().status_code for answer in answers} == {200}
        credit = get(scene, "time").json()["queue_credit_s"]
        assert 0.1 < credit <= 0.301
        scene.grade.gate.clear()
        submit(scene, scene.checkpoint("two", value=9.5), wait=False)
        time.sleep(0.4)
        scene.grade.gate.set()
        assert wait_for(lambda: get(scene, "submissions/2").json()["status"] == "graded")
        assert get(scene, "time").json()["queue_credit_s"] == credit


def test_a_wait_for_what_is_graded_for_another_run_is_not_credited(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.grade.queue_s, scene.grade.reused = 0.1, True
        scene.grade.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(submit, scene, scene.checkpoint("one", value=9))
            assert wait_for(lambda: bool(scene.grade.jobs))
            time.sleep(0.2)
            scene.grade.gate.set()
            assert answer.result().json()["score"] == 9
        assert get(scene, "time").json()["queue_credit_s"] == 0.0


def test_a_closed_desk_accepts_nothing_though_there_is_time(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.desk.close()
        refused = submit(scene, scene.checkpoint("one", value=9))
        assert (refused.status_code, refused.json()["reason"]) == (410, "too_late")
        assert get(scene, "time").json()["remaining_s"] > 0
    assert not scene.events(SubmissionAccepted)


def test_limit_of_submissions(tmp_path: Path) -> None:
    budget = BudgetConfig(name="test", wall_clock_s=600, max_submissions=2)
    with Scene(tmp_path, make_spec(budget=budget)).serving() as scene:
        paths = [scene.checkpoint(f"m{i}", value=i) for i in range(3)]
        replies = [submit(scene, path) for path in paths]
        assert [reply.status_code for reply in replies] == [200, 200, 429]
        assert replies[2].json()["reason"] == "max_submissions"
        assert submit(scene, paths[0]).json()["score"] == 0


def test_mode_multi(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec("alfworld", "gsm8k")).serving() as scene:
        path = scene.checkpoint("one", value=9)
        one = submit(scene, path, task="gsm8k").json()
        both = submit(scene, path).json()
        unknown = submit(scene, path, task="chess")
        scores = get(scene, "scores").json()
    assert set(one["tasks"]) == {"gsm8k"}
    assert one["tasks"]["gsm8k"]["improvement"] == 4
    assert set(both["tasks"]) == {"alfworld", "gsm8k"}
    assert both["submission_id"] == 2
    assert [[task.name for task in job.tasks] for job in scene.grade.jobs] == [
        ["gsm8k"],
        ["alfworld"],
    ]
    second = scene.events(SubmissionAccepted)[1]
    assert isinstance(second, SubmissionAccepted)
    assert second.duplicate_of == 1
    assert unknown.status_code == 400
    assert "alfworld, gsm8k" in unknown.json()["cure"]
    assert scores["best"]["alfworld"] == {"submission_id": 2, "score": 9.0, "unchanged": False}


def test_mode_multi_grades_only_what_failed_again(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec("alfworld", "gsm8k")).serving() as scene:
        scene.grade.broken = {"gsm8k"}
        path = scene.checkpoint("one", value=9)
        assert submit(scene, path).status_code == 503
        scene.grade.broken = set()
        assert submit(scene, path).json()["tasks"]["gsm8k"]["score"] == 9
    assert [task.name for task in scene.grade.jobs[-1].tasks] == ["gsm8k"]


def test_unwritable_ledger_gives_no_answer_that_could_be_lost(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        scene.ledger.close()
        reply = submit(scene, scene.checkpoint("one", value=9))
        assert reply.status_code == 503
        assert not scene.grade.jobs
        assert get(scene, "scores").json()["total_submissions"] == 0


def test_a_verdict_that_could_not_be_recorded_is_no_answer_and_is_reached_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        append = scene.ledger.append

        def refuse_verdicts(event: Event) -> Entry:
            if isinstance(event, SubmissionGraded):
                raise LedgerError("the disk is full")
            return append(event)

        path = scene.checkpoint("one", value=9)
        with monkeypatch.context() as patch:
            patch.setattr(scene.ledger, "append", refuse_verdicts)
            reply = submit(scene, path)
        assert (reply.status_code, reply.json()["submission_id"]) == (503, 1)
        assert get(scene, "scores").json()["best"] is None
        assert submit(scene, path).json()["score"] == 9
    assert len(scene.events(SubmissionGraded)) == 1


def test_code_that_cannot_be_recorded_costs_no_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(history: CodeHistory, cause: str) -> None:
        raise WorkspaceError("no room for the history")

    monkeypatch.setattr(CodeHistory, "record", fail)
    with Scene(tmp_path, make_spec()).serving() as scene:
        assert submit(scene, scene.checkpoint("one", value=9)).json()["score"] == 9
    accepted, note = scene.events(SubmissionAccepted, Note)
    if isinstance(accepted, Note):
        accepted, note = note, accepted
    assert isinstance(accepted, SubmissionAccepted)
    assert accepted.code_revision == ""
    assert isinstance(note, Note)
    assert (note.topic, "no room for the history" in note.message) == ("code_history", True)


def test_accepted_submissions_survive_a_kill(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        submit(scene, scene.checkpoint("one", value=9))
        scene.grade.errors = [GraderError("down")]
        submit(scene, scene.checkpoint("two", value=10))
        scene.grade.gate.clear()
        submit(scene, scene.checkpoint("three", value=11), wait=False)
        entries = read_ledger(scene.paths.ledger)
        scene.grade.gate.set()
    after = Scene(tmp_path, make_spec())
    after.desk.restore(entries)
    assert [submission.submission_id for submission in after.desk.pending()] == [2, 3]
    with after.server:
        assert after.server.run(after.desk.drain()) == []
        best = httpx.get(f"{after.server.url}/scores").json()["best"]
    after.close()
    assert best == {"submission_id": 3, "score": 11.0, "unchanged": False}
    assert [job.submission_id for job in after.grade.jobs] == [2, 3]


def test_tampering_with_scores_is_noted_and_undone(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        submit(scene, scene.checkpoint("one", value=9))
        scores = scene.workspace.root / "scores.json"
        scores.write_text('{"best": 100}')
        body = submit(scene, scene.checkpoint("two", value=8)).json()
        assert body["best"]["score"] == 9
        assert '"score": 9.0' in scores.read_text()
    (note,) = scene.events(Note)
    assert isinstance(note, Note)
    assert (note.topic, note.message) == ("tampering", "the agent changed scores.json")
