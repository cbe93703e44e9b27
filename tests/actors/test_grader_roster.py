"""Which grader takes which job, on a clock of the tests' own."""

import pytest
from pydantic import ValidationError

from actors.grader_roster import FAILURES_BEFORE_PAUSE, PAUSE_S, Placement, Roster
from actors.grading_queue import GradingQueue
from actors.shared_requests import Offer
from rl_bench.config import GraderConfig, ModelConfig
from rl_bench.events import Evaluation
from rl_bench.sweep_claim import FREE
from tests.actors.grading_jobs import make_job

A = ModelConfig(name="a", kind="tiny")
B = ModelConfig(name="b", kind="tiny")
CONFIG = GraderConfig(
    name="g",
    num_graders=2,
    max_graders=3,
    affinity_wait_s=30.0,
    grow_after_s=60.0,
    shrink_after_s=600.0,
)
MUCH = Offer(num_items=500, left_s=50.0)


class Scene:
    """A queue and graders; time is what ``now`` says."""

    def __init__(self, *graders: str) -> None:
        self.now = 0.0
        self.queue = GradingQueue(clock=lambda: self.now)
        self.roster = Roster(self.queue, config=CONFIG, clock=lambda: self.now)
        self.num_put = 0
        for name in graders:
            self.roster.add(name)

    def put(self, model: ModelConfig) -> None:
        self.num_put += 1
        number = self.num_put
        self.queue.put(make_job(f"c{number}", run_id=f"r{number}", model=model))

    def place(self) -> Placement:
        placed = self.roster.next()
        assert placed is not None
        return placed

    def warm(self, *models: ModelConfig) -> None:
        """The graders, in order, have graded these."""
        for model in models:
            self.put(model)
        for placed in [self.place() for _ in models]:
            self.roster.graded(placed)


def test_a_job_goes_to_the_engine_that_has_its_architecture() -> None:
    scene = Scene("g0", "g1")
    scene.warm(A, B)
    scene.put(B)
    assert scene.place().grader == "g1"
    scene.put(A)
    assert scene.place().grader == "g0"


def test_it_waits_for_that_engine_but_not_for_ever() -> None:
    scene = Scene("g0", "g1")
    scene.warm(A, B)
    scene.put(B)
    scene.place()
    scene.put(B)
    assert scene.roster.next() is None, "g1 has the architecture and may be done soon"
    assert scene.roster.due_s() == 30.0
    scene.now = 30.0
    assert scene.place().grader == "g0"


def test_an_engine_keeps_to_its_own_kind_while_such_work_waits_but_not_for_ever() -> None:
    scene = Scene("g0")
    scene.warm(A)
    scene.put(B)
    scene.put(A)
    scene.put(A)
    first = scene.place()
    assert first.ticket.job.model == A
    scene.now = 31.0
    scene.roster.graded(first)
    assert scene.place().ticket.job.model == B


def test_without_work_of_its_own_kind_it_changes_at_once() -> None:
    scene = Scene("g0", "g1")
    scene.warm(A, A)
    scene.put(B)
    assert scene.roster.next() is not None


def test_a_failed_job_is_tried_on_another_grader_if_there_is_one() -> None:
    scene = Scene("g0", "g1")
    scene.warm(A, A)
    scene.put(A)
    placed = scene.place()
    scene.roster.failed(placed)
    scene.roster.recovered(placed.grader)
    scene.queue.put_back(placed.ticket)
    assert scene.place().grader != placed.grader

    alone = Scene("g0")
    alone.put(A)
    placed = alone.place()
    alone.roster.failed(placed)
    alone.queue.put_back(placed.ticket)
    assert alone.roster.next() is None, "it has not recovered"
    alone.roster.recovered("g0")
    assert alone.place().grader == "g0"


def test_a_grader_that_fails_while_others_succeed_is_set_aside_for_a_while() -> None:
    scene = Scene("g0", "g1")
    for _ in range(FAILURES_BEFORE_PAUSE):
        scene.put(A)
        scene.put(A)
        placed = {each.grader: each for each in (scene.place(), scene.place())}
        scene.roster.graded(placed["g1"])
        assert not scene.roster.demand().notes
        scene.roster.failed(placed["g0"])
        scene.roster.recovered("g0")
    [note] = scene.roster.demand().notes
    assert note.startswith("g0 failed 3 times in a row")
    scene.put(A)
    assert scene.place().grader == "g1"
    scene.put(A)
    assert scene.roster.next() is None
    assert scene.roster.due_s() == PAUSE_S
    scene.now = PAUSE_S
    assert scene.place().grader == "g0"


