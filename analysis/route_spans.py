"""The trainings of a run: what its code says, joined with what was seen to run.

Reading code is the audit's (`rl_bench.audit`): scripts are parsed in a child process with limits.
Where no code is at hand, the programs that ran, the audit's list of methods and files' names stand
in, with lower confidence; see `analysis.route_model`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from analysis.route_material import Prepared
from analysis.route_model import (
    JOINED,
    NAMED,
    OPEN,
    SURE,
    TOLD,
    RouteKind,
    Span,
    kind_of,
    kind_of_file,
    kind_of_name,
)
from analysis.route_paths import Paths, paths_of
from analysis.run_tables import Row
from rl_bench.audit.executions import SAME_START_S, Execution, Seen
from rl_bench.audit.facts import ModuleFacts
from rl_bench.audit.methods import (
    SETTLE_S,
    Certainty,
    Finder,
    MethodSeen,
    evidence_of,
    find_methods,
)
from rl_bench.audit.sources import (
    at_time,
)
from rl_bench.events import Evidence

LONG_S = 30.0
"""A program of unknown content that ran for less is no training."""
_CONFIDENCE = {Certainty.RAN: SURE, Certainty.MAYBE: OPEN, Certainty.WRITTEN: NAMED}


class Spans(NamedTuple):
    """Trainings in order of their start, those without a time last; see `Route`."""

    spans: tuple[Span, ...]
    basis: str
    written: tuple[str, ...]
    problems: tuple[str, ...]


def spans_of(run: Prepared, facts: Mapping[str, ModuleFacts]) -> Spans:
    """All trainings of a run.

    Args:
        run: What was read of it.
        facts: Of its Python files, by their text.
    """
    material, seen = run.material, run.seen
    own = {text: facts[text] for text in run.texts if text in facts}
    finder = replace(
        run.finder,
        versions=[*run.versions, *run.finder.versions],
        facts={**own, **run.finder.facts},
    )
    methods = find_methods(finder, seen, run.logs)
    known = _known(methods.seen, seen, finder, material.trace)
    spans = [*known, *_unknown(known, seen, material.methods)]
    if not any(span.confidence > NAMED for span in spans):
        spans += _written(methods.seen, finder)
    spans += _untimed(spans, methods.seen, material.methods)
    basis = _basis(spans, has_code=run.has_code, has_trace=run.has_trace, seen=seen)
    problems = tuple(filter(None, (*methods.problems, run.problem)))
    spans.sort(key=lambda span: (span.began_s is None, span.began_s or 0.0))
    kinds = {span.kind for span in spans}
    idle = [m.method for m in methods.seen if m.certainty is Certainty.WRITTEN]
    unrun = tuple(dict.fromkeys(m.name for m in idle if kind_of(m) not in kinds))
    return Spans(tuple(spans), basis, unrun, problems)


def _known(
    methods: Sequence[MethodSeen], seen: Seen, finder: Finder, trace: Sequence[Row]
) -> list[Span]:
    """Trainings whose method stands in code or in a library's own command."""
    answered = _answered(seen, trace)
    by_evidence = {evidence_of(execution): execution for execution in reversed(seen.executions)}
    found: list[Span] = []
    for each in sorted(methods, key=_place):
        if each.first_s is None or each.certainty is Certainty.WRITTEN:
            continue
        began = next((by_evidence[e] for e in each.evidence if e in by_evidence), None)
        span = Span(
            began_s=each.first_s,
            ended_s=each.last_s if began is None else answered.get(_key(began), each.last_s),
            kind=kind_of(each.method),
            method=each.method.name,
            confidence=_CONFIDENCE[each.certainty],
            evidence=each.evidence,
            paths=_paths(each, began, finder),
        )
        _add(found, span)
    return found


def _place(each: MethodSeen) -> tuple[float, int]:
    lines = [piece.line for piece in each.evidence if piece.line is not None]
    return (each.first_s if each.first_s is not None else float("inf"), min(lines, default=0))


def _add(found: list[Span], span: Span) -> None:
    """Takes a training; a command and the process that it started are one."""
    for place in range(len(found) - 1, -1, -1):
        other = found[place]
        if other.method != span.method or other.began_s is None or span.began_s is None:
            continue
        before_end = other.ended_s is not None and span.began_s <= other.ended_s
        same_start = abs(span.began_s - other.began_s) <= SAME_START_S
        if other.paths == span.paths and (before_end or same_start):
            ends = [end for end in (other.ended_s, span.ended_s) if end is not None]
            found[place] = replace(
                other,
                ended_s=max(ends, default=None),
                confidence=max(other.confidence, span.confidence),
                evidence=tuple(dict.fromkeys((*other.evidence, *span.evidence))),
            )
            return
    found.append(span)


def _key(execution: Execution) -> tuple[str, float, str]:
    return execution.source, execution.began_s, execution.quote


