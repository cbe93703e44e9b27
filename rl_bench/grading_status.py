"""How far an evaluation is: counted by the grader, shown while a checkpoint is graded.

`Tally` counts and `GradingStatus` is what it says. A count is for people who wait: nothing is
decided by it. It costs an addition an item, and nothing a token or a step of an environment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from rl_bench.counts import plural

OnItem = Callable[[], None]
"""Called once for each item that is done."""


class Phase(StrEnum):
    """What an evaluation is doing."""

    LOADING = "loading"
    GENERATING = "generating"
    PLAYING = "playing"
    EXECUTING = "executing"
    JUDGING = "judging"
    SCORING = "scoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingStatus:
    """Where an evaluation stands.

    Attributes:
        run_id: Of the job that is graded.
        submission_id: Likewise; ``None`` for a baseline.
        done: Items of the phase that are done; what was lost or left unjudged is not among them.
        total: Items of the phase; 0 where they are not counted.
        repeat: 0 for the first grading of the checkpoint, of ``num_repeats``.
    """

    run_id: str
    submission_id: int | None = None
    task: str
    phase: Phase
    done: int = 0
    total: int = 0
    repeat: int = 0
    num_repeats: int = 1

    def __str__(self) -> str:
        """``57 of 134 episodes``, ``judging 310 of 805``, ``loading``."""
        if self.phase is Phase.PLAYING:
            words = f"{self.done} of {plural(self.total, 'episode')}"
        else:
            words = f"{self.phase} {self.done} of {self.total}"
        times = f", time {self.repeat + 1} of {self.num_repeats}" if self.num_repeats > 1 else ""
        return (words if self.total else self.phase.value) + times

    @property
    def fraction(self) -> str:
        """``57/134`` where room is short; the phase where nothing is counted."""
        return f"{self.done}/{self.total}" if self.total else self.phase.value


class Tally:
    """Counts what one evaluation of one checkpoint has done, phase after phase.

    It begins with loading; whatever is outside a stage after that is the task's own scoring.
    """

    def __init__(
        self,
        run_id: str,
        *,
        task: str,
        submission_id: int | None = None,
        repeat: int = 0,
        num_repeats: int = 1,
    ) -> None:
        self._run_id = run_id
        self._submission_id = submission_id
        self._task = task
        self._repeat = repeat
        self._num_repeats = num_repeats
        self._stage = _Stage(Phase.LOADING)

    @contextmanager
    def stage(self, phase: Phase, total: int) -> Iterator[OnItem]:
        """A stretch of ``total`` items, which gives what to call for each.

        Stretches of one phase that overlap add up, e.g. two questions to a judge about each item.
        """
        if self._stage.phase is not phase:
            self._stage = _Stage(phase)
        stage = self._stage
        stage.total += total
        stage.num_open += 1
        try:
            yield stage.count
        finally:
            stage.num_open -= 1
            if not stage.num_open and self._stage is stage:
                self._stage = _Stage(Phase.SCORING)

    def status(self) -> GradingStatus:
        """Where the evaluation stands now."""
        return GradingStatus(
            run_id=self._run_id,
            submission_id=self._submission_id,
            task=self._task,
            phase=self._stage.phase,
            done=self._stage.done,
            total=self._stage.total,
            repeat=self._repeat,
            num_repeats=self._num_repeats,
        )


@dataclass(slots=True)
class _Stage:
    phase: Phase
    total: int = 0
    done: int = 0
    num_open: int = 0

    def count(self) -> None:
        self.done += 1
