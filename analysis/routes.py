"""The route of a run over time, and the route of its best submission.

    material  tables of the run, its code history and workspace as far as they are there
    spans     trainings with method, time, evidence and confidence (`analysis.route_spans`)
    segments  stretches of one kind; what lies between trainings is diagnosis
    final     the trainings that lead to the best submission, followed back by paths

A run whose folder is gone gets a route from its tables alone. Confidences: `analysis.route_model`.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from analysis.results import Results
from analysis.route_material import TABLES, Prepared, RunMaterial, prepare
from analysis.route_model import BY_TIME, FinalRoute, Route, Span
from analysis.route_paths import same
from analysis.route_segments import segments_of
from analysis.route_spans import spans_of
from analysis.run_tables import TOGETHER, Row, run_rows
from analysis.trajectories import trajectory
from analysis.workers import HERE, Workers, num_usable
from rl_bench.audit.facts import ModuleFacts
from rl_bench.audit.reader_process import read_sources
from rl_bench.events import Evidence

CODE_S = 10.0
"""The most that reading one run's code takes."""
GROUP_RUNS = 1_000
GROUP_CHARS = 10_000_000
"""Up to so many runs, with so much code and words between them, are parsed by one child process: to
start one takes as long as parsing hundreds of files."""
SEGMENTS = pl.Schema(
    {
        "run_id": pl.String(),
        "number": pl.Int64(),
        "kind": pl.String(),
        "began_s": pl.Float64(),
        "ended_s": pl.Float64(),
        "methods": pl.List(pl.String()),
        "num_trainings": pl.Int64(),
        "submissions": pl.List(pl.Int64()),
        "confidence": pl.Float64(),
        "evidence": pl.String(),
    }
)
FINALS = pl.Schema(
    {
        "run_id": pl.String(),
        "task": pl.String(),
        "submission_id": pl.Int64(),
        "route": pl.String(),
        "kinds": pl.List(pl.String()),
        "methods": pl.List(pl.String()),
        "confidence": pl.Float64(),
        "joined_by": pl.String(),
        "basis": pl.String(),
        "reason": pl.String(),
    }
)


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes of many runs, by run."""

    by_run: dict[str, Route]

    def __iter__(self) -> Iterator[Route]:
        return iter(self.by_run.values())

    def segments(self) -> pl.DataFrame:
        """One row a segment, numbered from 1 in each run.

        Columns: see `Segment`; ``evidence`` is a JSON list as in table ``findings``.
        """
        rows = [
            {
                "run_id": route.run_id,
                "number": number,
                "kind": segment.kind.value,
                "began_s": segment.began_s,
                "ended_s": segment.ended_s,
                "methods": list(segment.methods),
                "num_trainings": segment.num_trainings,
                "submissions": list(segment.submissions),
                "confidence": segment.confidence,
                "evidence": evidence_json(segment.evidence),
            }
            for route in self.by_run.values()
            for number, segment in enumerate(route.segments, start=1)
        ]
        return pl.DataFrame(rows, schema=SEGMENTS)

    def finals(self) -> pl.DataFrame:
        """One row a run and task: how the best submission came about.

        Columns: see `FinalRoute`; ``route`` is its label, ``basis`` the route's.
        """
        rows = [
            {
                "run_id": route.run_id,
                "task": final.task,
                "submission_id": final.submission_id,
                "route": final.label,
                "kinds": [kind.value for kind in final.kinds],
                "methods": list(final.methods),
                "confidence": final.confidence,
                "joined_by": final.joined_by,
                "basis": route.basis,
                "reason": final.reason,
            }
            for route in self.by_run.values()
            for final in route.finals
        ]
        return pl.DataFrame(rows, schema=FINALS)


def evidence_json(evidence: Iterable[Evidence]) -> str:
    """Evidence as a JSON list, one object each, empty fields left out."""
    return json.dumps(
        [piece.model_dump(exclude_defaults=True) for piece in evidence], ensure_ascii=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Runs whose routes one process makes.

    Attributes:
        runs: Without their tables, which that process reads.
        best: Of each run the best submission by task; None: there is none.
        code_s: See `routes_of`.
        deadline_s: On the machine's monotonic clock; after it no code is read.
    """

    runs: tuple[RunMaterial, ...]
    best: Mapping[str, Mapping[str, int | None]]
    code_s: float
    deadline_s: float


