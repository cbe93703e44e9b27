"""Progress of a sweep: a live table on a terminal, plain timestamped lines elsewhere.

`render` and `changes` are pure functions of views and plan; `Progress` only shows what they return.
Runs that wait have no view. When more runs are planned than fit, the table shows the active ones
and the latest to finish, and counts the rest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rl_bench.config import RunSpec
from rl_bench.events import RunState
from rl_bench.run_view import RunView, TaskView

DEFAULT_MAX_ROWS = 24

_STYLES = {
    RunState.PENDING: "dim",
    RunState.PREPARING: "cyan",
    RunState.BASELINE: "cyan",
    RunState.RUNNING: "bold yellow",
    RunState.CLOSING: "cyan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run of the plan as tables show it; ``tasks`` in the spec's order."""

    run_id: str
    agent: str
    driver: str
    mode: str
    tasks: tuple[str, ...]
    model: str
    seed: int
    budget_s: float

    @property
    def digest(self) -> str:
        """The end of the run's id, which tells it from every other; its label is in the columns."""
        return self.run_id.rsplit("-", 1)[-1]


def planned(specs: Mapping[str, RunSpec]) -> list[PlannedRun]:
    """The plan (run id to spec, in order) as progress and summary take it."""
    return [
        PlannedRun(
            run_id=run_id,
            agent=spec.agent.name,
            driver=spec.driver.name,
            mode=spec.mode.name,
            tasks=tuple(task.name for task in spec.tasks),
            model=spec.model.name,
            seed=spec.seed,
            budget_s=spec.budget.wall_clock_s,
        )
        for run_id, spec in specs.items()
    ]


def state_words(view: RunView | None) -> str:
    """A run's state, or its end once it has one; ``retrying`` between two attempts."""
    if view is None:
        return RunState.PENDING.value
    if view.end is None:
        return view.state.value
    return view.end.value if view.is_final else f"retrying ({view.end.value})"


def number(value: float | None, *, signed: bool = False) -> str:
    """A score in a cell: one decimal, ``–`` for none (which is not 0)."""
    if value is None:
        return "–"
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def totals(views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, now: datetime) -> str:
    """One line: finished of planned, active, waiting, failures, submissions, elapsed."""
    known = [views[run.run_id] for run in plan if run.run_id in views]
    final = [view for view in known if view.is_final]
    active = [view for view in known if not view.is_final]
    infra = sum(view.is_infrastructure for view in final)
    parts = [
        f"{len(final)}/{len(plan)} runs finished",
        f"{len(active)} active",
        f"{len(plan) - len(known)} waiting",
        f"{sum(view.num_submissions for view in known)} submissions",
    ]
    if infra:
        parts.append(f"{infra} infrastructure failures")
    left = sum(view.budget_left_s(now) for view in active)
    left += sum(run.budget_s for run in plan if run.run_id not in views)
    parts.append(f"budget left {duration(left)}")
    return " · ".join(parts)


def render(
    views: Mapping[str, RunView],
    plan: Sequence[PlannedRun],
    *,
    now: datetime,
    max_rows: int = DEFAULT_MAX_ROWS,
) -> RenderableType:
    """The live table at ``now`` (UTC), at most ``max_rows`` runs, and the totals under it."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in ("run", "agent", "driver", "mode", "task", "seed", "state"):
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for heading in ("base", "best", "gain", "subs", "left", "elapsed"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = _choose(views, plan, max_rows=max_rows)
    for run in shown:
        table.add_row(*_cells(run, views.get(run.run_id), now=now))
    lines: list[RenderableType] = [table]
    hidden = [run for run in plan if run not in shown]
    if hidden:
        lines.append(Text(_hidden_words(views, hidden), style="dim"))
    lines.append(Text(totals(views, plan, now=now), style="bold"))
    return Group(*lines)


def changes(
    before: Mapping[str, RunView], after: Mapping[str, RunView], plan: Sequence[PlannedRun]
) -> list[str]:
    """What happened between two looks, a line each: states, baselines, scores, failures."""
    lines: list[str] = []
    for run in plan:
        new = after.get(run.run_id)
        if new is not None:
            old = before.get(run.run_id)
            label = f"{run.agent}/{run.driver} {run.mode} {'+'.join(run.tasks)} seed {run.seed}"
            lines += [f"{label}: {words}" for words in _run_changes(old, new)]
    return lines


class Progress:
    """Shows a sweep's progress on ``console``; use as a context manager.

    Args:
        plan: The runs, in the order shown.
        console: Where; a console that is no terminal gets plain lines.
        known: Views from before a resume, which plain lines need not tell again.
    """

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        *,
        console: Console | None = None,
        known: Mapping[str, RunView] | None = None,
    ) -> None:
        self._plan = list(plan)
        self._console = console or Console()
        self._before: dict[str, RunView] = dict(known or {})
        self._totals = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, views: Mapping[str, RunView]) -> None:
        """Shows ``views``; call it every second or so."""
        now = datetime.now(UTC)
        if self._live is not None:
            max_rows = max(self._console.height - 5, 3)
            self._live.update(render(views, self._plan, now=now, max_rows=max_rows))
        else:
            lines = changes(self._before, views, self._plan)
            line = totals(views, self._plan, now=now)
            self._print(lines, line, now=now)
        self._before = dict(views)

    def say(self, text: str) -> None:
        """Prints one line of what is going on, above the table where there is one."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._console.print(f"{stamp} {text}", markup=False, highlight=False, soft_wrap=True)

    def _print(self, lines: Iterable[str], totals_line: str, *, now: datetime) -> None:
        num_finished = totals_line.split(" · ", 1)[0]
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        words = list(lines)
        if num_finished != self._totals:
            self._totals = num_finished
            words.append(totals_line)
        for line in words:
            self._console.print(f"{stamp} {line}", markup=False, highlight=False, soft_wrap=True)


