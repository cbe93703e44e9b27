"""Asks graders how far they are, without ever waiting for one.

What is shown of a grading is a courtesy: a grader that is busy, being started again or gone must
not hold up whoever starts runs and takes verdicts.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from actors.remote import Handle
from rl_bench.grading_status import GradingStatus

POLL_S = 2.0


class StatusPoll:
    """The latest answer of each grader that has given one; a grader's death takes its answer along.

    Args:
        graders: Actors with a ``status`` method.
        poll_s: Between two questions to one grader, which has at most one to answer at a time.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        graders: Sequence[Handle],
        *,
        poll_s: float = POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._poll_s = poll_s
        self._clock = clock
        self._next_s = clock()
        self._asked: dict[ray.ObjectRef[Any], str] = {}
        self._answers: dict[str, GradingStatus | None] = {}
        self.watch(graders)

    def watch(self, graders: Sequence[Handle]) -> None:
        """Looks at these from now on; what others said is forgotten."""
        self._graders = {grader._actor_id.hex(): grader for grader in graders}
        self._answers = {key: said for key, said in self._answers.items() if key in self._graders}

    def look(self) -> list[GradingStatus]:
        """What is known of evaluations under way; returns at once."""
        if self._asked:
            answered, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
            for reference in answered:
                key = self._asked.pop(reference)
                if key in self._graders:
                    self._answers[key] = _answer(reference)
        if self._clock() >= self._next_s:
            self._next_s = self._clock() + self._poll_s
            for key in set(self._graders) - set(self._asked.values()):
                self._asked[self._graders[key].status.remote()] = key
        return [status for status in self._answers.values() if status is not None]


def _answer(reference: "ray.ObjectRef[Any]") -> GradingStatus | None:
    try:
        status: GradingStatus | None = ray.get(reference)
    except RayError:  # it died, which the pool sees to
        return None
    return status
