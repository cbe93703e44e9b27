"""A case study as Markdown for people: ``summary.md``.

Words of agents stand in code spans, so that nothing of theirs is taken for markup.
"""

from collections.abc import Iterable, Iterator

from analysis.case_model import CaseStudy, Stage, TaskResult, Try, TurningPoint
from rl_bench.counts import plural

MAX_WORDS = 200
NARRATIVE_NOTE = (
    "*Written by a language model from the facts below, and checked by nobody; "
    "where they differ, the facts hold.*"
)
_KINDS = {
    "sft": "supervised fine-tuning",
    "preference": "preference optimisation",
    "rl_offline": "RL on stored samples",
    "rl_online": "RL on own samples",
    "merge": "model merging",
    "distill": "distillation",
    "diagnose": "diagnosis",
    "resubmission": "resubmission",
    "other": "other training",
}
_TURNS = {
    "first_score": "first score",
    "above_baseline": "first gain over the base model",
    "leap": "largest rise",
    "setback": "largest fall below the best",
    "best": "best",
}


def markdown(study: CaseStudy, *, narrative: str = "") -> str:
    """The whole text.

    Args:
        study: The facts.
        narrative: A language model's words; it is marked as such.
    """
    parts = [f"# {study.run_id}", *_head(study)]
    if narrative:
        parts += ["## Narrative", NARRATIVE_NOTE, narrative.strip()]
    parts += ["## Asked", *_asked(study), "## Result", *_results(study)]
    parts += ["## What was tried", *_tried(study)]
    parts += _section("Turning points", [_turn(turn) for turn in study.turning_points])
    parts += _section("Failures and repairs", _failures(study))
    parts += ["## Cost", *_cost(study)]
    parts += _section("Findings", _findings(study))
    parts += _section("Left unused", _unused(study))
    parts += _section("Not known", [code(words) for words in study.unknown])
    return "\n\n".join(parts) + "\n"


def clock(seconds: float | None) -> str:
    """``3:05 h``; a run of minutes as ``2:30 min``; an unknown time as a dash."""
    if seconds is None:
        return "–"
    if round(seconds) < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02d} h"


def points(value: float | None, *, sign: bool = False) -> str:
    """A score or gain; a missing one as a dash."""
    if value is None:
        return "–"
    return f"{value:+.2f}" if sign else f"{value:.2f}"


def code(words: str) -> str:
    """Foreign words in a code span, on one line."""
    line = " ".join(words.split())
    cut = line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 1] + "…"
    safe = cut.replace("`", "'").replace("|", "¦")
    return f"`{safe}`" if safe else "–"


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {line}" for line in lines)] if lines else []


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _head(study: CaseStudy) -> Iterator[str]:
    outcome = study.outcome
    end = f"ended as **{outcome.end}**" if outcome.end else f"is **{outcome.state}**"
    detail = f" ({code(outcome.detail)})" if outcome.detail else ""
    yield f"The run {end}{detail}. " + (
        "Its scores count." if outcome.counts else f"Its scores do not count: {outcome.why_not}."
    )


def _asked(study: CaseStudy) -> Iterator[str]:
    asked = study.asked
    agent = f"{asked.agent} {asked.agent_version}".rstrip()
    with_driver = f" with {asked.driver}" if asked.driver not in ("none", "") else ""
    yield (
        f"{agent}{with_driver} was asked to improve {asked.model} on "
        f"{', '.join(asked.tasks)} within {clock(asked.budget_s)}, in mode {asked.mode} "
        f"(seed {asked.seed})."
    )
    if asked.rules:
        yield f"> {asked.rules}"


def _results(study: CaseStudy) -> Iterator[str]:
    yield _table(
        ("task", "base model", "best", "gain", "at", "submission", "monotonic", "route"),
        (_result(result) for result in study.results),
    )
    for result in study.results:
        if result.final is not None:
            final = result.final
            route = _route(final.route) or "not known"
            yield (
                f"Best on {result.task}: {route} (confidence {final.confidence:.2f}; "
                f"{code(final.reason)})."
            )


def _result(result: TaskResult) -> Iterator[str]:
    noise = " (within noise)" if result.within_noise else ""
    yield result.task
    yield points(result.baseline) if result.baseline is not None else code(result.baseline_failure)
    yield points(result.best_score)
    yield points(result.gain, sign=True) + noise
    yield clock(result.best_s)
    yield "–" if result.best_submission_id is None else str(result.best_submission_id)
    yield "–" if result.monotonic_ratio is None else f"{100 * result.monotonic_ratio:.0f} %"
    yield (_route(result.final.route) if result.final is not None else "") or "–"


def _route(label: str) -> str:
    return " → ".join(_KINDS.get(kind, kind) for kind in label.split(" → ") if kind)


