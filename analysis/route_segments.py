"""Stretches of a run's route: trainings of one kind, what lies between them, and resubmissions."""

from collections.abc import Sequence
from dataclasses import replace

from analysis.route_material import RunMaterial
from analysis.route_model import RouteKind, Segment, Span
from analysis.run_tables import Row
from rl_bench.counts import plural
from rl_bench.events import Evidence

MIN_GAP_S = 60.0
MIN_GAP_SHARE = 0.01
"""Shorter gaps between trainings, in seconds and of the time used, are no diagnosis."""
MAX_EVIDENCE = 6


def segments_of(spans: Sequence[Span], material: RunMaterial) -> list[Segment]:
    """Stretches in order of their start; those without a time last."""
    trainings = _merged(spans)
    timed = [segment for segment in trainings if segment.began_s is not None]
    first = {row["submission_id"]: row for row in reversed(material.submissions)}
    submissions = [first[number] for number in sorted(first)]
    again = [
        Segment(
            kind=RouteKind.RESUBMISSION,
            began_s=row["at_s"],
            ended_s=row["at_s"],
            submissions=(row["submission_id"],),
            confidence=1.0,
            evidence=(Evidence(source="request", path=row["model_path"], quote=_again(row)),),
        )
        for row in submissions
        if row["kind"] in {"duplicate", "unchanged"}
    ]
    retaken = {number for segment in again for number in segment.submissions}
    timed = _with_submissions(timed, submissions, retaken)
    whole = sorted([*timed, *again, *_diagnoses(timed, material)], key=_start)
    return [*whole, *(segment for segment in trainings if segment.began_s is None)]


def _again(row: Row) -> str:
    if row["kind"] == "unchanged":
        return "the base model itself"
    return f"the content of submission {row['duplicate_of']}"


def _start(segment: Segment) -> tuple[float, float]:
    return segment.began_s or 0.0, segment.ended_s or 0.0


def _merged(spans: Sequence[Span]) -> list[Segment]:
    """Trainings of one kind that follow each other are one segment."""
    found: list[Segment] = []
    for span in spans:
        last = found[-1] if found else None
        if (
            last is None
            or last.kind is not span.kind
            or (last.began_s is None) != (span.began_s is None)
        ):
            found.append(
                Segment(
                    kind=span.kind,
                    began_s=span.began_s,
                    ended_s=span.ended_s if span.ended_s is not None else span.began_s,
                    methods=(span.method,),
                    num_trainings=1,
                    confidence=span.confidence,
                    evidence=span.evidence[:MAX_EVIDENCE],
                )
            )
            continue
        ends = [end for end in (last.ended_s, span.ended_s, span.began_s) if end is not None]
        found[-1] = replace(
            last,
            ended_s=max(ends, default=None),
            methods=tuple(dict.fromkeys((*last.methods, span.method))),
            num_trainings=last.num_trainings + 1,
            confidence=max(last.confidence, span.confidence),
            evidence=tuple(dict.fromkeys((*last.evidence, *span.evidence)))[:MAX_EVIDENCE],
        )
    return found


def _with_submissions(
    segments: Sequence[Segment], submissions: Sequence[Row], retaken: set[int]
) -> list[Segment]:
    """Each submission belongs to the last training that began before it."""
    of: dict[int, list[int]] = {place: [] for place in range(len(segments))}
    for row in submissions:
        before = [p for p, s in enumerate(segments) if (s.began_s or 0.0) <= row["at_s"]]
        if before and row["submission_id"] not in retaken:
            of[max(before, key=lambda p: segments[p].began_s or 0.0)].append(row["submission_id"])
    return [replace(s, submissions=tuple(of[place])) for place, s in enumerate(segments)]


def _diagnoses(segments: Sequence[Segment], material: RunMaterial) -> list[Segment]:
    """Gaps between trainings in which something was done."""
    used_s = material.budget_used_s
    least_s = max(MIN_GAP_S, MIN_GAP_SHARE * used_s)
    busy = sorted(
        [
            *(row["budget_used_s"] for row in material.trace if row["kind"] == "tool_call"),
            *(row["began_s"] for row in material.processes),
        ]
    )
    found: list[Segment] = []
    at_s = 0.0
    ends = [*((s.began_s or 0.0, s.ended_s or 0.0) for s in segments), (used_s, used_s)]
    for began_s, ended_s in sorted(ends):
        inside = [time for time in busy if at_s <= time < began_s]
        # The first look counts however short it is.
        if inside and (at_s == 0.0 or began_s - at_s >= least_s):
            found.append(
                Segment(
                    kind=RouteKind.DIAGNOSE,
                    began_s=at_s,
                    ended_s=began_s,
                    confidence=1.0,
                    evidence=(Evidence(source="trace", quote=plural(len(inside), "command")),),
                )
            )
        at_s = max(at_s, ended_s)
    return found
