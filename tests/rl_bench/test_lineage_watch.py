"""The watch over an agent's code: what it records, when, and that nothing of it ends a run."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_bench.errors import LedgerError, WorkspaceError
from rl_bench.events import AgentEvent, CodeChanged, SubmissionAccepted
from rl_bench.lineage import code_files, code_watch
from rl_bench.lineage.code_files import list_code
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.lineage.code_watch import CodeWatch
from rl_bench.lineage.read import CodeReader


class Scene:
    """A watch that looks often, over an empty folder."""

    def __init__(self, root: Path, *, quiet_s: float = 0.2, max_wait_s: float = 1.0) -> None:
        self.code = root / "code"
        self.code.mkdir()
        self.path = root / "code.git"
        self.told: list[CodeChanged] = []
        self.warned: list[str] = []
        self.history = CodeHistory(self.code, history=self.path)
        self.began = time.monotonic()
        self.watch = CodeWatch(
            self.code,
            history=self.history,
            used_s=lambda: time.monotonic() - self.began,
            tell=self.told.append,
            warn=self.warned.append,
            poll_s=0.05,
            quiet_s=quiet_s,
            max_wait_s=max_wait_s,
        )

    def wait_for(self, condition: Callable[[], bool], *, limit_s: float = 20.0) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, (self.told, self.warned)
            time.sleep(0.02)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_change_is_recorded_once_it_is_quiet(scene: Scene) -> None:
    with scene.watch:
        (scene.code / "train.py").write_text("one")
        scene.wait_for(lambda: len(scene.told) == 1)
        (scene.code / "train.py").write_text("two")
        (scene.code / "lib.py").write_text("x")
        scene.wait_for(lambda: len(scene.told) == 2)
        time.sleep(0.5)
    first, second = scene.told
    assert (first.cause, first.changed, first.num_files) == ("change", ("train.py",), 1)
    assert (second.changed, second.num_changed) == (("lib.py", "train.py"), 2)
    assert 0.2 <= first.budget_used_s < second.budget_used_s
    assert CodeReader(scene.path).read(second.revision, "train.py") == b"two"
    assert not scene.warned


def test_writing_without_a_pause_is_recorded_at_the_latest_after_a_while(tmp_path: Path) -> None:
    scene = Scene(tmp_path, quiet_s=60, max_wait_s=0.5)
    with scene.watch:
        deadline = time.monotonic() + 20
        while len(scene.told) < 2 and time.monotonic() < deadline:
            (scene.code / "log.txt").write_text(str(time.monotonic()))
            time.sleep(0.02)
        assert len(scene.told) == 2
    assert scene.told[1].budget_used_s - scene.told[0].budget_used_s >= 0.5


def test_the_end_is_looked_at_once_more(tmp_path: Path) -> None:
    scene = Scene(tmp_path, quiet_s=60, max_wait_s=60)
    with scene.watch:
        (scene.code / "train.py").write_text("late")
    scene.watch.close()
    [event] = scene.told
    assert (event.cause, event.changed) == ("end", ("train.py",))


def test_a_hint_spares_the_wait(tmp_path: Path) -> None:
    scene = Scene(tmp_path, quiet_s=60, max_wait_s=60)
    with scene.watch:
        (scene.code / "train.py").write_text("now")
        scene.watch.look_soon()
        scene.wait_for(lambda: len(scene.told) == 1)
    assert scene.told[0].cause == "change"


def test_events_of_the_ledger_are_hints(tmp_path: Path) -> None:
    scene = Scene(tmp_path, quiet_s=60, max_wait_s=60)
    with scene.watch:
        (scene.code / "train.py").write_text("now")
        scene.watch.heed(AgentEvent(kind="message", budget_used_s=1.0))
        time.sleep(0.3)
        assert not scene.told
        scene.watch.heed(AgentEvent(kind="tool_result", budget_used_s=1.0))
        scene.wait_for(lambda: len(scene.told) == 1)
        for revision in (scene.told[0].revision, "", "1" * 40):
            scene.watch.heed(
                SubmissionAccepted(
                    submission_id=7,
                    model_path="m",
                    content_hash="h",
                    tasks=(),
                    budget_used_s=1.0,
                    code_revision=revision,
                )
            )
    assert CodeReader(scene.path).submissions() == {"submission-7": scene.told[0].revision}
    assert len(scene.warned) == 1


def test_a_submission_gets_its_revision_and_tells_it_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, quiet_s=60, max_wait_s=60)
    with scene.watch:
        (scene.code / "train.py").write_text("x")
        one = scene.watch.at_submission()
        two = scene.watch.at_submission()
    assert one == two
    assert [(event.cause, event.revision) for event in scene.told] == [("submission", one)]


def test_revisions_are_told_in_their_order_from_all_threads(scene: Scene) -> None:
    def work(number: int) -> None:
        for turn in range(10):
            (scene.code / f"f{number}.py").write_text(str(turn))
            scene.watch.at_submission()

    with scene.watch:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = [revision.id for revision in CodeReader(scene.path).revisions()]
    assert [event.revision for event in scene.told] == stored


def test_what_fails_is_a_warning_and_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_watch, "RETRY_S", 0.1)
    scene.path.parent.joinpath("code.git.draft").touch()
    monkeypatch.setenv("PATH", "/nonexistent")
    with scene.watch:
        (scene.code / "train.py").write_text("x")
        scene.wait_for(lambda: len(scene.warned) == 1)
        with pytest.raises(WorkspaceError):
            scene.watch.at_submission()
        time.sleep(0.5)
        assert len(scene.warned) == 1
        assert "Install git" in scene.warned[0]
        monkeypatch.undo()
        scene.wait_for(lambda: len(scene.told) == 1)


def test_a_ledger_that_refuses_ends_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def refuse(event: object) -> None:
        raise LedgerError("no room")

    watch = CodeWatch(
        scene.code,
        history=scene.history,
        used_s=lambda: 0.0,
        tell=refuse,
        warn=refuse,
        poll_s=0.05,
        quiet_s=0.1,
    )
    with watch:
        (scene.code / "train.py").write_text("x")
        time.sleep(0.5)
    assert len(CodeReader(scene.path).revisions()) >= 1


def test_many_revisions_slow_the_watch_down(scene: Scene) -> None:
    scene.history.num_revisions = 1_000_000
    with scene.watch:
        (scene.code / "train.py").write_text("x")
        scene.wait_for(lambda: len(scene.told) == 1)
        scene.history.num_revisions = 1_000_000
        (scene.code / "train.py").write_text("y")
        time.sleep(0.8)
        scene.watch.look_soon()
        time.sleep(0.2)
        assert len(scene.told) == 1
    assert [event.cause for event in scene.told] == ["change", "end"]


def test_a_huge_tree_costs_bounded_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_files, "MAX_ENTRIES", 3000)
    monkeypatch.setattr(code_files, "MAX_FILES", 500)
    for folder in range(10):
        (scene.code / f"d{folder}").mkdir()
        for number in range(500):
            (scene.code / f"d{folder}" / f"{number}.txt").touch()
    assert list_code(scene.code).num_entries <= 3020
    with scene.watch:
        scene.wait_for(lambda: len(scene.told) == 1)
    assert scene.told[0].num_files == 500


def test_code_that_comes_and_goes_is_no_failure(scene: Scene) -> None:
    with scene.watch:
        (scene.code / "train.py").write_text("x")
        scene.wait_for(lambda: len(scene.told) == 1)
        shutil.rmtree(scene.code)
        scene.wait_for(lambda: len(scene.told) == 2)
        scene.code.write_text("a file")
        time.sleep(0.3)
    assert scene.told[1].num_files == 0
    assert not scene.warned
