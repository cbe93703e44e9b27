"""Case studies: each run as structured facts, ``summary.json``, and as text, ``summary.md``.

    python -m analysis.case_study RESULTS OUT [--run RUN_ID]

`case_studies` computes the frames of all runs once and then gives one study a run.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from analysis.account_options import account_config, add_account_options
from analysis.case_model import (
    Asked,
    CaseStudy,
    Cost,
    Failure,
    FinalStep,
    Found,
    HourCost,
    Outcome,
    Stage,
    TaskResult,
    Try,
    Unused,
)
from analysis.case_text import markdown
from analysis.case_turns import turning_points
from analysis.errors import ResultsError
from analysis.narrative import Narrative, narrate
from analysis.results import Results, load
from analysis.route_model import FinalRoute, Route, Segment
from analysis.routes import routes_of
from analysis.some_runs import some_runs
from analysis.trajectories import failures, run_figures, spending, trajectory
from rl_bench.agent_records import MODE_RULE
from rl_bench.command_line import ended, prepare_process, read_flags, say
from rl_bench.config import JudgeConfig, RunSpec
from rl_bench.counts import plural
from rl_bench.events import Evidence

MAX_EVIDENCE = 4
_Row = Mapping[str, Any]
"""A row of a frame: its columns are documented where the frame is made."""


@dataclass(frozen=True, slots=True)
class _Frames:
    """Frames of all runs, by run."""

    runs: Mapping[str, list[_Row]]
    figures: Mapping[tuple[str, str], _Row]
    tries: Mapping[str, list[_Row]]
    failures: Mapping[str, list[_Row]]
    hours: Mapping[str, list[_Row]]
    findings: Mapping[str, list[_Row]]
    revisions: Mapping[str, list[_Row]]


def case_studies(results: Results, routes: Iterable[Route] | None = None) -> Iterator[CaseStudy]:
    """One study a route, in their order.

    Args:
        results: The results.
        routes: Made elsewhere; None: made here, of all runs.
    """
    frames = _frames(results)
    for route in routes_of(results) if routes is None else routes:
        yield _study(route, frames)


def _frames(results: Results) -> _Frames:
    figures = run_figures(results)
    revisions = results.collected(
        "revisions", lambda rows: rows.select("run_id", "budget_used_s", "revision")
    )
    return _Frames(
        runs=_by_run(results.runs),
        figures={(row["run_id"], row["task"]): row for row in figures.iter_rows(named=True)},
        tries=_by_run(trajectory(results).sort("run_id", "submission_id", "task")),
        failures=_by_run(failures(results).sort("run_id", "at_s", "task")),
        hours=_by_run(spending(results)),
        findings=_by_run(results.findings),
        revisions=_by_run(revisions),
    )


def _by_run(frame: pl.DataFrame) -> dict[str, list[_Row]]:
    found: dict[str, list[_Row]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault(row["run_id"], []).append(row)
    return found


def _study(route: Route, frames: _Frames) -> CaseStudy:
    run_id = route.run_id
    rows = frames.runs[run_id]
    run = rows[0]
    spec = _spec(run)
    tries = frames.tries.get(run_id, [])
    figures = [frames.figures[run_id, row["task"]] for row in rows]
    finals = {final.task: final for final in route.finals}
    return CaseStudy(
        run_id=run_id,
        sweep=run["sweep"],
        asked=_asked(run, spec),
        outcome=_outcome(run),
        results=tuple(
            _result(row, figure, finals.get(row["task"]))
            for row, figure in zip(rows, figures, strict=True)
        ),
        route_basis=route.basis,
        stages=tuple(_stage(segment) for segment in route.segments),
        tries=tuple(_try(row) for row in tries),
        turning_points=tuple(turning_points(tries, rows, route.segments)),
        failures=tuple(_failure(row) for row in frames.failures.get(run_id, [])),
        cost=_cost(rows, figures[0], frames.hours.get(run_id, [])),
        findings=tuple(
            _found(row) for row in frames.findings.get(run_id, []) if row["rule"] != MODE_RULE
        ),
        unused=_unused(run, spec, figures, tries, frames.revisions.get(run_id, []), route),
        unknown=route.problems,
    )


def _spec(run: _Row) -> RunSpec | None:
    """The run's spec; None where an older version wrote it that this one cannot read."""
    try:
        return RunSpec.model_validate_json(run["spec"])
    except ValidationError:
        return None


