"""Pieces that pages have by the hundred, written without the template engine.

That takes several times as long for each. All text goes through `_safe`, as the engine's does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from markupsafe import Markup, escape

from analysis.html.diffs import DiffLine
from analysis.html.timeline import KINDS, Moment
from analysis.html.words import (
    breakable,
    clock,
    count,
    duration,
    first_line,
    label,
    number,
    printable,
    signed,
    usd,
)
from analysis.run_tables import Row


def badge(row: Row) -> Markup:
    """How a run stands, of its row of table ``runs``."""
    if row["end"] is None:
        kind, words = "running", row["state"]
    elif row["is_invalid"]:
        kind, words = "bad", "invalid"
    elif row["is_infrastructure"]:
        kind, words = "infra", row["end"]
    else:
        is_good = row["counts"] and row["end"] in ("completed", "timed_out")
        kind, words = "good" if is_good else "warn", row["end"]
    marks = [f'<span class="badge {kind}">{_safe(label(words))}</span>']
    if row["mode_verdict"] == "suspect":
        marks.append('<span class="badge warn" title="the audit doubts its mode">suspect</span>')
    return _joined(marks, " ")


def call_rows(calls: Iterable[Row]) -> Markup:
    """Rows of the table of the driver's calls."""
    return _joined(map(_call, calls), "\n")


def moment_rows(moments: Iterable[Moment], revisions: Collection[str]) -> Markup:
    """Entries of the lineage; ``revisions`` are those whose diff is on the page."""
    rows = (_moment(moment, has_diff=moment.revision in revisions) for moment in moments)
    return _joined(rows, "\n")


def diff_rows(lines: Iterable[DiffLine]) -> Markup:
    """Lines of a diff."""
    return _joined(f'<span class="{line.kind}">{_safe(line.text)}\n</span>' for line in lines)


def overview_rows(rows: Iterable[Row]) -> Markup:
    """Rows of the overview's table of all runs."""
    return _joined(map(_run, rows), "\n")


def run_name(row: Row) -> Markup:
    """A run's short name, with a link to its page where it has one; its id can be searched for."""
    digest, page = _safe(row["digest"]), _safe(row["page"])
    if page:
        return _joined([f'<a href="runs/{page}">{digest}</a>'])
    return _joined([f'<span title="{_safe(row["run_id"])}">{digest}</span>'])


def _run(row: Row) -> str:
    words = (row["stack"], row["mode"], row["task"], row["model"])
    noise = " ~" if row["within_noise"] else ""
    figures = (
        number(row["baseline_score"]),
        number(row["best_score"]),
        signed(row["improvement"]) + noise,
        row["num_submissions"],
        row["driver_calls"],
        usd(row["cost_usd"]),
    )
    return (
        f"<tr><td>{run_name(row)}</td>"
        + "".join([f"<td>{breakable(text)}</td>" for text in words])
        + f'<td class="n">{row["seed"]}</td><td>{badge(row)}</td>'
        + f"<td>{_safe(row['route'].replace('_', ' '))}</td>"
        + "".join([f'<td class="n">{figure}</td>' for figure in figures])
        + f'<td class="n" data-v="{round(row["budget_used_s"], 0)}">'
        f'{clock(row["budget_used_s"])}</td><td class="n">{row["num_findings"]}</td></tr>'
    )


def _call(call: Row) -> str:
    failure = ""
    if call["failure"]:
        why = first_line(call["detail"], 160)
        failure = f"<b>{_safe(label(call['failure']))}</b> {_safe(why)}"
    at_s, latency_s, first_s = call["budget_used_s"], call["latency_s"], call["first_byte_s"]
    return (
        f'<tr><td class="n">{call["call"]}</td>'
        f'<td class="n" data-v="{at_s}">{clock(at_s)}</td><td>{_safe(call["model"])}</td>'
        f'<td class="n">{call["status"]}</td><td>{failure}</td>'
        f'<td class="n" data-v="{latency_s}">{duration(latency_s)}</td>'
        f'<td class="n" data-v="{first_s}">{duration(first_s)}</td>'
        f'<td class="n">{count(call["input_tokens"])}</td>'
        f'<td class="n">{count(call["cached_tokens"])}</td>'
        f'<td class="n">{count(call["output_tokens"])}</td>'
        f'<td class="n">{usd(call["cost_usd"])}</td></tr>'
    )


def _moment(moment: Moment, *, has_diff: bool) -> str:
    tone = f" {moment.tone}" if moment.tone else ""
    title, text, result = moment.title, moment.text, moment.result
    if moment.revision and has_diff:
        name = _safe(moment.revision)
        link = f'<a href="#r-{name}">Diff of <code>{_safe(moment.revision[:8])}</code></a>'
        body = f"<details><summary>{_safe(title)}</summary><p>{link}</p></details>"
    elif result or (text and text != title):
        told = f'<pre tabindex="0">{_safe(text)}</pre>' if text else ""
        answer = f'<p class="answer">Answer</p><pre tabindex="0">{_safe(result)}</pre>'
        answer = answer if result else ""
        body = f"<details><summary>{_safe(title)}</summary>{told}{answer}</details>"
    else:
        body = f"<p>{_safe(title)}</p>"
    return (
        f'<li class="k-{moment.kind}{tone}"><time>{clock(moment.at_s)}</time>'
        f'<span class="kind">{KINDS[moment.kind]}</span>\n{body}\n</li>'
    )


def _safe(text: str) -> str:
    return escape(printable(text))


def _joined(rows: Iterable[str], between: str = "") -> Markup:
    return Markup(between.join(rows))  # noqa: S704  every text in it went through `_safe`


ROWS: Mapping[str, Callable[..., Markup]] = {
    "badge": badge,
    "call_rows": call_rows,
    "diff_rows": diff_rows,
    "moment_rows": moment_rows,
    "overview_rows": overview_rows,
    "run_name": run_name,
}
"""Filters of the templates."""
