"""What an evaluation shows while it runs, and its table at the end."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from rl_bench.context_fit import context_remark
from rl_bench.counts import plural
from rl_bench.evaluation import EvaluationRecord
from rl_bench.events import Evaluation
from rl_bench.grading_status import GradingStatus
from rl_bench.lines import StampedLines, can_redraw, print_line, widen
from rl_bench.paths import EvaluationPaths
from rl_bench.run_table import Column, duration, fit, number, numbers, table_text
from rl_bench.start_watch import ENGINE
from rl_bench.task_view import failure_of, missing_items, score_of
from rl_bench.waiting import SoFar

_LEGEND = {
    "n": "items",
    "noise": "the noise floor: 95 of 100 times two gradings of one checkpoint differ by less",
    "seconds": "of the evaluation alone, without the engine's start and its weights",
    "failures": "items that could not be evaluated, or why there is no score",
}


class EvaluationProgress:
    """A live line on a terminal, plain timestamped lines elsewhere; use as a context manager.

    Args:
        tasks: All of them, in order.
        console: Where; one that is no terminal gets a line whenever it was quiet for long.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = list(tasks)
        self._open = list(tasks)
        self._console = console or Console()
        self._clock = clock
        self._lines = StampedLines(self._console, clock=clock)
        self._started = clock()
        self._since: dict[str, float] = {}
        self._counts: dict[str, str] = {}
        self._start: SoFar | None = None
        self._has_started = False
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if can_redraw(self._console):
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Prints one line of what is going on."""
        self._lines.say(text)

    def begin(self, task: str) -> None:
        """The graders are asked for the task; the first of them has yet to start its engine."""
        self._since[task] = self._clock()
        self.say(f"{task}: grading")
        if self._start is None:
            self._start = SoFar(ENGINE, self.say, clock=self._clock)

    def end(self, evaluation: Evaluation) -> None:
        """Tells a task's verdict."""
        self._open.remove(evaluation.task)
        self._has_started = True
        told = (failure_of(evaluation), missing_items(evaluation), context_remark(evaluation))
        remarks = ", ".join(filter(None, told))
        spent = duration(self._clock() - self._since[evaluation.task])
        self.say(
            f"{evaluation.task}: score {number(score_of(evaluation))} after {spent}"
            + (f" ({remarks})" if remarks else "")
        )

    def tick(self, statuses: Sequence[GradingStatus] = ()) -> None:
        """Shows where things stand; call it every second or so.

        Args:
            statuses: How far gradings are, as far as that is known.
        """
        self._counts = {status.task: f" ({status})" for status in statuses}
        self._has_started |= any(status.total for status in statuses)
        if self._status is not None:
            self._status.update(Text(self.line()))
        elif self._start is not None and not self._has_started:
            self._start.look()
        elif self._open and self._lines.is_due:
            self.say(self.line())

    def line(self) -> str:
        """``1 of 2 tasks done · grading alfworld 1:23 (57 of 134 episodes) · elapsed 2:00``."""
        now = self._clock()
        parts = [f"{len(self._tasks) - len(self._open)} of {plural(len(self._tasks), 'task')} done"]
        running = [task for task in self._open if task in self._since]
        times = [
            f"{task} {duration(now - self._since[task])}{self._counts.get(task, '')}"
            for task in running
        ]
        parts += [f"grading {', '.join(times)}"] if running else []
        waiting = [task for task in self._open if task not in self._since]
        parts += [f"waiting {', '.join(waiting)}"] if waiting and running else []
        parts += [ENGINE] if running and not self._has_started else []
        return " · ".join([*parts, f"elapsed {duration(now - self._started)}"])


def show_records(
    records: Sequence[EvaluationRecord], *, paths: EvaluationPaths, console: Console | None = None
) -> None:
    """Prints the table, why a score is missing, and where the results lie."""
    out = console or Console()
    widen(out)
    evaluations = [record.evaluation for record in records]
    columns = fit(_columns(evaluations), width=out.width)
    out.print()
    out.print(table_text(columns, width=out.width), soft_wrap=True)
    out.print()
    for heading, meaning in _LEGEND.items():
        if any(column.heading == heading for column in columns):
            print_line(out, f"{heading:8}  {meaning}")
    if columns[-1].heading != "metrics":
        for evaluation in evaluations:
            print_line(out, f"{evaluation.task} metrics: {_metrics(evaluation)}")
    for evaluation in evaluations:
        if failure_of(evaluation):
            print_line(out, f"{evaluation.task} has no score: {failure_of(evaluation)}")
        if context_remark(evaluation):
            print_line(out, f"{evaluation.task}: {context_remark(evaluation)}")
    print_line(out, f"Results: {paths.evaluations}, {paths.items('<task>')}")


def _columns(evaluations: Sequence[Evaluation]) -> list[Column]:
    """The metrics are left out where they do not fit; the noise where none was measured."""
    columns = [
        Column(heading="task", cells=tuple(each.task for each in evaluations)),
        numbers("n", [str(each.num_items) for each in evaluations]),
        numbers("score", [number(score_of(each)) for each in evaluations]),
        numbers("seconds", [f"{each.duration_s:.1f}" for each in evaluations]),
        Column(heading="failures", cells=tuple(map(_failures, evaluations))),
        Column(heading="metrics", cells=tuple(map(_metrics, evaluations)), drop=1),
    ]
    if any(each.noise_floor is not None for each in evaluations):
        columns.insert(3, numbers("noise", [number(each.noise_floor) for each in evaluations]))
    return columns


def _failures(evaluation: Evaluation) -> str:
    return missing_items(evaluation) or ("no score" if failure_of(evaluation) else "–")


def _metrics(evaluation: Evaluation) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in evaluation.metrics.items()) or "–"
