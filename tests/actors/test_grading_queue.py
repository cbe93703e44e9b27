"""The order of jobs between runs, on a clock of the tests' own."""

from actors.grading_queue import GradingQueue, Ticket
from tests.actors.grading_jobs import make_job


class Scene:
    """A queue, and one grader that takes whatever is first."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue = GradingQueue(clock=lambda: self.now)

    def put(self, run_id: str, submission_id: int | None = 1) -> Ticket:
        content = f"{run_id}{submission_id}"
        return self.queue.put(make_job(content, run_id=run_id, submission_id=submission_id))

    def serve(self, seconds: dict[str, float], num: int) -> list[str]:
        """The runs of the next ``num`` gradings, each as long as ``seconds`` says."""
        served = []
        for _ in range(num):
            ticket = self.queue.in_order()[0]
            self.queue.take(ticket)
            self.now += seconds[ticket.job.run_id]
            self.queue.settle(ticket)
            served.append(ticket.job.run_id)
        return served


def test_graders_are_shared_by_seconds_not_by_submissions() -> None:
    scene = Scene()
    for number in range(1, 31):
        scene.put("cheap", number)
        scene.put("dear", number)
    served = scene.serve({"cheap": 1.0, "dear": 10.0}, 22)
    assert served.count("cheap") in (19, 20, 21)
    assert served.count("dear") in (1, 2, 3)


def test_few_dear_submissions_do_not_starve_many_cheap_ones_nor_the_other_way() -> None:
    scene = Scene()
    scene.put("dear", 1)
    scene.put("dear", 2)
    scene.put("cheap", 1)
    assert scene.serve({"cheap": 1.0, "dear": 100.0}, 2) == ["dear", "cheap"]
    for number in range(2, 300):
        scene.put("cheap", number)
    assert "dear" in scene.serve({"cheap": 1.0, "dear": 100.0}, 101)


def test_a_newcomer_joins_where_the_others_stand() -> None:
    scene = Scene()
    for number in range(1, 12):
        scene.put("old", number)
    scene.serve({"old": 100.0}, 5)
    for number in range(1, 6):
        scene.put("new", number)
    served = scene.serve({"old": 100.0, "new": 100.0}, 4)
    assert served.count("old") == 2, "five gradings of the past are not held against it"


def test_a_run_keeps_its_order_and_a_failed_grading_comes_first_again() -> None:
    scene = Scene()
    first, second = scene.put("r", 1), scene.put("r", 2)
    assert scene.queue.in_order() == [first]
    scene.queue.take(first)
    assert scene.queue.in_order() == [second]
    scene.queue.settle(first)
    scene.queue.put_back(first)
    assert scene.queue.in_order() == [first]


def test_baselines_go_first_and_cost_nothing() -> None:
    scene = Scene()
    scene.put("a", 1)
    scene.put("b", None)
    scene.put("a", None)
    assert scene.serve({"a": 50.0, "b": 50.0}, 2) == ["b", "a"]
    assert scene.queue.attained_s("a") == scene.queue.attained_s("b") == 0.0


def test_a_grading_under_way_counts_before_it_has_ended() -> None:
    scene = Scene()
    one, _ = scene.put("a", 1), scene.put("a", 2)
    other = scene.put("b", 1)
    scene.queue.take(one)
    assert scene.queue.in_order()[0] is other


def test_what_nobody_waits_for_is_dropped_while_it_waits() -> None:
    scene = Scene()
    one, two, base = scene.put("a", 1), scene.put("a", 2), scene.put("a", None)
    assert scene.queue.drop(two)
    assert scene.queue.drop(base)
    scene.queue.take(one)
    assert not scene.queue.drop(one)
    assert len(scene.queue) == 0


def test_the_longest_wait_is_that_of_the_first_to_come() -> None:
    scene = Scene()
    assert scene.queue.oldest_wait_s() == 0.0
    scene.put("a", 1)
    scene.now = 5.0
    scene.put("b", None)
    assert scene.queue.oldest_wait_s() == 5.0