def test_when_all_fail_none_is_set_aside() -> None:
    scene = Scene("g0", "g1")
    for _ in range(2 * FAILURES_BEFORE_PAUSE):
        scene.put(A)
        scene.put(A)
        for placed in (scene.place(), scene.place()):
            scene.roster.failed(placed)
            scene.roster.recovered(placed.grader)
    assert scene.roster.demand().notes == ()


def test_an_idle_grader_helps_when_it_is_worth_the_load() -> None:
    scene = Scene("g0", "g1", "g2")
    scene.warm(A, A, B)
    scene.put(A)
    placed = scene.place()
    assert placed.grader not in scene.roster.idle()
    assert set(scene.roster.grading()) == {placed.grader}
    fitting = next(name for name in ("g0", "g1") if name != placed.grader)
    assert scene.roster.is_worth(fitting, placed.ticket, MUCH)
    little = Offer(num_items=500, left_s=0.5)
    assert not scene.roster.is_worth(fitting, placed.ticket, little)
    assert not scene.roster.is_worth("g2", placed.ticket, MUCH), "its engine would start anew"
    ages = Offer(num_items=500, left_s=500.0)
    assert scene.roster.is_worth("g2", placed.ticket, ages)


def test_a_helper_is_recalled_once_for_each_job_that_waits() -> None:
    scene = Scene("g0", "g1")
    scene.warm(A, A)
    scene.put(A)
    placed = scene.place()
    helper = "g1" if placed.grader == "g0" else "g0"
    scene.roster.helping(helper, placed.ticket)
    assert scene.roster.to_recall() is None
    scene.put(A)
    assert scene.roster.next() is None
    assert scene.roster.to_recall() == helper
    assert scene.roster.to_recall() is None
    scene.roster.helped(helper, is_well=True)
    assert scene.place().grader == helper


def test_a_grader_is_wanted_when_a_job_waits_long_and_released_when_idle_long() -> None:
    scene = Scene("g0", "g1")
    for _ in range(3):
        scene.put(A)
    begun = [scene.place(), scene.place()]
    scene.now = 59.0
    assert not scene.roster.demand().wants_more
    scene.now = 60.0
    assert scene.roster.demand().wants_more
    scene.roster.add("g2", is_grown=True)
    assert not scene.roster.demand().wants_more, "three are the most"
    third = scene.place()
    scene.now = 100.0
    for placed in [*begun, third]:
        scene.roster.graded(placed)
    scene.now = 699.0
    assert scene.roster.demand().released == ()
    scene.now = 700.0
    assert scene.roster.demand().released == ("g2",), "those of the start stay"
    assert scene.roster.demand().released == ("g2",), "said until it is gone"
    scene.roster.remove("g2")
    assert scene.roster.demand().released == ()


def test_limits_of_the_pool_are_checked_and_free_to_change_between_starts() -> None:
    with pytest.raises(ValidationError, match="max_graders=1 is less than num_graders=2"):
        GraderConfig(name="g", num_graders=2, max_graders=1)
    keys = {"num_graders", "max_graders", "grow_after_s", "shrink_after_s"}
    assert keys | {"affinity_wait_s", "split_items"} <= FREE["grader"] & set(
        GraderConfig.model_fields
    )


def test_a_job_waits_no_longer_than_twice_what_a_start_was_seen_to_take() -> None:
    scene = Scene("g0", "g1")
    scene.put(A)
    scene.put(B)
    first, second = scene.place(), scene.place()
    verdict = Evaluation(
        task="t",
        score=1.0,
        num_items=1,
        num_errors=0,
        evaluator_version="1",
        load_kind="cold",
        load_s=4.0,
    )
    scene.roster.graded(first, (verdict,))
    scene.roster.graded(second, (verdict,))
    scene.put(B)
    scene.place()
    scene.put(B)
    assert scene.roster.next() is None
    assert scene.roster.due_s() == 8.0
    scene.now = 8.0
    assert scene.place().grader == "g0"