def _tried(study: CaseStudy) -> Iterator[str]:
    if not study.stages and not study.tries:
        yield "Nothing was seen."
    by_number: dict[int, list[Try]] = {}
    for each in study.tries:
        by_number.setdefault(each.submission_id, []).append(each)
    told: set[int] = set()
    for number, stage in enumerate(study.stages, start=1):
        lines = [f"{number}. {_stage(stage)}"]
        for submission in stage.submissions:
            told.add(submission)
            lines += [f"    - {_try(each)}" for each in by_number.get(submission, [])]
        yield "\n".join(lines)
    rest = [each for each in study.tries if each.submission_id not in told]
    if rest:
        yield "\n".join(f"- {_try(each)}" for each in rest)


def _stage(stage: Stage) -> str:
    name = _KINDS.get(stage.kind, stage.kind)
    if stage.kind == "resubmission":
        return f"**{name}** at {clock(stage.began_s)}"
    when = f"{clock(stage.began_s)} to {clock(stage.ended_s)}"
    when = when if stage.began_s is not None else "time not known"
    if not stage.num_trainings:
        return f"**{name}**, {when}"
    trainings = "one training" if stage.num_trainings == 1 else f"{stage.num_trainings} trainings"
    seen = f"; {code(stage.evidence[0])}" if stage.evidence else ""
    return (
        f"**{name}** ({', '.join(stage.methods)}), {when}, {trainings}, "
        f"confidence {stage.confidence:.1f}{seen}"
    )


def _try(each: Try) -> str:
    score = f"{points(each.score)} ({points(each.gain, sign=True)})"
    verdict = score if each.score is not None else code(each.words or each.kind)
    kind = "" if each.kind in {"valid", "failed"} else f", {each.kind}"
    best = ", **new best**" if each.is_new_best else ""
    return (
        f"{clock(each.at_s)} submission {each.submission_id} of {code(each.model_path)} on "
        f"{each.task}: {verdict}{kind}{best}"
    )


def _turn(turn: TurningPoint) -> str:
    name = _TURNS[turn.kind]
    stage = f", by {_KINDS.get(turn.stage, turn.stage)}" if turn.stage else ""
    return (
        f"{clock(turn.at_s)} {turn.task}, {name}: {points(turn.score)} "
        f"({points(turn.change, sign=True)}), submission {turn.submission_id}{stage}"
    )


def _failures(study: CaseStudy) -> list[str]:
    lines = []
    for each in study.failures:
        what = f"submission {each.submission_id}" if each.submission_id else "request"
        repaired = (
            f"repaired by submission {each.repaired_by} after {clock(each.repair_s)}"
            if each.repaired_by is not None
            else "not repaired"
        )
        lines.append(
            f"{clock(each.at_s)} {what} {each.kind} on {each.task}: {code(each.reason)}; {repaired}"
        )
    return lines


def _cost(study: CaseStudy) -> Iterator[str]:
    cost = study.cost
    tokens = f"{cost.input_tokens or 0:,} tokens in, {cost.output_tokens or 0:,} out"
    usd = "cost not known" if cost.cost_usd is None else f"${cost.cost_usd:.2f}"
    per_point = "" if cost.usd_per_point is None else f", ${cost.usd_per_point:.2g} a point gained"
    yield (
        f"{cost.calls} driver calls ({cost.failed_calls} failed), {tokens}, {usd}{per_point}. "
        f"Grading took {clock(cost.grading_s)}, waiting for it {clock(cost.queue_wait_s)}, of "
        f"which {clock(cost.queue_credit_s)} were given back."
    )
    if cost.by_hour:
        yield _table(
            ("hour", "calls", "tokens in", "tokens out", "USD"),
            (
                (
                    str(hour.hour + 1),
                    str(hour.calls),
                    "–" if hour.input_tokens is None else f"{hour.input_tokens:,}",
                    "–" if hour.output_tokens is None else f"{hour.output_tokens:,}",
                    points(hour.cost_usd),
                )
                for hour in cost.by_hour
            ),
        )


def _findings(study: CaseStudy) -> list[str]:
    verdict = study.outcome.mode_verdict
    lines = [f"mode: {verdict}"] if verdict else []
    for found in study.findings:
        evidence = f" Evidence: {'; '.join(map(code, found.evidence))}." if found.evidence else ""
        lines.append(f"{found.severity}, {found.rule}: {code(found.summary)}.{evidence}")
    return lines


def _unused(study: CaseStudy) -> list[str]:
    unused = study.unused
    lines = [f"{clock(unused.budget_s)} of the budget ({100 * unused.budget_share:.0f} %)"]
    if unused.after_last_s is not None:
        lines.append(f"{clock(unused.after_last_s)} of work after the last submission")
    if unused.submissions is not None:
        lines.append(plural(unused.submissions, "submission"))
    if unused.driver_usd is not None:
        lines.append(f"${unused.driver_usd:.2f} of the driver's budget")
    if unused.revisions_after_last:
        revisions = plural(unused.revisions_after_last, "revision")
        lines.append(f"{revisions} of the code after the last one")
    if unused.written_not_run:
        lines.append(f"written and not seen to run: {', '.join(unused.written_not_run)}")
    return lines
