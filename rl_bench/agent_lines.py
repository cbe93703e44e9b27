"""What tables and lines of progress say about drivers, sandboxes, audits and invalid runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rl_bench.agent_view import BREACH, DriverUse
from rl_bench.audit.rules import Rule
from rl_bench.counts import plural
from rl_bench.events import ModeVerdict, RunEnd
from rl_bench.run_table import Column, PlannedRun, labels, numbers
from rl_bench.run_view import RunView

AT_LEAST = "+"
"""Marks tokens and cost where some calls told no usage."""
_TROUBLE = 3
"""So many failed calls in a row are worth a line of the live table."""
_MAX_TROUBLES = 3
_MAX_LOOKS = 12
_MAX_WORDS = 240
"""Characters of one reason."""
_THOUSAND = 1000


def count(num: int | None) -> str:
    """A number of tokens: ``950``, ``12.3k``, ``1.2M``; ``–`` for none told."""
    if num is None:
        return "–"
    if num < _THOUSAND:
        return str(num)
    thousands = num / _THOUSAND
    if thousands < _THOUSAND - 0.05:
        return f"{thousands:.1f}k"
    return f"{thousands / _THOUSAND:.1f}M"


def usd(cost: float | None) -> str:
    """US dollars: ``$0.42``; ``–`` where no cost is known, ``<$0.01`` for less than a cent."""
    if cost is None:
        return "–"
    return "<$0.01" if 0 < cost < 0.01 else f"${cost:.2f}"


def driver_columns(views: Sequence[RunView | None]) -> list[Column]:
    """Tokens and cost, a cell a row, blank where there is no view; none where no driver is used."""
    if not any(view and view.driver_use.num_calls for view in views):
        return []
    tokens, costs = [], []
    for view in views:
        use = view.driver_use if view else DriverUse()
        mark = AT_LEAST if use.num_unknown else ""
        tokens.append(count(_tokens(use)) + mark if use.num_calls else "")
        costs.append(usd(use.cost_usd) + mark if use.num_calls else "")
    return [numbers("tokens", tokens, drop=6), numbers("cost", costs, drop=3)]


def revision_column(views: Sequence[RunView | None]) -> list[Column]:
    """Revisions of the agents' code; no column where none was recorded."""
    if not any(view and view.num_revisions for view in views):
        return []
    cells = [str(view.num_revisions) if view else "" for view in views]
    return [numbers("revs", cells, drop=7)]


def driver_words(use: DriverUse) -> str:
    """A driver's use in a line: ``12 calls (3 failed), 1.2M tokens in, 30.1k out, $0.42``."""
    failed = f" ({use.num_failed} failed)" if use.num_failed else ""
    parts = [plural(use.num_calls, "call") + failed]
    if use.input_tokens is not None:
        parts.append(f"{count(use.input_tokens)} tokens in")
    if use.output_tokens is not None:
        parts.append(f"{count(use.output_tokens)} out")
    if use.cost_usd is not None:
        parts.append(usd(use.cost_usd))
    words = ", ".join(parts)
    return f"{words} (at least: some calls told no tokens)" if use.num_unknown else words


def total_cost(views: Iterable[RunView]) -> float | None:
    """What the drivers of all attempts cost; None while nothing is known."""
    costs = [view.total_cost_usd for view in views if view.total_cost_usd is not None]
    return sum(costs) if costs else None


def sandbox_lines(views: Iterable[RunView]) -> list[str]:
    """What confines the agents; in capitals where nothing does."""
    counts: Counter[tuple[str, str]] = Counter()
    warnings: dict[tuple[str, str], tuple[str, ...]] = {}
    for view in views:
        if view.sandbox:
            key = (view.sandbox, view.sandbox_version)
            counts[key] += 1
            warnings.setdefault(key, view.sandbox_warnings)
    lines = []
    for key, num in counts.items():
        words = " ".join(filter(None, key))
        where = f"in {plural(num, 'run')}"
        lines.append(f"NO SANDBOX {where}" if key[0] == "none" else f"sandbox {words} {where}")
        lines += [f"  {warning}" for warning in warnings[key]]
    return lines


