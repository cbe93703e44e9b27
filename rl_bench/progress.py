"""Progress of a sweep: a live table on a terminal, plain timestamped lines elsewhere.

Tables fit the width without cutting a number: what all runs share stands in the title, columns
that matter less are left out, then words are shortened. `render` and `changes` are pure functions
of views and plan; `Progress` only shows what they return. Runs that wait have no view, or one that
is pending. When more runs are planned than fit, the table shows the active ones and the latest to
finish, and counts the rest.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rl_bench.agent_lines import (
    agent_changes,
    driver_columns,
    driver_words,
    sandbox_lines,
    total_cost,
    trouble_lines,
    usd,
)
from rl_bench.counts import plural
from rl_bench.events import RunState
from rl_bench.grading_status import GradingStatus
from rl_bench.lines import StampedLines, can_redraw, one_line
from rl_bench.run_table import (
    DEFAULT_WIDTH,
    INTERRUPTED,
    Column,
    PlannedRun,
    best,
    duration,
    failed_column,
    fit,
    gain,
    gain_words,
    has_begun,
    labels,
    number,
    numbers,
    state_words,
    table_text,
    task_views,
    title,
    varying_columns,
)
from rl_bench.run_view import RunView
from rl_bench.task_view import TaskView

DEFAULT_MAX_ROWS = 24
_MAX_HEARTBEAT_RUNS = 4
_NO_GRADINGS: Mapping[str, GradingStatus] = {}
_STYLES = {
    RunState.PENDING: "dim",
    RunState.PREPARING: "cyan",
    RunState.BASELINE: "cyan",
    RunState.RUNNING: "bold yellow",
    RunState.CLOSING: "cyan",
}


def totals(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    *,
    now: datetime,
    is_driven: bool = True,
) -> str:
    """One line: finished of planned, active, waiting, failures, submissions, cost, budget.

    ``is_driven`` as in `render`.
    """
    begun = _begun(views, plan)
    known = [views[name] for name in begun]
    final = [view for view in known if view.is_final]
    active = [view for view in known if not view.is_final]
    infra = sum(view.is_infrastructure for view in final)
    invalid = sum(view.is_invalid for view in final)
    cost = total_cost(known)
    parts = [
        f"{len(final)}/{plural(len(plan), 'run')} finished",
        f"{len(active)} {INTERRUPTED if active and not is_driven else 'active'}",
        f"{len(plan) - len(known)} waiting",
        plural(sum(view.num_submissions for view in known), "submission"),
    ]
    if infra:
        parts.append(plural(infra, "infrastructure failure"))
    if invalid:
        parts.append(f"{invalid} invalid")
    if cost is not None:
        parts.append(f"drivers {usd(cost)}")
    left = sum(view.budget_left_s(_until(view, now, is_driven=is_driven)) for view in active)
    left += sum(run.budget_s for run in plan if run.run_id not in begun)
    parts.append(f"budget left {duration(left)}")
    return " · ".join(parts)


def render(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    *,
    now: datetime,
    gradings: Mapping[str, GradingStatus] = _NO_GRADINGS,
    is_driven: bool = True,
    max_rows: int = DEFAULT_MAX_ROWS,
    width: int = DEFAULT_WIDTH,
) -> RenderableType:
    """The live table at ``now`` (UTC), at most ``max_rows`` rows, and the totals under it.

    Between them stand drivers that do not answer and runs without a sandbox, a line each, for
    which rows make room. ``gradings`` tell, by a run's id, how far the grading of its checkpoint
    is. ``is_driven`` is False where no process drives the sweep: then what has begun and is not
    over is interrupted, and its clocks stand where its last entry left them.
    """
    alarms = [*_open_lines(views, plan), *trouble_lines(views, plan)]
    shown = _choose(views, plan, max_rows=max(max_rows - len(alarms), 3))
    columns = fit(
        _live_columns(views, plan, shown, gradings, now=now, is_driven=is_driven), width=width
    )
    lines: list[RenderableType] = [Text(title(plan)), table_text(columns, width=width)]
    hidden = [run for run in plan if run not in shown]
    if hidden:
        lines.append(Text(_hidden_words(views, hidden, is_driven=is_driven), style="dim"))
    lines += [
        Text(one_line(words), style="bold red", no_wrap=True, overflow="ellipsis")
        for words in alarms
    ]
    lines.append(Text(totals(views, plan, now=now, is_driven=is_driven), style="bold"))
    return Group(*lines)


def changes(
    before: Mapping[str, RunView], after: Mapping[str, RunView], plan: Sequence[PlannedRun]
) -> list[str]:
    """What happened between two looks, a line each: states, baselines, scores, failures."""
    told = [
        (run.run_id, words)
        for run in plan
        if (new := after.get(run.run_id)) is not None
        for words in _run_changes(before.get(run.run_id), new, names_tasks=len(run.tasks) > 1)
    ]
    names = labels(plan) if told else {}  # of all runs: not at every look
    return [f"{names[run_id]}: {words}" for run_id, words in told]


def heartbeat(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    *,
    now: datetime,
    gradings: Mapping[str, GradingStatus] = _NO_GRADINGS,
    is_driven: bool = True,
) -> str:
    """One line for a quiet time: the totals, and best score and budget left of active runs.

    ``is_driven`` as in `render`.
    """
    begun = _begun(views, plan)
    active = [run for run in plan if run.run_id in begun and not views[run.run_id].is_final]
    parts = [totals(views, plan, now=now, is_driven=is_driven)]
    names = labels(plan)
    for run in active[:_MAX_HEARTBEAT_RUNS]:
        view = views[run.run_id]
        left = duration(view.budget_left_s(_until(view, now, is_driven=is_driven)))
        doing = _doing(view, gradings.get(run.run_id), is_driven=is_driven)
        spent = f", {usd(view.driver_use.cost_usd)}" if view.driver_use.num_calls else ""
        parts.append(f"{names[run.run_id]}: {doing}, best {number(view.best)}, {left} left{spent}")
    if len(active) > _MAX_HEARTBEAT_RUNS:
        parts.append(f"and {len(active) - _MAX_HEARTBEAT_RUNS} more")
    return "; ".join(parts)


class Progress:
    """Shows a sweep's progress on ``console``; use as a context manager.

    Args:
        plan: The runs, in the order shown.
        console: Where; a console that is no terminal gets plain lines.
        known: Views from before a resume, which plain lines need not tell again. What was broken
            off waits until it begins anew.
        clock: Monotonic seconds; plain lines say `heartbeat` when one is due.
    """

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        *,
        console: Console | None = None,
        known: Mapping[str, RunView] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = list(plan)
        self._console = console or Console()
        self._before: dict[str, RunView] = dict(known or {})
        self._broken_off = {
            name: view.num_attempts for name, view in self._before.items() if not view.is_finished
        }
        self._totals = ""
        self._lines = StampedLines(self._console, clock=clock)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if can_redraw(self._console):
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        elif self._plan:
            self.say(title(self._plan))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            # As it stops, Rich draws the last view once more and whole: of one that is higher than
            # the terminal a part would stay, above the summary.
            self._live.update(Text(), refresh=True)
            self._live.stop()
            self._live = None

    def update(self, views: Mapping[str, RunView], statuses: Sequence[GradingStatus] = ()) -> None:
        """Shows ``views``, and how far gradings are; call it every second or so."""
        now = datetime.now(UTC)
        views = {
            name: view
            for name, view in views.items()
            if view.num_attempts > self._broken_off.get(name, -1)
        }
        gradings = {status.run_id: status for status in statuses}
        if self._live is not None:
            # Title and totals may wrap to two lines each; then heading, hidden runs and cursor.
            max_rows = max(self._console.height - 7, 3)
            width = self._console.width
            table = render(
                views, self._plan, now=now, gradings=gradings, max_rows=max_rows, width=width
            )
            self._live.update(table, refresh=True)
        else:
            self._print(views, gradings, now=now)
        self._before |= views

    def say(self, text: str) -> None:
        """Prints one line of what is going on, above the table where there is one."""
        self._lines.say(text)

    def _print(
        self,
        views: Mapping[str, RunView],
        gradings: Mapping[str, GradingStatus],
        *,
        now: datetime,
    ) -> None:
        lines = changes(self._before, views, self._plan)
        totals_line = totals(views, self._plan, now=now)
        num_finished = totals_line.split(" · ", 1)[0]
        if num_finished != self._totals:
            self._totals = num_finished
            lines.append(totals_line)
        if not lines and self._lines.is_due:
            lines.append(heartbeat(views, self._plan, now=now, gradings=gradings))
        for line in lines:
            self._lines.say(line, now=now)


def _begun(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """Ids of the planned runs that do not wait."""
    return [run.run_id for run in plan if has_begun(views.get(run.run_id))]


def _until(view: RunView, now: datetime, *, is_driven: bool) -> datetime:
    """Until when a run's clocks are read: its last entry where nobody drives it on."""
    return now if is_driven else datetime.fromisoformat(view.last_time_utc)