def _choose(
    views: Mapping[str, RunView], plan: Sequence[PlannedRun], *, max_rows: int
) -> list[PlannedRun]:
    """Active runs first, then the latest to finish, then waiting ones; shown in the plan's order.

    A run of several tasks takes as many rows as it has tasks.
    """

    def rank(run: PlannedRun) -> tuple[int, float]:
        view = views.get(run.run_id)
        if view is None:
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


def _cells(run: PlannedRun, view: RunView | None, *, now: datetime) -> list[RenderableType]:
    tasks = [(view.tasks.get(name) if view else None) or TaskView(task=name) for name in run.tasks]
    words = state_words(view)
    return [
        run.digest,
        run.agent,
        run.driver,
        run.mode,
        "\n".join(run.tasks),
        str(run.seed),
        Text(words, style=_style(view)),
        "\n".join(number(task.baseline) for task in tasks),
        "\n".join(number(task.best) for task in tasks),
        "\n".join(number(task.improvement, signed=True) for task in tasks),
        "\n".join(_submissions(task) for task in tasks),
        duration(run.budget_s if view is None else view.budget_left_s(now)),
        duration(view.elapsed_s(now)) if view else "",
    ]


def _submissions(task: TaskView) -> str:
    """``3`` accepted, with failed ones after it: ``3 (1 failed)``."""
    failed = f" ({task.num_failed} failed)" if task.num_failed else ""
    return f"{task.num_submissions}{failed}"


def _style(view: RunView | None) -> str:
    if view is None:
        return "dim"
    if view.end is None:
        return _STYLES.get(view.state, "")
    if view.is_infrastructure:
        return "bold red"
    return "green" if view.end.value in ("completed", "timed_out") else "magenta"


def _hidden_words(views: Mapping[str, RunView], hidden: Sequence[PlannedRun]) -> str:
    counts = Counter(state_words(views.get(run.run_id)) for run in hidden)
    return f"… and {len(hidden)} more: " + ", ".join(f"{n} {s}" for s, n in counts.most_common())


def _run_changes(old: RunView | None, new: RunView) -> list[str]:
    if old is not None and old.attempt != new.attempt:
        old = None
    lines = []
    if old is None and new.attempt > 0:
        lines.append(f"attempt {new.attempt + 1}")
    if old is None or (old.state, old.end) != (new.state, new.end):
        detail = f" ({new.end_detail})" if new.end_detail else ""
        lines.append(state_words(new) + (detail if new.end else ""))
    for name, task in new.tasks.items():
        lines += _task_changes((old.tasks.get(name) if old else None) or TaskView(task=name), task)
    if new.num_rejected > (old.num_rejected if old else 0):
        lines.append(f"{new.num_rejected} requests rejected so far")
    if new.num_warnings > (old.num_warnings if old else 0):
        lines.append(f"warning: {new.last_warning}")
    if new.is_final and (old is None or not old.is_final):
        lines.append(
            f"baseline {number(new.baseline)}, best {number(new.best)}, "
            f"gain {number(new.improvement, signed=True)}, {new.num_submissions} submissions, "
            f"{duration(new.duration_s)}"
        )
    return lines


def _task_changes(old: TaskView, new: TaskView) -> list[str]:
    lines = []
    if (old.baseline, old.baseline_failure) != (new.baseline, new.baseline_failure):
        why = f" ({new.baseline_failure})" if new.baseline_failure else ""
        lines.append(f"{new.task} baseline {number(new.baseline)}{why}")
    if old.num_graded + old.num_failed != new.num_graded + new.num_failed:
        what = f"submission {new.last_submission_id}"
        if new.last_score is None:
            lines.append(f"{new.task} {what} has no score: {new.last_failure}")
        else:
            best = f"best {number(new.best)}, gain {number(new.improvement, signed=True)}"
            lines.append(f"{new.task} {what} scored {number(new.last_score)} ({best})")
    return lines
