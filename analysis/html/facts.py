"""The figures at the top of a run's page: heading and value, and in words why there is none."""

from collections.abc import Callable
from typing import Any

from analysis.html.words import count, duration, label, moment, number, signed, usd
from analysis.run_tables import Row

Facts = list[tuple[str, str]]


def score_facts(row: Row) -> Facts:
    """Of one task of a run, by its row of table ``runs``."""
    noise = " ~ within the noise" if row["within_noise"] else ""
    return [
        ("Base model", _told(row["baseline_score"], number, "no score")),
        ("Best", _told(row["best_score"], number, "no valid score")),
        ("Gain, points", signed(row["improvement"]) + noise),
        ("Noise floor", _told(row["noise_floor"], number, "not measured")),
        ("Submissions", count(row["num_submissions"])),
        ("Without score", count(row["num_failed"])),
        ("Invalid", count(row["num_invalid"])),
        ("Level", row["level"]),
    ]


def run_facts(run: Row) -> Facts:
    """Of a whole run, by a row of table ``runs``. What no driver can have told is left out."""
    methods = ", ".join(run["mode_methods"])
    verdict = _told(run["mode_verdict"], label, "not audited")
    return [
        ("Budget used", f"{duration(run['budget_used_s'])} of {duration(run['budget_s'])}"),
        ("Duration", duration(run["duration_s"])),
        ("Waited for graders", duration(run["queue_s"])),
        ("Driver calls", count(run["driver_calls"])),
        *(_spending(run) if run["driver_calls"] else ()),
        ("Revisions", count(run["num_revisions"])),
        ("Attempts", count(run["num_attempts"])),
        ("Sessions", count(run["num_sessions"])),
        ("Refused requests", count(run["num_rejected"])),
        ("Mode audit", f"{verdict}: {methods}" if methods else verdict),
        ("Sandbox", _told(run["sandbox"], label, "not told")),
        ("Began", _told(run["started_at"], moment, "not yet")),
    ]


def _spending(run: Row) -> Facts:
    return [
        ("Tokens in", _told(run["input_tokens"], count, "not told")),
        ("Tokens out", _told(run["output_tokens"], count, "not told")),
        ("Cost", _told(run["cost_usd"], usd, "not known")),
    ]


def _told(value: Any, words: Callable[[Any], str], otherwise: str) -> str:  # noqa: ANN401  a cell
    return otherwise if value in (None, "") else words(value)