def _choose(
    views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, max_rows: int
) -> list[PlannedRun]:
    """Active runs first, then the latest to finish, then waiting ones; shown in the plan's order.

    A run of several tasks takes as many rows as it has tasks.
    """

    def rank(run: PlannedRun) -> tuple[int, float]:
        view = views.get(run.run_id)
        if not has_begun(view):
            return 2, 0.0
        if not view.is_final:
            return 0, 0.0
        return 1, -(view.ended_utc.timestamp() if view.ended_utc else 0.0)

    chosen: set[str] = set()
    rows_left = max_rows
    for run in sorted(plan, key=rank):
        rows_left -= len(run.tasks)
        if rows_left < 0 and chosen:
            break
        chosen.add(run.run_id)
    return [run for run in plan if run.run_id in chosen]


def _live_columns(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    shown: Sequence[PlannedRun],
    gradings: Mapping[str, GradingStatus],
    *,
    now: datetime,
    is_driven: bool,
) -> list[Column]:
    """A row a task; what belongs to the run stands in the first of its rows."""
    first: list[PlannedRun | None] = []
    tasks: list[TaskView] = []
    for run in shown:
        first += [run, *[None] * (len(run.tasks) - 1)]
        tasks += task_views(run, views.get(run.run_id))

    def of_run(words: Callable[[PlannedRun, RunView | None], str]) -> tuple[str, ...]:
        return tuple(words(run, views.get(run.run_id)) if run else "" for run in first)

    def left(run: PlannedRun, view: RunView | None) -> str:
        if view is None or not view.num_attempts:
            return duration(run.budget_s)
        return duration(view.budget_left_s(_until(view, now, is_driven=is_driven)))

    def elapsed(_run: PlannedRun, view: RunView | None) -> str:
        if view is None or not view.num_attempts:
            return ""
        return duration(view.elapsed_s(_until(view, now, is_driven=is_driven)))

    first_views = [views.get(run.run_id) if run else None for run in first]
    every = [views.get(run.run_id) for run in shown for _ in run.tasks]
    states = of_run(lambda run, view: _doing(view, gradings.get(run.run_id), is_driven=is_driven))
    styles = of_run(lambda _, view: _style(view))
    return [
        Column(heading="run", cells=of_run(lambda run, _: run.digest)),
        *varying_columns(plan, first),
        Column(heading="task", cells=tuple(task.task for task in tasks)),
        Column(heading="state", cells=states, styles=styles),
        numbers("base", [number(task.baseline) for task in tasks]),
        numbers("best", [best(*pair) for pair in zip(tasks, every, strict=True)]),
        numbers("gain", [gain(*pair) for pair in zip(tasks, every, strict=True)]),
        numbers("subs", [str(task.num_submissions) for task in tasks], drop=1),
        *failed_column(tasks),
        *driver_columns(first_views),
        numbers("left", of_run(left)),
        numbers("elapsed", of_run(elapsed), drop=4),
    ]