def trouble_lines(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """Runs that go on although their driver does not answer, for the live table."""
    lines = []
    for run in plan:
        view = views.get(run.run_id)
        if view is None or view.end is not None:
            continue
        use = view.driver_use
        if use.num_failed_in_a_row >= _TROUBLE:
            what = f"{plural(use.num_failed_in_a_row, 'call')} failed in a row"
            lines.append(f"{run.digest}: the driver does not answer, {what}: {_failure(use)}")
    more = len(lines) - _MAX_TROUBLES
    return lines if more <= 0 else [*lines[:_MAX_TROUBLES], f"… and {plural(more, 'run')} more"]


def agent_changes(old: RunView | None, new: RunView) -> list[str]:
    """What happened between two looks at one attempt: sandbox, driver, audit."""
    lines: list[str] = []
    if new.sandbox and (old is None or old.sandbox != new.sandbox):
        if new.sandbox == "none":
            lines.append("NO SANDBOX: " + "; ".join(new.sandbox_warnings))
        else:
            lines.append(" ".join(filter(None, ("sandbox", new.sandbox, new.sandbox_version))))
    if old is not None and new.agent_use.num_sessions > max(old.agent_use.num_sessions, 1):
        lines.append(f"the agent was started again, session {new.agent_use.num_sessions}")
    lines += _driver_changes(old.driver_use if old else DriverUse(), new.driver_use)
    lines += _audit_changes(old, new)
    return lines


def again_lines(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """Runs that the driver ended, each with the kind of its failure: they are to be run again."""
    lines = []
    names = labels(plan)
    for run in plan:
        view = views.get(run.run_id)
        if view is not None and view.end is RunEnd.DRIVER_ERROR:
            kind = _failure(view.driver_use) if view.driver_use.last_failure else view.end_detail
            of = f"{view.driver_use.num_failed} of {plural(view.driver_use.num_calls, 'call')}"
            lines.append(f"{run.digest}  {names[run.run_id]}: {kind or 'unknown'} ({of} failed)")
    return lines


def invalid_lines(views: Mapping[str, RunView], runs: Sequence[PlannedRun]) -> list[str]:
    """Which rule each of these invalid runs broke."""
    return [
        f"{run.digest}  {views[run.run_id].invalid_reason or 'no reason was recorded'}"
        for run in runs
    ]


def look_lines(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """What the audit says of runs that count, beyond a clean mode: for a person to look at."""
    lines = []
    for run in plan:
        view = views.get(run.run_id)
        words = _look_words(view) if view is not None and not view.is_invalid else ""
        if words:
            lines.append(f"{run.digest}  {words}")
    more = len(lines) - _MAX_LOOKS
    return lines if more <= 0 else [*lines[:_MAX_LOOKS], f"… and {plural(more, 'run')} more"]


def probe_lines(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """How often the control `leak_probe` tried, where nothing got through."""
    known = [(run, views[run.run_id]) for run in plan if run.run_id in views]
    lines = [f"{words} ({run.digest})" for run, view in known if (words := _probe_words(view))]
    return lines[:_MAX_LOOKS]


def timed_out_lines(views: Mapping[str, RunView], plan: Sequence[PlannedRun]) -> list[str]:
    """Why runs were timed out before their budget's end, a line a reason."""
    digests: dict[str, list[str]] = {}
    for run in plan:
        view = views.get(run.run_id)
        if view is not None and view.end is RunEnd.TIMED_OUT and view.end_detail:
            digests.setdefault(view.end_detail, []).append(run.digest)
    lines = []
    for detail, several in digests.items():
        more = f" and {len(several) - _MAX_LOOKS} more" if len(several) > _MAX_LOOKS else ""
        which = ", ".join(several[:_MAX_LOOKS]) + more
        lines.append(f"timed_out  {_short(detail)} ({which})")
    return lines[:_MAX_LOOKS]


def _probe_words(view: RunView | None) -> str:
    words = view.audit.last_by_severity.get("info", "") if view is not None else ""
    return words if words.startswith(f"{Rule.LEAK_PROBE.value}: ") else ""


def _look_words(view: RunView) -> str:
    audit = view.audit
    parts = []
    if audit.verdict in (ModeVerdict.SUSPECT, ModeVerdict.UNKNOWN):
        parts.append(f"mode {audit.verdict.value}: {_short(audit.mode_summary)}")
    for severity in (BREACH, "warning"):
        num = audit.num_by_severity[severity]
        if num:
            what = plural(num, severity) if severity != BREACH else f"{num} breach"
            what += "es" if severity == BREACH and num > 1 else ""
            last = ", the last" if num > 1 else ""
            parts.append(f"{what}{last}: {_short(audit.last_by_severity[severity])}")
    return "; ".join(parts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_WORDS else line[: _MAX_WORDS - 1] + "…"


def _tokens(use: DriverUse) -> int | None:
    known = [num for num in (use.input_tokens, use.output_tokens) if num is not None]
    return sum(known) if known else None


def _failure(use: DriverUse) -> str:
    return ", ".join(filter(None, (use.last_failure, use.last_failure_detail)))


def _driver_changes(old: DriverUse, new: DriverUse) -> list[str]:
    """Told when the kind of failure changes, else at 1, 2, 4, 8, … failed calls."""
    if new.num_failed <= old.num_failed:
        return []
    doubled = new.num_failed.bit_length() > old.num_failed.bit_length()
    if not doubled and new.last_failure == old.last_failure:
        return []
    what = f"{new.num_failed} of {plural(new.num_calls, 'call')} of the driver failed so far"
    return [f"{what}, the last: {_failure(new)}"]


def _audit_changes(old: RunView | None, new: RunView) -> list[str]:
    before = old.audit.num_by_severity if old else Counter[str]()
    lines = []
    for severity in ("warning", "breach"):
        num = new.audit.num_by_severity[severity] - before[severity]
        if num > 0:
            more = f" (and {num - 1} more)" if num > 1 else ""
            lines.append(f"finding, {severity}: {new.audit.last_by_severity[severity]}{more}")
    words = _probe_words(new)
    if words and words != _probe_words(old):
        lines.append(f"finding, info: {words}")
    verdict = new.audit.verdict
    if verdict is not None and (old is None or old.audit.verdict is not verdict):
        methods = ", ".join(new.audit.methods) or "no training seen"
        clean = verdict in (ModeVerdict.CLEAN, ModeVerdict.UNKNOWN)
        words = methods if clean else new.audit.mode_summary
        lines.append(f"mode {new.mode}: {verdict.value} ({words})")
    return lines