def _asked(run: _Row, spec: RunSpec | None) -> Asked:
    return Asked(
        agent=run["agent"],
        agent_version=run["agent_version"],
        driver=run["driver"],
        driver_model=run["driver_model"],
        mode=run["mode"],
        rules="" if spec is None else spec.mode.rules,
        model=run["model"],
        seed=run["seed"],
        tasks=tuple(run["tasks"]),
        budget_s=run["budget_s"],
        max_submissions=None if spec is None else spec.budget.max_submissions,
        max_driver_usd=None if spec is None else spec.budget.max_driver_usd,
    )


def _outcome(run: _Row) -> Outcome:
    return Outcome(
        state=run["state"],
        end=run["end"],
        detail=run["end_detail"],
        counts=run["counts"],
        why_not=_why_not(run),
        num_attempts=run["num_attempts"],
        sandbox=run["sandbox"],
        mode_verdict=run["mode_verdict"],
    )


def _why_not(run: _Row) -> str:
    if run["counts"]:
        return ""
    if run["is_invalid"]:
        return "a rule was broken"
    if run["is_infrastructure"]:
        return "infrastructure ended it"
    return "it is not over"


def _result(row: _Row, figure: _Row, final: FinalRoute | None) -> TaskResult:
    step = None
    if final is not None and final.submission_id is not None:
        step = FinalStep(
            route=final.label,
            methods=final.methods,
            confidence=final.confidence,
            joined_by=final.joined_by,
            reason=final.reason,
        )
    return TaskResult(
        task=row["task"],
        level=row["level"],
        num_items=row["num_items"],
        baseline=row["baseline_score"],
        baseline_failure=row["baseline_failure"],
        noise_floor=row["noise_floor"],
        first_score=row["first_score"],
        best_score=row["best_score"],
        best_submission_id=row["best_submission_id"],
        gain=row["improvement"],
        within_noise=row["within_noise"],
        first_valid_s=figure["first_valid_s"],
        first_improvement_s=figure["first_improvement_s"],
        best_s=figure["best_s"],
        monotonic_ratio=figure["monotonic_ratio"],
        final=step,
    )


def _stage(segment: Segment) -> Stage:
    return Stage(
        kind=segment.kind.value,
        began_s=segment.began_s,
        ended_s=segment.ended_s,
        methods=segment.methods,
        num_trainings=segment.num_trainings,
        submissions=segment.submissions,
        confidence=segment.confidence,
        evidence=tuple(words_of(piece) for piece in segment.evidence[:MAX_EVIDENCE]),
    )


def words_of(piece: Evidence) -> str:
    """A piece of evidence in a line: ``code/train.py:12: trainer.train()``."""
    place = piece.path + (f":{piece.line}" if piece.line is not None else "")
    return ": ".join(filter(None, (piece.source, place, piece.quote)))


def _try(row: _Row) -> Try:
    return Try(
        submission_id=row["submission_id"],
        task=row["task"],
        at_s=row["at_s"],
        kind=row["kind"],
        score=row["score"],
        gain=row["gain"],
        best_after=row["best_after"],
        is_new_best=row["is_new_best"],
        model_path=row["model_path"],
        code_revision=row["code_revision"],
        words=row["failure"] or row["invalid_reason"],
    )


def _failure(row: _Row) -> Failure:
    return Failure(**{name: row[name] for name in Failure.model_fields})


def _cost(rows: Sequence[_Row], figure: _Row, hours: Sequence[_Row]) -> Cost:
    run = rows[0]
    gains = [row["improvement"] for row in rows if row["improvement"] is not None]
    gain = sum(gains) / len(gains) if gains and len(gains) == len(rows) else None
    cost = run["cost_usd"]
    return Cost(
        calls=run["driver_calls"],
        failed_calls=run["driver_failed_calls"],
        input_tokens=run["input_tokens"],
        output_tokens=run["output_tokens"],
        cost_usd=cost,
        usd_per_point=cost / gain if cost is not None and gain is not None and gain > 0 else None,
        by_hour=tuple(
            HourCost(**{name: hour[name] for name in HourCost.model_fields}) for hour in hours
        ),
        queue_wait_s=sum(row["queue_s"] for row in rows),
        queue_credit_s=figure["queue_credit_s"],
        grading_s=sum(row["grading_s"] for row in rows),
    )