def _answered(seen: Seen, trace: Sequence[Row]) -> Mapping[tuple[str, float, str], float]:
    """When commands ended whose end nobody saw: their results were there."""
    results = {r["call_id"]: r["budget_used_s"] for r in trace if r["kind"] == "tool_result"}
    calls = {
        (row["budget_used_s"], row["text"]): results[row["call_id"]]
        for row in trace
        if row["kind"] == "tool_call" and row["call_id"] in results
    }
    ends: dict[tuple[str, float, str], float] = {}
    for execution in seen.executions:
        end_s = calls.get((execution.began_s, execution.quote))
        if end_s is not None and execution.duration_s is None:
            ends[_key(execution)] = max(end_s, execution.began_s)
    return ends


def _paths(each: MethodSeen, execution: Execution | None, finder: Finder) -> Paths:
    """Checkpoints in the words of a program and in the files that it trains with."""
    words = execution.program.words if execution is not None else ()
    at_s = (each.first_s or 0.0) + SETTLE_S
    pieces = [piece for piece in each.evidence if piece.source == "code"]
    found = [_facts_of(piece, finder, at_s) for piece in pieces]
    return paths_of(words, [facts for facts in found if facts is not None])


def _facts_of(piece: Evidence, finder: Finder, at_s: float) -> ModuleFacts | None:
    same = [v for v in finder.versions if (v.path, v.revision) == (piece.path, piece.revision)]
    version = at_time(same, at_s).get(piece.path)
    return finder.facts.get(version.text) if version is not None else None


def _unknown(known: Sequence[Span], seen: Seen, methods: Sequence[str]) -> Iterator[Span]:
    """Long programs that no code explains, read by the audit's list or by their names."""
    starts = [span.began_s for span in known if span.began_s is not None]
    long = [
        e
        for e in seen.executions
        if e.source == "process"
        and (e.duration_s or 0.0) >= LONG_S
        and e.program.kind in {"file", "module", "inline"}
        and not any(abs(e.began_s - start) <= 5.0 for start in starts)
    ]
    targets = list(dict.fromkeys(e.program.target for e in long))
    left = [name for name in methods if name not in {span.method for span in known}]
    in_order = dict(zip(targets, left, strict=True)) if len(targets) == len(left) else {}
    for execution in long:
        target = execution.program.target
        by_name = kind_of_file(target) if execution.program.kind == "file" else None
        if target in in_order:
            kind, method, confidence = kind_of_name(in_order[target]), in_order[target], JOINED
        elif by_name is not None:
            kind, method, confidence = by_name, by_name.value, NAMED
        else:
            continue  # it may be anything
        yield Span(
            began_s=execution.began_s,
            ended_s=execution.ended_s,
            kind=kind,
            method=method,
            confidence=confidence,
            evidence=(evidence_of(execution),),
            paths=paths_of(execution.program.words, ()),
        )


def _written(methods: Sequence[MethodSeen], finder: Finder) -> Iterator[Span]:
    """What stands in the code, when nothing was seen to run."""
    times = {(v.path, v.revision): v.since_s for v in finder.versions}
    for each in methods:
        if each.certainty is Certainty.WRITTEN and each.evidence:
            piece = each.evidence[0]
            since_s = times.get((piece.path, piece.revision))
            yield Span(
                began_s=since_s,
                ended_s=since_s,
                kind=kind_of(each.method),
                method=each.method.name,
                confidence=NAMED,
                evidence=each.evidence,
                paths=_paths(each, None, finder),
            )


def _untimed(
    spans: Sequence[Span], methods: Sequence[MethodSeen], told: Sequence[str]
) -> Iterator[Span]:
    """Methods that only logs or the audit's list tell of."""
    have = {span.kind for span in spans}
    for each in methods:
        if each.first_s is None and each.certainty is Certainty.RAN:
            kind = kind_of(each.method)
            if kind not in have:
                have.add(kind)
                yield _without_time(kind, each.method.name, SURE, each)
    for name in told:
        if kind_of_name(name) not in have:
            have.add(kind_of_name(name))
            yield _without_time(kind_of_name(name), name, TOLD)


def _without_time(
    kind: RouteKind, method: str, confidence: float, each: MethodSeen | None = None
) -> Span:
    return Span(
        began_s=None,
        ended_s=None,
        kind=kind,
        method=method,
        confidence=confidence,
        evidence=() if each is None else each.evidence,
    )


def _basis(spans: Sequence[Span], *, has_code: bool, has_trace: bool, seen: Seen) -> str:
    if not spans:
        return "none"
    sources = {piece.source for span in spans for piece in span.evidence}
    if "code" in sources:
        return "code" if has_code else "trace"
    if "process" in sources or "trace" in sources:
        return "processes" if seen.num_processes else "trace"
    return "logs" if "log" in sources else "audit"
