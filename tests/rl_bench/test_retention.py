"""Which checkpoints stay on disk: the rule, and several runs that store and remove at once."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_bench.audit.weight_samples import KEPT, Weights
from rl_bench.checkpoint import content_hash
from rl_bench.config import BudgetConfig, KeepModels
from rl_bench.events import (
    BaselineGraded,
    Entry,
    Event,
    Note,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.lineage.references import SnapshotReferences
from rl_bench.lineage.retention import Retention
from rl_bench.submission import SubmissionStore
from tests.rl_bench.conftest import make_evaluation
from tests.rl_bench.grading_scene import Scene, make_spec, submit, value_of, write_checkpoint

RULES: tuple[KeepModels, ...] = ("all", "best_and_last", "none")


class Place:
    """One run of a sweep: its ledger, its snapshots, and what it has submitted."""

    def __init__(self, root: Path, run_id: str = "r", *, tasks: tuple[str, ...] = ("a",)) -> None:
        self.root = root
        self.run_id = run_id
        self.spec = make_spec(*tasks)
        self.snapshots = root / "snapshots"
        self.workspace = root / "runs" / run_id / "workspace"
        self.base = root / "base"
        if not self.base.exists():
            write_checkpoint(self.base, value=5)
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.store = SubmissionStore(self.snapshots, workspace=self.workspace, base_model=self.base)
        self.events: list[Event] = []
        self.hashes: list[str] = []

    def start(self, attempt: int = 0) -> None:
        self.hashes.clear()
        self.events += [
            RunStarted(run_id=self.run_id, sweep="s", attempt=attempt, spec=self.spec),
            BaselineGraded(
                content_hash=self.store.base_hash,
                evaluations=tuple(make_evaluation(1.0, task=t.name) for t in self.spec.tasks),
            ),
        ]

    def submit(self, value: float, *scores: float | None, task: str = "") -> str:
        """Accepts the checkpoint of weights ``value``, graded when there are scores."""
        folder = write_checkpoint(self.workspace / "output" / str(value), value=value)
        snapshot = self.store.take(str(folder))
        self.hashes.append(snapshot.content_hash)
        names = (task,) if task else tuple(t.name for t in self.spec.tasks)
        self.events.append(
            SubmissionAccepted(
                submission_id=len(self.hashes),
                model_path=str(value),
                content_hash=snapshot.content_hash,
                tasks=names,
                budget_used_s=1.0,
            )
        )
        if scores:
            evaluations = tuple(
                make_evaluation(score, task=name, failure="broke" if score is None else "")
                for score, name in zip(scores, names, strict=True)
            )
            graded = SubmissionGraded(submission_id=len(self.hashes), evaluations=evaluations)
            self.events.append(graded)
        return snapshot.content_hash

    def end(self, rule: KeepModels = "best_and_last") -> Note | None:
        now = "2026-01-01T00:00:00+00:00"
        entries = [
            Entry(seq=seq, time_utc=now, elapsed_s=0.0, event=event)
            for seq, event in enumerate(self.events)
        ]
        return self.retention(rule).at_end(entries)

    def retention(self, rule: KeepModels = "best_and_last") -> Retention:
        return Retention(
            self.snapshots,
            spec=self.spec,
            run_id=self.run_id,
            keep_models=rule,
            base_hash=self.store.base_hash,
        )

    def kept(self) -> set[str]:
        return {path.name for path in self.snapshots.iterdir()}

    def references(self) -> set[str]:
        folder = self.root / "snapshot_refs"
        return {f"{path.parent.name}/{path.name}" for path in folder.glob("*/*")}


@pytest.mark.parametrize("rule", RULES)
def test_the_rule(tmp_path: Path, rule: KeepModels) -> None:
    place = Place(tmp_path)
    place.start()
    worse = place.submit(10, 10.0)
    best = place.submit(11, 60.0)
    base = place.submit(5, 1.0)
    worst = place.submit(12, 0.0)
    ungraded = place.submit(13)
    broken = place.submit(14, None)
    last = place.submit(15, 20.0)
    everything = {worse, best, base, worst, ungraded, broken, last}
    expected = {
        "all": everything,
        "best_and_last": {best, base, ungraded, broken, last},
        "none": {ungraded, broken},
    }[rule]
    assert base == place.store.base_hash
    note = place.end(rule)
    assert place.kept() == expected
    assert place.references() == {f"{digest}/r" for digest in expected}
    assert place.end(rule) is None, "repeating it changes nothing"
    if rule == "all":
        assert note is None
        return
    assert note is not None
    assert (note.level, note.topic) == ("info", "retention")
    assert f"{worst[:12]} (submission 4)" in note.message
    assert f"removed {len(everything - expected)} snapshots" in note.message
    assert value_of(place.store.folder(ungraded)) == 13


def test_each_task_keeps_its_best(tmp_path: Path) -> None:
    place = Place(tmp_path, tasks=("a", "b"))
    place.start()
    best_a = place.submit(10, 50.0, 1.0)
    best_b = place.submit(11, 1.0, 50.0)
    neither = place.submit(12, 20.0, 20.0)
    again = place.submit(10, 50.0, task="a")
    half = place.submit(13, 3.0, None)
    last = place.submit(14, 3.0, task="b")
    assert again == best_a
    place.end()
    assert place.kept() == {best_a, best_b, half, last}
    assert neither not in place.kept()


def test_what_another_run_needs_stays(tmp_path: Path) -> None:
    one, two = Place(tmp_path, "one"), Place(tmp_path, "two")
    one.start()
    two.start()
    shared = one.submit(10, 1.0)
    best = one.submit(11, 50.0)
    assert two.submit(10, 70.0) == shared
    two.submit(12, 30.0)
    assert one.end() is None
    assert one.kept() == {shared, best, two.hashes[-1]}
    assert one.references() == {f"{best}/one", f"{shared}/two", f"{two.hashes[-1]}/two"}
    two.submit(13, 90.0)
    note = two.end()
    assert note is not None
    assert "removed 2 snapshots" in note.message
    assert one.kept() == {best, two.hashes[-1]}


def test_the_rule_looks_at_all_attempts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.start()
    graded_before = place.submit(10, 90.0)
    ungraded_before = place.submit(11)
    place.start(attempt=1)
    last = place.submit(12, 1.0)
    place.end()
    assert place.kept() == {ungraded_before, last}
    assert graded_before not in place.kept()


def test_what_was_stored_and_not_accepted_goes_at_the_end(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.start()
    accepted = place.submit(10, 1.0)
    refused = place.store.take(str(write_checkpoint(place.workspace / "x", value=77)))
    assert refused.content_hash in place.kept()
    note = place.end()
    assert note is not None
    assert "of no id" in note.message
    assert place.kept() == {accepted}


def test_a_removed_checkpoint_can_be_submitted_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.start()
    first = place.submit(10, 1.0)
    place.submit(11, 2.0)
    place.end()
    assert first not in place.kept()
    assert place.submit(10) == first
    assert value_of(place.store.folder(first)) == 10


def test_a_snapshot_that_cannot_be_removed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.start()
    digest = place.submit(10, 1.0)
    place.submit(11, 2.0)

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    note = place.end()
    assert note is not None
    assert note.level == "warning"
    assert f"{digest[:12]}: " in note.message
    monkeypatch.undo()
    assert place.end() is not None
    assert digest not in place.kept()


def test_of_what_goes_the_audits_samples_stay_and_of_what_was_never_accepted_nothing(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.start()
    gone = place.submit(10, 1.0)
    looked_at = Weights.of(place.snapshots / gone)
    samples = {name: looked_at.sample(name).tolist() for name in looked_at.tensors}
    place.submit(11, 2.0)
    place.store.take(str(write_checkpoint(place.workspace / "x", value=77)))
    place.end()
    [kept] = (tmp_path / KEPT).iterdir()
    assert kept.name == gone
    again = Weights.kept(kept)
    assert {name: again.sample(name).tolist() for name in again.tensors} == samples


def test_a_snapshot_whose_samples_cannot_be_kept_stays(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.start()
    digest = place.submit(10, 1.0)
    place.submit(11, 2.0)
    (tmp_path / KEPT).touch()
    note = place.end()
    assert note is not None
    assert (note.level, digest in place.kept()) == ("warning", True)
    (tmp_path / KEPT).unlink()
    place.end()
    assert digest not in place.kept()


def scene_with_retention(root: Path, *tasks: str) -> Scene:
    scene = Scene(root, make_spec(*tasks, budget=BudgetConfig(name="t", wall_clock_s=600)))
    scene.desk._retention = Retention(
        root / "snapshots",
        spec=scene.spec,
        run_id="r",
        keep_models="best_and_last",
        base_hash=scene.store.base_hash,
    )
    return scene


def test_a_long_run_keeps_its_disk_free_while_it_runs(tmp_path: Path) -> None:
    with scene_with_retention(tmp_path).serving() as scene:
        values = (10.0, 30.0, 20.0, 15.0, 12.0)
        for value in values:
            assert submit(scene, scene.checkpoint(str(value), value=value)).status_code == 200
        scene.server.run(scene.desk.drain())
        kept = sorted(value_of(path) for path in (tmp_path / "snapshots").iterdir())
        assert kept == [12.0, 30.0]
        assert len(list((tmp_path / KEPT).iterdir())) == 3, "samples of the others stay"
        again = submit(scene, "output/20.0").json()
        assert (again["submission_id"], again["score"]) == (3, 20.0)
        notes = [event.message for event in scene.events(Note) if isinstance(event, Note)]
        assert [note.split(",")[0] for note in notes] == ["removed 1 snapshot"] * 3
        assert len(scene.events(SubmissionAccepted)) == 5


def test_content_that_comes_back_for_another_task_is_there_when_graded(tmp_path: Path) -> None:
    with scene_with_retention(tmp_path, "alfworld", "gsm8k").serving() as scene:
        for value in (10.0, 30.0, 20.0):
            path = scene.checkpoint(str(value), value=value)
            assert submit(scene, path, task="alfworld").status_code == 200
        scene.server.run(scene.desk._idle())
        assert 10.0 not in {value_of(path) for path in (tmp_path / "snapshots").iterdir()}
        reply = submit(scene, "output/10.0", task="gsm8k")
        assert reply.json()["tasks"]["gsm8k"]["score"] == 10.0


RUN = """
import random, sys
from pathlib import Path
from rl_bench.checkpoint import content_hash
from rl_bench.lineage.references import SnapshotReferences
from rl_bench.submission import SubmissionStore
root, run_id, turns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
workspace = root / "runs" / run_id / "workspace"
store = SubmissionStore(root / "snapshots", workspace=workspace, base_model=root / "base")
references = SnapshotReferences(root / "snapshots", run_id=run_id)
chance = random.Random(run_id)
print("ready", flush=True)
for turn in range(turns):
    snapshot = store.take(f"output/{chance.randrange(3)}")
    for _ in range(chance.randrange(3)):
        assert content_hash(snapshot.folder) == snapshot.content_hash, "lost or torn"
    references.release(snapshot.content_hash)
