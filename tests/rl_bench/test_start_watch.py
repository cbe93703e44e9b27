"""What a start waits for is told until a grading is under way, and then no more."""

import pytest

from rl_bench.grading_status import GradingStatus, Phase
from rl_bench.run_view import RunView, fold_all
from rl_bench.start_watch import ENGINE, PROCESS, StartWatch
from tests.rl_bench.conftest import MakeStory, Story


class Scene:
    """A watch on a clock of its own."""

    def __init__(self, known: dict[str, RunView]) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self._watch = StartWatch(known, say=self.said.append, clock=lambda: self.now_s)

    def look(self, run: Story | None, *gradings: GradingStatus, at_s: float) -> None:
        self.now_s = at_s
        views = {run.run_id: fold_all(run.run_id, run.entries)} if run else {}
        self._watch.look(views, gradings)


def grading(phase: Phase, *, total: int = 0) -> GradingStatus:
    return GradingStatus(run_id="r", task="alfworld", phase=phase, total=total)


def test_process_and_engine_are_told_with_the_time_that_they_take(story: MakeStory) -> None:
    run = story("r").start()
    scene = Scene({})
    scene.look(None, at_s=0.0)
    scene.look(None, at_s=4.0)
    scene.look(None, at_s=6.0)
    scene.look(run, at_s=7.0)
    scene.look(run, grading(Phase.LOADING), at_s=13.0)
    scene.look(run, grading(Phase.LOADING), at_s=14.0)
    scene.look(run, grading(Phase.GENERATING, total=20), at_s=100.0)
    scene.look(run, grading(Phase.LOADING), at_s=200.0)
    assert scene.said == [PROCESS, f"{PROCESS}: 6 s so far", ENGINE, f"{ENGINE}: 6 s so far"]


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_run_that_is_further_ends_the_start(story: MakeStory, is_ended: bool) -> None:
    run = story("r").start()
    run = run.finish() if is_ended else run.baseline(5.0)
    scene = Scene({})
    scene.look(run, at_s=0.0)
    scene.look(None, at_s=50.0)
    assert scene.said == []


def test_what_runs_did_before_a_resume_is_no_start(story: MakeStory) -> None:
    run = story("r").start().baseline(5.0)
    scene = Scene({"r": fold_all("r", run.entries)})
    scene.look(run, at_s=0.0)
    assert scene.said == [PROCESS]
    scene.look(run.start(1), at_s=1.0)
    assert scene.said == [PROCESS, ENGINE]