def routes_of(
    results: Results,
    run_ids: Sequence[str] | None = None,
    *,
    code_s: float = CODE_S,
    total_s: float = float("inf"),
) -> Routes:
    """The routes of runs.

    Args:
        results: The results.
        run_ids: Of these runs; None: of all.
        code_s: The most that reading one run's code takes; 0: no code is read.
        total_s: After this no more code is read: the runs left get routes from their tables.
    """
    found = each_route(results, run_ids, code_s=code_s, total_s=total_s)
    return Routes({route.run_id: route for route in found})


def each_route(
    results: Results,
    run_ids: Sequence[str] | None = None,
    *,
    code_s: float = CODE_S,
    total_s: float = float("inf"),
    by: Workers = HERE,
) -> Iterator[Route]:
    """`routes_of`, one after another in the order of their ids, by processes that begin at once."""
    deadline_s = time.monotonic() + total_s
    best = _best(results)
    runs = _runs(results, run_ids)
    num = max(min(GROUP_RUNS, -(-len(runs) // by.num)), 1)
    jobs = [
        _Job(
            runs=(part := tuple(runs[place : place + num])),
            best={run.run_id: best[run.run_id] for run in part},
            code_s=code_s,
            deadline_s=deadline_s,
        )
        for place in range(0, len(runs), num)
    ]
    made = by.map(_routes_together, jobs, name=lambda job: f"the route of {job.runs[0].run_id}")
    return chain.from_iterable(made)


def _routes_together(job: _Job) -> list[Route]:
    found = []
    with ThreadPoolExecutor(num_usable()) as pool:

        def prepared() -> Iterator[Prepared]:
            for place in range(0, len(job.runs), TOGETHER):
                batch = _with_tables(job.runs[place : place + TOGETHER])
                left_s = job.code_s if time.monotonic() < job.deadline_s else 0.0
                yield from pool.map(partial(prepare, budget_s=left_s), batch)

        for group in _groups(prepared()):
            facts = _parsed(group, budget_s=job.code_s * len(group))
            found += [route_of(run, facts, best=job.best[run.material.run_id]) for run in group]
    return found


def route_of(
    run: Prepared, facts: Mapping[str, ModuleFacts], *, best: Mapping[str, int | None]
) -> Route:
    """One run's route.

    Args:
        run: What was read of it.
        facts: Of its Python files, by their text.
        best: The best submission by task; None: there is none.
    """
    spans, basis, unrun, problems = spans_of(run, facts)
    return Route(
        run_id=run.material.run_id,
        basis=basis,
        segments=tuple(segments_of(spans, run.material)),
        finals=tuple(_final(task, number, spans, run.material) for task, number in best.items()),
        written=unrun,
        problems=problems,
    )


def _groups(runs: Iterable[Prepared]) -> Iterator[list[Prepared]]:
    group: list[Prepared] = []
    num_chars = 0
    for run in runs:
        group.append(run)
        num_chars += sum(map(len, run.texts)) + sum(len(row["text"]) for row in run.material.trace)
        if len(group) >= GROUP_RUNS or num_chars >= GROUP_CHARS:
            yield group
            group, num_chars = [], 0
    if group:
        yield group


def _parsed(runs: Iterable[Prepared], *, budget_s: float) -> dict[str, ModuleFacts]:
    """The facts of every text of several runs, parsed in one child process."""
    texts = {text: code for run in runs for text, code in run.texts.items()}
    keys = {str(number): text for number, text in enumerate(texts)}
    sources = {key: texts[text] for key, text in keys.items()}
    read = read_sources(sources, budget_s=budget_s) if sources else {}
    return {keys[key]: fact for key, fact in read.items()}


def _runs(results: Results, run_ids: Sequence[str] | None) -> list[RunMaterial]:
    """What is known of the runs, without the tables of each."""
    tried: dict[str, list[Row]] = {}
    for row in trajectory(results).iter_rows(named=True):
        tried.setdefault(row["run_id"], []).append(row)
    columns = ("run_id", "folder", "attempt", "budget_used_s", "mode_methods")
    runs = results.runs.select(columns).unique("run_id", keep="first", maintain_order=True)
    if run_ids is not None:
        runs = runs.filter(pl.col("run_id").is_in(list(run_ids)))
    return [
        RunMaterial(
            run_id=row["run_id"],
            folder=Path(row["folder"]),
            attempt=row["attempt"],
            budget_used_s=row["budget_used_s"],
            methods=tuple(row["mode_methods"]),
            trace=(),
            processes=(),
            submissions=tried.get(row["run_id"], []),
        )
        for row in runs.iter_rows(named=True)
    ]


def _with_tables(runs: Sequence[RunMaterial]) -> list[RunMaterial]:
    """The runs with their rows, read together, or one by one where a file of theirs is damaged."""
    try:
        tables = run_rows([(run.folder, run.attempt) for run in runs], TABLES)
    except (OSError, PolarsError) as error:
        if len(runs) > 1:
            return [run for each in runs for run in _with_tables([each])]
        return [replace(runs[0], problem=f"its tables cannot be read: {error}")]
    return [
        replace(run, trace=own["trace"], processes=own["processes"])
        for run, own in zip(runs, tables, strict=True)
    ]


def _best(results: Results) -> dict[str, dict[str, int | None]]:
    best: dict[str, dict[str, int | None]] = {}
    columns = ("run_id", "task", "best_submission_id")
    for run_id, task, number in results.runs.select(columns).iter_rows():
        best.setdefault(run_id, {})[task] = number
    return best


def _final(
    task: str, submission_id: int | None, spans: Sequence[Span], material: RunMaterial
) -> FinalRoute:
    if submission_id is None:
        return FinalRoute(task=task, submission_id=None, reason="there is no valid submission")
    row = next(r for r in material.submissions if r["submission_id"] == submission_id)
    known = FinalRoute(task=task, submission_id=submission_id)
    if row["kind"] == "unchanged":
        return replace(known, confidence=1.0, reason="the best is the base model itself")
    before = [s for s in spans if s.began_s is not None and s.began_s <= row["at_s"]]
    if not before:
        untimed = [s for s in spans if s.began_s is None]
        return replace(
            known,
            kinds=tuple(dict.fromkeys(s.kind for s in untimed)),
            methods=tuple(dict.fromkeys(s.method for s in untimed)),
            confidence=round(BY_TIME * min((s.confidence for s in untimed), default=0.0), 2),
            reason="when these ran is not known" if untimed else "no training was seen before it",
        )
    chain = _chain(str(row["model_path"]), before)
    by_path = bool(chain)
    chain = chain or before
    confidence = min(span.confidence for span in chain) * (1.0 if by_path else BY_TIME)
    return replace(
        known,
        kinds=tuple(dict.fromkeys(span.kind for span in chain)),
        methods=tuple(dict.fromkeys(span.method for span in chain)),
        confidence=round(confidence, 2),
        joined_by="path" if by_path else "time",
        reason=(
            f"{row['model_path']} is named where it was trained"
            if by_path
            else f"all that ran before submission {submission_id}"
        ),
    )


def _chain(path: str, before: Sequence[Span]) -> list[Span]:
    """The trainings that lead to a checkpoint, followed back by the paths that they name."""
    chain: list[Span] = []
    wanted, left = [path.removeprefix("./").strip("/")], list(before)
    while wanted and left:
        target = wanted.pop(0)
        maker = next((s for s in reversed(left) if _is_in(s.paths.writes, target)), None)
        if maker is None:
            continue
        # One program may train by several methods in turn.
        chain += [s for s in left if (s.began_s, s.paths) == (maker.began_s, maker.paths)]
        left = [s for s in left if (s.began_s or 0.0) < (maker.began_s or 0.0)]
        wanted += sorted(read for read in maker.paths.reads if not same(read, target))
    return sorted(dict.fromkeys(chain), key=lambda s: s.began_s or 0.0)


def _is_in(paths: Iterable[str], path: str) -> bool:
    return any(same(each, path) for each in paths)
