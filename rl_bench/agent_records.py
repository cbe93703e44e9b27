"""Tables of what an agent and its driver did, one row an event; see `rl_bench.records`.

`DRIVER_CALLS`, `TRACE`, `REVISIONS`, `PROCESSES` and `FINDINGS`. ``seq`` is the ledger entry's, so
that rows of all tables of a run can be put in one order. ``budget_used_s`` is on the run's clock.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rl_bench.agent_view import credible
from rl_bench.config import Frozen
from rl_bench.events import (
    AgentEvent,
    CodeChanged,
    DriverCall,
    Entry,
    Evidence,
    FindingMade,
    ModeAudited,
    ModeVerdict,
    ProcessSeen,
)
from rl_bench.record_schema import Place, schema_of

MODE_RULE = "mode"
"""The ``rule`` of the row that holds the judgement on a run's mode."""
_SEVERITY = {
    ModeVerdict.CLEAN: "info",
    ModeVerdict.UNKNOWN: "info",
    ModeVerdict.SUSPECT: "warning",
    ModeVerdict.BREACH: "breach",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCallRow:
    """Table ``driver_calls``: one row a call of the driver, as the gateway saw it.

    Attributes:
        time: UTC, when the call was over; ``budget_used_s`` when it arrived.
        call: Its number in the attempt, in order of arrival.
        status: The HTTP status that the CLI got; 0: none.
        failure: Null for a whole answer; else see `rl_bench.events.DriverFailure`.
        input_tokens: Includes ``cached_tokens`` and ``cache_write_tokens``; null: not told.
        cost_usd: By the driver's prices; null when the tokens are not known.
    """

    run_id: str
    sweep: str
    attempt: int
    session: int
    seq: int
    time: datetime
    budget_used_s: float
    call: int
    api: str
    route: str
    model: str
    status: int
    failure: str | None
    detail: str
    latency_s: float
    first_byte_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    cost_usd: float | None
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """Table ``trace``: one row a thing that the agent's own output told, in order.

    Attributes:
        kind: ``message``, ``tool_call``, ``tool_result``, ``usage``, ``error`` or ``result``.
        call_id: Joins a tool's call and its result.
        totals: The counts are totals of the session so far.
        cost_usd: As the CLI itself reckons it.
    """

    run_id: str
    sweep: str
    attempt: int
    session: int
    seq: int
    time: datetime
    budget_used_s: float
    kind: str
    name: str
    text: str
    call_id: str
    is_error: bool
    totals: bool
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    cost_usd: float | None
    num_turns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRow:
    """Table ``revisions``: one row a revision of the agent's code.

    Attributes:
        revision: The commit's id in the run's ``code.git``; ``submissions.code_revision`` joins it.
        cause: ``change``, ``submission`` or ``end``.
        changed: Paths that differ from the revision before, of ``num_changed``; may be cut.
    """

    run_id: str
    sweep: str
    attempt: int
    session: int
    seq: int
    time: datetime
    budget_used_s: float
    revision: str
    cause: str
    changed: tuple[str, ...]
    num_changed: int
    num_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """Table ``processes``: one row a process of the agent's that lived long enough to be seen.

    Attributes:
        time: UTC, when it was told to be gone.
        began_s: On the run's clock when it was first seen; ``duration_s`` until last seen.
        cpu_s: CPU time that it had used by then.
    """

    run_id: str
    sweep: str
    attempt: int
    session: int
    seq: int
    time: datetime
    pid: int
    parent_pid: int
    argv: tuple[str, ...]
    began_s: float
    duration_s: float
    cpu_s: float
    max_rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """Table ``findings``: one row a finding, and one with rule ``mode`` for the mode's judgement.

    Attributes:
        severity: ``info``, ``warning`` or ``breach``. The mode's: ``clean`` and ``unknown`` are
            ``info``, ``suspect`` is ``warning``.
        submission_id: The one that it is about; null: the whole run.
        verdict, methods: Of the mode's judgement; null and empty for a finding.
        evidence: A JSON list of objects with ``source``, ``path``, ``revision``, ``line``,
            ``quote``.
    """

    run_id: str
    sweep: str
    attempt: int
    seq: int
    time: datetime
    rule: str
    severity: str
    rules_version: str
    summary: str
    submission_id: int | None
    verdict: str | None
    methods: tuple[str, ...]
    evidence: str


AgentRow: TypeAlias = DriverCallRow | TraceRow | RevisionRow | ProcessRow | FindingRow

DRIVER_CALLS = schema_of("driver_calls", DriverCallRow)
TRACE = schema_of("trace", TraceRow)
REVISIONS = schema_of("revisions", RevisionRow)
PROCESSES = schema_of("processes", ProcessRow)
FINDINGS = schema_of("findings", FindingRow)
AGENT_SCHEMAS = {
    "driver_calls": DRIVER_CALLS,
    "trace": TRACE,
    "revisions": REVISIONS,
    "processes": PROCESSES,
    "findings": FINDINGS,
}


def driver_call_row(place: Place, entry: Entry) -> DriverCallRow:
    """The row of a `DriverCall`."""
    call = entry.event
    assert isinstance(call, DriverCall)
    return DriverCallRow(
        run_id=place.run_id,
        sweep=place.sweep,
        attempt=place.attempt,
        session=place.session,
        seq=entry.seq,
        time=datetime.fromisoformat(entry.time_utc),
        budget_used_s=call.budget_used_s,
        call=call.call,
        api=call.api.value,
        route=call.route,
        model=call.model,
        status=call.status,
        failure=None if call.failure is None else call.failure.value,
        detail=call.detail,
        latency_s=call.latency_s,
        first_byte_s=call.first_byte_s,
        input_tokens=credible(call.input_tokens),
        output_tokens=credible(call.output_tokens),
        cached_tokens=credible(call.cached_tokens),
        cache_write_tokens=credible(call.cache_write_tokens),
        cost_usd=credible(call.cost_usd),
        num_bytes=call.num_bytes,
    )


def trace_row(place: Place, entry: Entry) -> TraceRow:
    """The row of an `AgentEvent`."""
    told = entry.event
    assert isinstance(told, AgentEvent)
    return TraceRow(
        run_id=place.run_id,
        sweep=place.sweep,
        attempt=place.attempt,
        session=place.session,
        seq=entry.seq,
        time=datetime.fromisoformat(entry.time_utc),
        budget_used_s=told.budget_used_s,
        kind=told.kind,
        name=told.name,
        text=told.text,
        call_id=told.call_id,
        is_error=told.is_error,
        totals=told.totals,
        input_tokens=credible(told.input_tokens),
        output_tokens=credible(told.output_tokens),
        cached_tokens=credible(told.cached_tokens),
        cache_write_tokens=credible(told.cache_write_tokens),
        cost_usd=credible(told.cost_usd),
        num_turns=credible(told.num_turns),
    )


def revision_row(place: Place, entry: Entry) -> RevisionRow:
    """The row of a `CodeChanged`."""
    code = entry.event
    assert isinstance(code, CodeChanged)
    return RevisionRow(
        run_id=place.run_id,
        sweep=place.sweep,
        attempt=place.attempt,
        session=place.session,
        seq=entry.seq,
        time=datetime.fromisoformat(entry.time_utc),
        budget_used_s=code.budget_used_s,
        revision=code.revision,
        cause=code.cause,
        changed=code.changed,
        num_changed=code.num_changed,
        num_files=code.num_files,
    )


def process_row(place: Place, entry: Entry) -> ProcessRow:
    """The row of a `ProcessSeen`."""
    seen = entry.event
    assert isinstance(seen, ProcessSeen)
    return ProcessRow(
        run_id=place.run_id,
        sweep=place.sweep,
        attempt=place.attempt,
        session=place.session,
        seq=entry.seq,
        time=datetime.fromisoformat(entry.time_utc),
        pid=seen.pid,
        parent_pid=seen.parent_pid,
        argv=seen.argv,
        began_s=seen.began_s,
        duration_s=seen.duration_s,
        cpu_s=seen.cpu_s,
        max_rss_bytes=seen.max_rss_bytes,
    )


def finding_row(place: Place, entry: Entry) -> FindingRow:
    """The row of a `FindingMade` or of a `ModeAudited`."""
    found = entry.event
    assert isinstance(found, FindingMade | ModeAudited)
    mode = found if isinstance(found, ModeAudited) else None
    return FindingRow(
        run_id=place.run_id,
        sweep=place.sweep,
        attempt=place.attempt,
        seq=entry.seq,
        time=datetime.fromisoformat(entry.time_utc),
        rule=found.rule if isinstance(found, FindingMade) else MODE_RULE,
        severity=found.severity if isinstance(found, FindingMade) else _SEVERITY[found.verdict],
        rules_version=found.rules_version,
        summary=found.summary,
        submission_id=found.submission_id if isinstance(found, FindingMade) else None,
        verdict=mode.verdict.value if mode else None,
        methods=mode.methods if mode else (),
        evidence=evidence_json(found.evidence),
    )


def evidence_json(evidence: tuple[Evidence, ...]) -> str:
    """Evidence as a JSON list, one object each."""
    return json.dumps([piece.model_dump() for piece in evidence], ensure_ascii=False)


AGENT_ROWS: dict[type[Frozen], tuple[str, Callable[[Place, Entry], AgentRow]]] = {
    DriverCall: ("driver_calls", driver_call_row),
    AgentEvent: ("trace", trace_row),
    CodeChanged: ("revisions", revision_row),
    ProcessSeen: ("processes", process_row),
    FindingMade: ("findings", finding_row),
    ModeAudited: ("findings", finding_row),
}
"""Table and row of each kind of event that has a table of its own."""