def _doing(view: RunView | None, grading: GradingStatus | None, *, is_driven: bool = True) -> str:
    """A run's state, and how far the grading is that it waits for: ``baseline 57/134``."""
    words = state_words(view, is_driven=is_driven)
    if view is None or view.end is not None or grading is None or not is_driven:
        return words
    is_baseline = view.state is RunState.BASELINE
    if is_baseline != (grading.submission_id is None):  # of a moment ago
        return words
    return f"{words} {grading.fraction}" if is_baseline else f"{words}, grading {grading.fraction}"


def _style(view: RunView | None) -> str:
    if view is None:
        return "dim"
    if view.end is None:
        return _STYLES.get(view.state, "")
    if view.is_infrastructure or view.is_invalid:
        return "bold red"
    return "green" if view.end.value in ("completed", "timed_out") else "magenta"


def _open_lines(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """Tells of active runs without a sandbox; what that means is told when each begins."""
    active = [views[run.run_id] for run in plan if run.run_id in views]
    unconfined = [view for view in active if view.sandbox == "none" and view.end is None]
    return sandbox_lines(unconfined)[:1]


def _hidden_words(
    views: Mapping[str, RunView], hidden: Sequence[PlannedRun], *, is_driven: bool
) -> str:
    counts = Counter(state_words(views.get(run.run_id), is_driven=is_driven) for run in hidden)
    return f"… and {len(hidden)} more: " + ", ".join(f"{n} {s}" for s, n in counts.most_common())


def _run_changes(old: RunView | None, new: RunView, *, names_tasks: bool) -> list[str]:
    if old is not None and old.attempt != new.attempt:
        old = None
    lines = []
    if old is None and new.attempt > 0:
        lines.append(f"attempt {new.attempt + 1}")
    if old is None or (old.state, old.end) != (new.state, new.end):
        why = new.invalid_reason or new.end_detail
        detail = f" ({why})" if why else ""
        lines.append(state_words(new) + (detail if new.end else ""))
    lines += agent_changes(old, new)
    for name, task in new.tasks.items():
        before = (old.tasks.get(name) if old else None) or TaskView(task=name)
        told = _task_changes(before, task)
        lines += [f"{name} {words}" for words in told] if names_tasks else told
    if new.num_rejected > (old.num_rejected if old else 0):
        what = plural(new.num_rejected, "request")
        lines.append(f"{what} rejected so far, the last: {new.last_rejection}")
    if new.num_warnings > (old.num_warnings if old else 0):
        lines.append(f"warning: {new.last_warning}")
    if new.is_final and (old is None or not old.is_final):
        lines.append(_last_words(new))
    return lines


def _last_words(view: RunView) -> str:
    words = (
        f"baseline {number(view.baseline)}, best {number(view.best)}, {gain_words(view)}, "
        f"{plural(view.num_submissions, 'submission')}, {duration(view.duration_s)}"
    )
    if view.driver_use.num_calls:
        words += f"; driver: {driver_words(view.driver_use)}"
    return f"counts for nothing: {words}" if view.is_invalid else words


def _task_changes(old: TaskView, new: TaskView) -> list[str]:
    lines = []
    if (old.baseline, old.baseline_failure) != (new.baseline, new.baseline_failure):
        lines.append(f"baseline {number(new.baseline)}{_baseline_remarks(new)}")
    if old.num_graded + old.num_failed != new.num_graded + new.num_failed:
        what = f"submission {new.last_submission_id}"
        if new.last_score is None:
            lines.append(f"{what} has no score: {new.last_failure}")
        else:
            remarks = [f"best {number(new.best)}", gain_words(new)]
            remarks += [new.last_missing] if new.last_missing else []
            score = number(new.last_score)
            lines.append(f"{what} scored {score} ({', '.join(remarks)})")
    return lines


def _baseline_remarks(task: TaskView) -> str:
    remarks = [task.baseline_failure or task.baseline_missing, task.baseline_outgrown]
    if task.noise_floor is not None:
        times = len(task.baseline_scores)
        remarks.append(f"noise floor {number(task.noise_floor)} from {plural(times, 'grading')}")
    text = ", ".join(filter(None, remarks))
    return f" ({text})" if text else ""