def _found(row: _Row) -> Found:
    evidence = [Evidence.model_validate(piece) for piece in json.loads(row["evidence"])]
    return Found(
        rule=row["rule"],
        severity=row["severity"],
        submission_id=row["submission_id"],
        summary=row["summary"],
        evidence=tuple(words_of(piece) for piece in evidence[:MAX_EVIDENCE]),
    )


def _unused(
    run: _Row,
    spec: RunSpec | None,
    figures: Sequence[_Row],
    tries: Sequence[_Row],
    revisions: Sequence[_Row],
    route: Route,
) -> Unused:
    submissions = len({row["submission_id"] for row in tries})
    most = None if spec is None else spec.budget.max_submissions
    most_usd = None if spec is None else spec.budget.max_driver_usd
    left_s = max(run["budget_s"] - run["budget_used_s"], 0.0)
    ends = [figure["last_s"] for figure in figures if figure["last_s"] is not None]
    gaps = [f["gap_after_last_s"] for f in figures if f["gap_after_last_s"] is not None]
    after_s = max(ends, default=-1.0)
    return Unused(
        budget_s=left_s,
        budget_share=left_s / run["budget_s"],
        after_last_s=min(gaps, default=None),
        submissions=None if most is None else max(most - submissions, 0),
        driver_usd=None if most_usd is None else max(most_usd - (run["cost_usd"] or 0.0), 0.0),
        revisions_after_last=sum(row["budget_used_s"] > after_s for row in revisions),
        written_not_run=route.written,
    )


def write_study(study: CaseStudy, folder: Path, *, narrative: Narrative | None = None) -> None:
    """Writes ``summary.json`` and ``summary.md`` into ``folder``, which is made when missing.

    Args:
        study: The facts.
        folder: The run's.
        narrative: A language model's account, for the text alone: it is no fact.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = study.model_dump_json(indent=1)
    (folder / "summary.json").write_text(f"{text}\n", encoding="utf-8")
    words = markdown(study, narrative="" if narrative is None else narrative.shown)
    (folder / "summary.md").write_text(words, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    if argv is None:
        prepare_process()
    parser = argparse.ArgumentParser(
        prog="python -m analysis.case_study",
        description="Writes summary.json and summary.md of runs, a folder each.",
        epilog="Exit codes: 0 all is written; 1 the disk refused; 2 bad input.",
        allow_abbrev=False,
    )
    parser.add_argument("results", type=Path, help="a sweep's folder")
    parser.add_argument("out", type=Path, help="where the runs' folders are made")
    parser.add_argument("--run", action="append", help="only this run's; may be repeated")
    add_account_options(parser)
    args = read_flags(parser, argv)
    return ended(lambda: _write(args), interrupted="what is written stays")


def _write(args: argparse.Namespace) -> int:
    config = account_config(args)
    if args.out.exists() and not args.out.is_dir():
        raise ResultsError(f"{args.out} is no folder: name another")
    results = load([args.results])
    results = some_runs(results, args.run) if args.run else results
    studies = list(case_studies(results, routes_of(results, args.run)))
    accounts = told_accounts(studies, config, cache=args.out) if config else {}
    for study in studies:
        write_study(study, args.out / study.run_id, narrative=accounts.get(study.run_id))
    say(f"{plural(len(studies), 'run')} in {args.out}")
    return 0


def told_accounts(
    studies: Sequence[CaseStudy], config: JudgeConfig, *, cache: Path
) -> dict[str, Narrative]:
    """Accounts by run; of one that failed the reason goes to standard error."""
    accounts = narrate(studies, config, cache=cache)
    for account in accounts:
        if account.failure:
            say(f"no account of {account.run_id}: {account.failure}", to_stderr=True)
    return {account.run_id: account for account in accounts}


if __name__ == "__main__":
    sys.exit(main())
