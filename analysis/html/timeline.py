"""A run's lineage: everything that happened, in order of time, from all of its tables.

A tool's call and its result are one moment; a process stands where it began. What the agent wrote
is cut, and where a run has more than a page can hold, calls and words in the middle are left out;
submissions, scores, trainings, code and findings never are.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from analysis.html.words import clock, count, cut, duration, first_line, number, size
from analysis.run_tables import Row, RunRows
from rl_bench.agent_records import MODE_RULE
from rl_bench.counts import plural

MAX_MOMENTS = 1_500
MAX_TEXT = 4_000
"""Characters of one text of the agent's."""
MAX_TOTAL_TEXT = 600_000
SHORT_TEXT = 300
"""Of each text of a page that would be larger than `MAX_TOTAL_TEXT`."""
KINDS: Mapping[str, str] = {
    "run": "Run",
    "message": "Message",
    "inspect": "Inspection",
    "tool": "Tool call",
    "training": "Training",
    "process": "Process",
    "code": "Code",
    "submission": "Submission",
    "score": "Score",
    "trouble": "Trouble",
    "verdict": "Verdict",
    "finding": "Finding",
}
"""Of moments, and what they are called; in the order of the page's filter."""
_SPARE = ("message", "tool", "inspect", "process")
_LOOKING = frozenset(
    {"read", "grep", "glob", "ls", "search", "view", "list_directory", "read_file", "webfetch"}
)
_LOOKING_WORDS = frozenset(
    {"cat", "ls", "head", "tail", "less", "find", "grep", "rg", "wc", "du", "df", "nvidia-smi"}
    | {"pwd", "tree", "stat", "ps", "top", "free", "which", "env", "printenv", "file", "diff"}
)
_NOT_SHOWN = frozenset(
    {"code_changed", "finding_made", "mode_audited", "submission_accepted", "submission_graded"}
)
_AROUND = frozenset(
    {"sh", "bash", "dash", "zsh", "tee", "tail", "timeout", "nohup", "sleep", "env"}
)
"""What runs around a training."""
_TRAINERS = ("python", "torchrun", "accelerate", "deepspeed")
TRAINING_S = 30.0
"""Without a route, a Python process that ran for so long is shown as training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened.

    Attributes:
        at_s: Seconds since the attempt began.
        kind: Of `KINDS`.
        title: A line.
        text: More of it, as the agent or the runner wrote it.
        result: What a tool answered.
        revision: Whose diff belongs here.
        tone: ``good``, ``bad`` or empty.
    """

    at_s: float
    seq: int
    kind: str
    title: str
    text: str = ""
    result: str = ""
    revision: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Moments in order, and how many were left out."""

    moments: tuple[Moment, ...]
    num_left_out: int = 0

    @property
    def kinds(self) -> list[tuple[str, str, int]]:
        """Kind, its name and number, of those there are."""
        found = Counter(moment.kind for moment in self.moments)
        return [(kind, name, found[kind]) for kind, name in KINDS.items() if kind in found]


def timeline(
    tables: RunRows,
    *,
    started: datetime | None,
    trainings: Sequence[tuple[float, float]] = (),
) -> Timeline:
    """The lineage of one run's attempt.

    Args:
        tables: Its rows of all tables but ``items``, by table.
        started: When the attempt began.
        trainings: When trainings began and ended on the run's clock, where a route tells.
    """
    events = tables["events"]
    begin = started or _first(tables)
    offset = _agent_offset(events)
    found = [
        *_of_events(events, begin),
        *_of_trace(tables["trace"], begin),
        *_of_processes(tables["processes"], offset, trainings),
        *_of_revisions(tables["revisions"], begin),
        *_of_submissions(tables["submissions"], events, begin),
        *_of_findings(tables["findings"], begin),
    ]
    found.sort(key=lambda moment: (moment.at_s, moment.seq))
    kept = _thinned(found)
    return Timeline(tuple(_shortened(kept)), len(found) - len(kept))


def _thinned(moments: list[Moment]) -> list[Moment]:
    spare = [place for place, moment in enumerate(moments) if moment.kind in _SPARE]
    room = max(MAX_MOMENTS - (len(moments) - len(spare)), 200)
    if len(spare) <= room:
        return moments
    dropped = set(spare[room // 2 : len(spare) - room // 2])
    return [moment for place, moment in enumerate(moments) if place not in dropped]


def _shortened(moments: Sequence[Moment]) -> Iterator[Moment]:
    total = sum(min(len(m.text), MAX_TEXT) + min(len(m.result), MAX_TEXT) for m in moments)
    limit = MAX_TEXT if total <= MAX_TOTAL_TEXT else SHORT_TEXT
    for moment in moments:
        if len(moment.text) > limit or len(moment.result) > limit:
            moment = replace(moment, text=cut(moment.text, limit), result=cut(moment.result, limit))
        yield moment


def _first(tables: RunRows) -> datetime | None:
    times = [row.get("time") for rows in tables.values() for row in rows]
    return min((time for time in times if isinstance(time, datetime)), default=None)


def _since(time: object, begin: datetime | None) -> float:
    if not isinstance(time, datetime) or begin is None:
        return 0.0
    return max((time - begin).total_seconds(), 0.0)


def _agent_offset(events: Sequence[Row]) -> float:
    """Seconds from the attempt's start to the agent's, when its clock starts."""
    began, agent = (_earliest(events, kind) for kind in ("run_started", "agent_started"))
    return 0.0 if began is None or agent is None else max(agent - began, 0.0)


def _earliest(events: Sequence[Row], kind: str) -> float | None:
    times = (row["elapsed_s"] for row in events if row["type"] == kind)
    return min((time for time in times if isinstance(time, float)), default=None)


def _of_events(events: Sequence[Row], begin: datetime | None) -> Iterator[Moment]:
    for row in events:
        if row["type"] in _NOT_SHOWN:
            continue
        kind, title, text, tone = _event_words(row["type"], _payload(row["payload"]))
        yield Moment(
            at_s=_since(row["time"], begin),
            seq=row["seq"],
            kind=kind,
            title=title,
            text=text,
            tone=tone,
        )


def _payload(text: str) -> Row:
    loaded = json.loads(text)
    return loaded if isinstance(loaded, dict) else {}


def _event_words(kind: str, told: Row) -> tuple[str, str, str, str]:
    """Kind, title, text, tone."""
    match kind:
        case "run_started":
            return "run", f"attempt {_int(told, 'attempt') + 1} starts", "", ""
        case "state_changed":
            return "run", f"state: {told.get('state')}", "", ""
        case "baseline_graded":
            return _baseline_words(told)
        case "agent_started":
            return "run", f"agent starts, session {told.get('session')}", _argv(told), ""
        case "agent_exited":
            tone = "" if told.get("exit_code") == 0 else "bad"
            how = f"ended: {told.get('reason')}" if told.get("reason") else "exits"
            title = f"agent {how}, code {told.get('exit_code')}"
            return "run", title, str(told.get("stderr_tail") or ""), tone
        case "submission_rejected":
            title = f"request refused ({told.get('status')}): {told.get('reason')}"
            return "trouble", title, f"{told.get('model_path')}\n{told.get('message')}", "bad"
        case "note":
            is_info = told.get("level") == "info"
            words = f"{told.get('topic')}: {first_line(str(told.get('message')))}"
            return "run" if is_info else "trouble", words, str(told.get("message")), ""
        case "run_finished":
            title = f"run ends: {told.get('end')}"
            bad = told.get("end") not in ("completed", "timed_out")
            return "run", title, str(told.get("detail") or ""), "bad" if bad else "good"
    rest = {name: value for name, value in told.items() if name != "type"}
    return "run", kind.replace("_", " "), json.dumps(rest, ensure_ascii=False, indent=1), ""


def _baseline_words(told: Row) -> tuple[str, str, str, str]:
    evaluations = told.get("evaluations")
    words = []
    for each in evaluations if isinstance(evaluations, list) else []:
        score = number(each.get("score"))
        words.append(f"{each.get('task')} {score}{_because(each.get('failure'))}")
    return "score", f"base model graded: {', '.join(words)}", "", ""


def _because(failure: object) -> str:
    return f" ({failure})" if failure else ""


def _argv(told: Row) -> str:
    argv = told.get("argv")
    return " ".join(map(str, argv)) if isinstance(argv, list) else ""


def _int(told: Row, name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) else 0


def _of_trace(trace: Sequence[Row], begin: datetime | None) -> Iterator[Moment]:
    results = {
        (row["session"], row["call_id"]): row
        for row in trace
        if row["kind"] == "tool_result" and row["call_id"]
    }
    joined = set()
    for row in trace:
        key = (row["session"], row["call_id"])
        result = None
        if row["kind"] == "usage" or (row["kind"] == "tool_result" and key in joined):
            continue
        if row["kind"] == "tool_call" and key in results:
            result = results[key]
            joined.add(key)
        yield _trace_moment(row, result, begin)


def _trace_moment(row: Row, result: Row | None, begin: datetime | None) -> Moment:
    kind, text, name = str(row["kind"]), str(row["text"]), str(row["name"])
    failed = bool(row["is_error"] or kind == "error" or (result and result["is_error"]))
    titles = {
        "tool_call": f"{name}: {first_line(text)}" if name else first_line(text),
        "tool_result": f"answer: {first_line(text)}",
        "error": f"{name or 'error'}: {first_line(text)}",
        "result": f"the agent's last words: {first_line(text)}",
    }
    return Moment(
        at_s=_since(row["time"], begin),
        seq=int(str(row["seq"])),
        kind=_trace_kind(kind, name, text),
        title=titles.get(kind, first_line(text)),
        text=text,
        result="" if result is None else str(result["text"]),
        tone="bad" if failed else "",
    )


def _trace_kind(kind: str, name: str, text: str) -> str:
    if kind in ("tool_call", "tool_result"):
        words = text.split()
        looks = name.lower() in _LOOKING or (bool(words) and words[0] in _LOOKING_WORDS)
        return "inspect" if looks else "tool"
    return "trouble" if kind == "error" else "message"


def _of_processes(
    processes: Sequence[Row], offset: float, trainings: Sequence[tuple[float, float]]
) -> Iterator[Moment]:
    for row in processes:
        command = " ".join(row["argv"])
        is_training = _is_training(row, trainings)
        used = f"{duration(row['duration_s'])}, CPU {duration(row['cpu_s'])}"
        memory = f", {size(row['max_rss_bytes'])}" if row["max_rss_bytes"] else ""
        yield Moment(
            at_s=row["began_s"] + offset,
            seq=row["seq"],
            kind="training" if is_training else "process",
            title=f"{first_line(command, 90)} ({used}{memory})",
            text=f"pid {row['pid']}, child of {row['parent_pid']}\n{command}",
        )


def _is_training(row: Row, trainings: Sequence[tuple[float, float]]) -> bool:
    began, lasted = float(str(row["began_s"])), float(str(row["duration_s"]))
    argv = row["argv"]
    program = str(argv[0]).rsplit("/", 1)[-1] if isinstance(argv, list) and argv else ""
    if trainings:
        within = any(
            abs(began - start) <= 1.0 or (start <= began and began + lasted <= end + 1.0)
            for start, end in trainings
        )
        return within and lasted > 1.0 and program not in _AROUND
    return lasted >= TRAINING_S and program.startswith(_TRAINERS)


_CAUSES = {
    "change": "while the agent worked",
    "submission": "at a submission",
    "end": "at the end",
}


def _of_revisions(revisions: Sequence[Row], begin: datetime | None) -> Iterator[Moment]:
    for row in revisions:
        paths = row["changed"]
        named = ", ".join(paths[:3]) + (", …" if row["num_changed"] > 3 else "")
        words = f"{plural(row['num_changed'], 'file')} changed, {count(row['num_files'])} in all"
        yield Moment(
            at_s=_since(row["time"], begin),
            seq=row["seq"],
            kind="code",
            title=f"{words} ({_CAUSES[row['cause']]})" + (f": {named}" if named else ""),
            revision=row["revision"],
        )


def _of_submissions(
    submissions: Sequence[Row], events: Sequence[Row], begin: datetime | None
) -> Iterator[Moment]:
    seqs = _submission_seqs(events)
    for row in submissions:
        who = f"submission {row['submission_id']}"
        of = f"{who}, {row['task']}"
        again = f", same content as {row['duplicate_of']}" if row["duplicate_of"] else ""
        base = ", the base model itself" if row["unchanged"] else ""
        yield Moment(
            at_s=_since(row["accepted_at"], begin),
            seq=seqs.get(("submission_accepted", row["submission_id"]), 0),
            kind="submission",
            title=f"{of}: {first_line(row['model_path'], 80)}{again}{base}",
            text=f"accepted at {clock(row['budget_used_s'])} of the budget\n"
            f"content {row['content_hash']}",
        )
        if row["status"] != "pending":
            yield _verdict(row, of, seqs, begin)


def _verdict(
    row: Row, of: str, seqs: Mapping[tuple[str, int], int], begin: datetime | None
) -> Moment:
    score, gain, best = (_real(row[name]) for name in ("score", "improvement", "best_so_far"))
    seq = seqs.get(("submission_graded", int(str(row["submission_id"]))), 0)
    at_s = _since(row["graded_at"], begin)
    if score is None:
        why = str(row["failure"])
        title = f"{of}: no score, {first_line(why)}"
        return Moment(at_s=at_s, seq=seq, kind="trouble", title=title, text=why, tone="bad")
    is_best = best is not None and score >= best and not row["is_invalid"]
    noise = ", within the noise" if row["within_noise"] else ""
    told = f"{of}: {number(score)} (gain {number(gain)}{noise}; best so far {number(best)})"
    return Moment(
        at_s=at_s,
        seq=seq,
        kind="score",
        title=told + (", invalid" if row["is_invalid"] else ""),
        text=str(row["invalid_reason"]),
        tone="bad" if row["is_invalid"] else "good" if is_best else "",
    )


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _submission_seqs(events: Sequence[Row]) -> dict[tuple[str, int], int]:
    return {
        (row["type"], _int(_payload(row["payload"]), "submission_id")): row["seq"]
        for row in events
        if row["type"] in ("submission_accepted", "submission_graded")
    }


def _of_findings(findings: Sequence[Row], begin: datetime | None) -> Iterator[Moment]:
    for row in findings:
        is_verdict = row["rule"] == MODE_RULE
        what = f"mode, {row['verdict']}" if is_verdict else f"{row['severity']}, {row['rule']}"
        yield Moment(
            at_s=_since(row["time"], begin),
            seq=row["seq"],
            kind="verdict" if is_verdict else "finding",
            title=f"{what}: {first_line(row['summary'])}",
            text=row["summary"],
            tone="bad" if row["severity"] == "breach" else "",
        )
