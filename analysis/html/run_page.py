"""What the page of one run shows, from its rows of the tables and its code history.

Read from the runs' own files only, so that pages of many runs can be made side by side. Everything
that the agent wrote is text here and is escaped by the template; sizes are bounded.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from pydantic_core import to_json

from analysis.html.curve import Curve, curve
from analysis.html.diffs import CodeDiffs, code_diffs
from analysis.html.pages import render
from analysis.html.timeline import Timeline, timeline
from analysis.html.words import cut
from analysis.narrative import Narrative
from analysis.run_tables import Row, RunRows, run_rows
from rl_bench.agent_records import MODE_RULE

TABLES: Mapping[str, Sequence[str]] = {
    "submissions": (
        *("submission_id", "task", "status", "score", "failure", "best_so_far", "improvement"),
        *("within_noise", "is_invalid", "invalid_reason", "content_hash", "model_path"),
        *("code_revision", "duplicate_of", "unchanged", "budget_used_s", "queue_s", "duration_s"),
        *("accepted_at", "graded_at"),
    ),
    "events": ("seq", "time", "elapsed_s", "type", "payload"),
    "driver_calls": (
        *("call", "budget_used_s", "model", "status", "failure", "detail", "latency_s"),
        *("first_byte_s", "input_tokens", "cached_tokens", "output_tokens", "cost_usd"),
    ),
    "trace": ("seq", "time", "session", "kind", "name", "text", "call_id", "is_error"),
    "revisions": (
        *("seq", "time", "budget_used_s", "revision", "cause", "changed", "num_changed"),
        "num_files",
    ),
    "processes": (
        *("seq", "pid", "parent_pid", "argv", "began_s", "duration_s", "cpu_s"),
        "max_rss_bytes",
    ),
    "findings": (
        *("seq", "time", "severity", "rule", "verdict", "submission_id", "summary", "methods"),
        *("evidence", "rules_version"),
    ),
}
"""Tables, and their columns that a page is made of."""
MAX_CALLS = 2_000
"""Driver calls that a page lists; the sums are of all."""
MAX_QUOTE = 1_000
HOUR_S = 3600.0
_SUMS = ("input_tokens", "output_tokens", "cached_tokens", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding, or the judgement of the mode, and where it was seen."""

    row: Row
    evidence: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A run's page.

    Attributes:
        rows: The run's rows of table ``runs``, one a task; what is the run's is in each.
        calls: The latest driver calls; ``hours``: all of them by hour; ``models``: by model.
        verdicts: The audit's judgement of the mode, one if there is any; ``findings``: all else.
        settings: The spec as JSON, values of environment variables left out.
        folder: The run's own.
    """

    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    submissions: tuple[Row, ...]
    timeline: Timeline
    revisions: tuple[Row, ...]
    diffs: CodeDiffs
    calls: tuple[Row, ...]
    num_calls: int
    hours: tuple[Row, ...]
    models: tuple[Row, ...]
    verdicts: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    settings: str
    folder: Path

    @property
    def run(self) -> Row:
        return self.rows[0]

    @property
    def num_left_out(self) -> int:
        """Driver calls that are not listed."""
        return self.num_calls - len(self.calls)


def tables_of(runs: Iterable[Row]) -> list[RunRows]:
    """What pages are made of; a row of ``Results.runs`` a run.

    Raises:
        OSError, polars.exceptions.PolarsError: A file of one of the runs is damaged.
    """
    return run_rows([(Path(run["folder"]), run["attempt"]) for run in runs], TABLES)


def run_page(
    rows: Sequence[Row],
    *,
    tables: RunRows | None = None,
    trainings: Sequence[tuple[float, float]] = (),
) -> RunPage:
    """What the page of one run shows.

    Args:
        rows: The run's rows of ``Results.runs``.
        tables: Its rows of `TABLES`; None: read here.
        trainings: See `analysis.html.timeline.timeline`.
    """
    run = rows[0]
    folder = Path(run["folder"])
    (tables,) = tables_of([run]) if tables is None else [tables]
    submissions = sorted(tables["submissions"], key=itemgetter("submission_id", "task"))
    calls = sorted(tables["driver_calls"], key=itemgetter("call"))
    revisions = tables["revisions"]
    verdicts, findings = _judged(tables["findings"])
    return RunPage(
        rows=tuple(rows),
        curves=tuple(_curves(rows, submissions)),
        submissions=tuple(submissions),
        timeline=timeline(tables, started=run["started_at"], trainings=trainings),
        revisions=tuple(revisions),
        diffs=code_diffs(folder / "code.git", [row["revision"] for row in revisions]),
        calls=tuple(calls[-MAX_CALLS:]),
        num_calls=len(calls),
        hours=tuple(_spent(calls, "hour", lambda call: int(call["budget_used_s"] // HOUR_S))),
        models=tuple(_spent(calls, "model", itemgetter("model"))),
        verdicts=tuple(verdicts),
        findings=tuple(findings),
        settings=_settings(str(run["spec"])),
        folder=folder.resolve(),
    )


def run_html(
    page: RunPage,
    *,
    refresh_s: float = 0.0,
    account: Narrative | None = None,
    **shown: object,
) -> str:
    """The page as HTML."""
    return render("run.html", page=page, refresh_s=refresh_s, account=account, **shown)


def _curves(rows: Sequence[Row], submissions: Sequence[Row]) -> list[Curve]:
    return [
        curve(
            submissions,
            task=row["task"],
            baseline=row["baseline_score"],
            end_s=row["budget_used_s"],
        )
        for row in rows
    ]


def _spent(calls: Iterable[Row], name: str, key: Callable[[Row], Any]) -> list[Row]:
    """Sums of calls by what ``key`` says of them; a sum of what nobody told is null."""
    groups: dict[Any, list[Row]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return [{name: group, **_sums(groups[group])} for group in sorted(groups)]


def _sums(calls: Sequence[Row]) -> Row:
    def known(column: str) -> list[float]:
        return [call[column] for call in calls if call[column] is not None]

    latencies = known("latency_s")
    return {
        "calls": len(calls),
        "failed": len(known("failure")),
        "latency_s": median(latencies) if latencies else None,
        **{column: sum(told) if (told := known(column)) else None for column in _SUMS},
    }


def _judged(rows: Sequence[Row]) -> tuple[list[Finding], list[Finding]]:
    """The judgement of the mode, which is no finding, and the findings, the worst first."""
    rank = {"breach": 0, "warning": 1, "info": 2}
    found = [Finding(row=row, evidence=tuple(_evidence(row["evidence"]))) for row in rows]
    found.sort(key=lambda each: rank.get(str(each.row["severity"]), 3))
    verdicts = [each for each in found if each.row["rule"] == MODE_RULE]
    return verdicts, [each for each in found if each.row["rule"] != MODE_RULE]


def _evidence(text: str) -> list[Row]:
    pieces = json.loads(text or "[]")
    return [
        {**piece, "quote": cut(str(piece.get("quote", "")), MAX_QUOTE)}
        for piece in pieces
        if isinstance(piece, dict)
    ]


def _settings(spec: str) -> str:
    """The spec for people; environment variables may hold keys, so their values stay out."""
    try:
        loaded = json.loads(spec)
    except ValueError:
        return spec
    if isinstance(loaded, dict) and isinstance(loaded.get("agent"), dict):
        agent = loaded["agent"]
        names: Mapping[str, object] = agent.get("env") or {}
        agent["env"] = dict.fromkeys(names, "(set)")
    return to_json(loaded, indent=2).decode()
