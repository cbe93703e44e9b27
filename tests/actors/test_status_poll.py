"""Graders that answer, hang or die, asked by one who does not wait."""

import time
from collections.abc import Callable

import pytest
import ray

from actors.remote import Handle
from actors.status_poll import StatusPoll
from rl_bench.grading_status import GradingStatus, Phase

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_session")]


class Answering:
    """Says how often it was asked; ``stuck``: it never answers."""

    def __init__(self, name: str, *, stuck: bool = False) -> None:
        self.name = name
        self._is_stuck = stuck
        self._num_asked = 0

    def status(self) -> GradingStatus | None:
        while self._is_stuck:
            time.sleep(0.1)
        self._num_asked += 1
        return GradingStatus(
            run_id=self.name, task="t", phase=Phase.PLAYING, done=self._num_asked, total=99
        )


def start(name: str, *, stuck: bool = False) -> Handle:
    handle: Handle = ray.remote(Answering).options(num_cpus=0).remote(name, stuck=stuck)
    return handle


def seen(poll: StatusPoll, wanted: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Looks until ``wanted`` holds; no look may wait."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        started = time.monotonic()
        known = {status.run_id: status.done for status in poll.look()}
        assert time.monotonic() - started < 40.0
        if wanted(known):
            return known
        time.sleep(0.02)
    raise AssertionError("never seen")


def test_a_grader_that_hangs_or_dies_holds_up_nobody() -> None:
    graders = [start("good"), start("stuck", stuck=True), start("dying")]
    poll = StatusPoll(graders, poll_s=0.0)
    assert poll.look() == []
    seen(poll, lambda known: set(known) == {"good", "dying"})
    ray.kill(graders[2])
    last = seen(poll, lambda known: set(known) == {"good"})
    seen(poll, lambda known: known.get("good", 0) > last["good"])
    for grader in graders[:2]:
        ray.kill(grader)


def test_graders_are_asked_only_now_and_then() -> None:
    grader = start("g")
    now = 0.0
    poll = StatusPoll([grader], poll_s=2.0, clock=lambda: now)
    assert seen(poll, bool) == {"g": 1}
    now = 1.9
    assert ray.get(grader.status.remote()).done == 2  # nobody else has asked
    assert seen(poll, bool) == {"g": 1}
    now = 2.0
    assert seen(poll, lambda known: known["g"] > 1) == {"g": 3}
    ray.kill(grader)