print("done", flush=True)
"""


def start_run(root: Path, run_id: str, turns: int) -> "subprocess.Popen[str]":
    workspace = root / "runs" / run_id / "workspace"
    for value in range(3):
        write_checkpoint(workspace / "output" / str(value), value=value)
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), run_id, str(turns)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    return run


def test_runs_that_store_and_remove_the_same_content_at_once_lose_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "base", value=5)
    runs = [start_run(tmp_path, f"run{number}", 80) for number in range(4)]
    for run in runs:
        out, err = run.communicate(timeout=120)
        assert (out, err, run.returncode) == ("done\n", "", 0)
    assert list((tmp_path / "snapshots").iterdir()) == []
    assert not list((tmp_path / "snapshot_refs").glob("*/*"))


def test_runs_killed_at_any_moment_leave_whole_snapshots_and_hinder_nobody(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "base", value=5)
    chance = random.Random(3)
    survivor = start_run(tmp_path, "survivor", 250)
    for number in range(6):
        with start_run(tmp_path, f"victim{number}", 10_000) as victim:
            time.sleep(0.02 + 0.1 * chance.random())
            os.kill(victim.pid, signal.SIGKILL)
    out, err = survivor.communicate(timeout=120)
    assert (out, err) == ("done\n", "")
    for number in range(6):
        # As the next attempt at the run does: clears drafts of the dead, and at its end its own.
        workspace = tmp_path / "runs" / f"victim{number}" / "workspace"
        SubmissionStore(tmp_path / "snapshots", workspace=workspace, base_model=tmp_path / "base")
        for path in (tmp_path / "snapshots").iterdir():
            assert content_hash(path) == path.name
        references = SnapshotReferences(tmp_path / "snapshots", run_id=f"victim{number}")
        for digest in references.referred():
            references.release(digest)
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_a_ledger_of_a_real_run_is_enough(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        for value in (10.0, 30.0, 20.0, 15.0):
            submit(scene, scene.checkpoint(str(value), value=value))
        scene.server.run(scene.desk.drain())
    retention = Retention(
        tmp_path / "snapshots",
        spec=scene.spec,
        run_id="r",
        keep_models="best_and_last",
        base_hash=scene.store.base_hash,
    )
    assert retention.at_end(read_ledger(scene.paths.ledger)) is not None
    kept = sorted(value_of(path) for path in (tmp_path / "snapshots").iterdir())
    assert kept == [15.0, 30.0]
