"""From played episodes and a judge's votes to scored items and an evaluation's figures.

Every percentage is over all items, so that none gets better by failing: an answer that is missing
counts as nothing found, and so does an item without a verdict, whose share stands beside it.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from envs.answer_match import match
from rl_bench.judges.base import Judge, Judged, Votes
from rl_bench.judges.noise import noise_metrics
from rl_bench.tasks.base import ItemOutcome, ItemStatus
from rl_bench.tasks.deepsearchqa.data import Row
from rl_bench.tasks.deepsearchqa.judging import (
    Annotator,
    Category,
    OtherAnnotator,
    Rating,
    Vote,
    make_request,
    parser_of,
)

NO_ANSWER = "no_answer"
UNJUDGED = "unjudged"
_WORST_FIRST = tuple(reversed(Category))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Items with their final status and score, and the evaluation's metrics."""

    items: tuple[ItemOutcome, ...]
    metrics: Mapping[str, float]


def compare_answers(items: Sequence[ItemOutcome], *, rows: Sequence[Row]) -> Judging:
    """Scores by rule: an answer is correct when it matches entirely. For generated questions."""
    matched = [
        match(answer_of(item), row.answer, answer_type=row.answer_type)
        for item, row in zip(items, rows, strict=True)
    ]
    scored = [
        _told(_scored(item, is_correct=value == 1.0), row)
        for item, row, value in zip(items, rows, matched, strict=True)
    ]
    return Judging(
        items=tuple(scored),
        metrics={**_metrics(scored), "f1_percent": _percent(matched, num_items=len(items))},
    )


async def judge_answers(
    items: Sequence[ItemOutcome],
    *,
    rows: Sequence[Row],
    judge: Judge,
    annotator: Annotator | OtherAnnotator,
    beside: Annotator | OtherAnnotator | None = None,
    repeat: int = 0,
) -> Judging:
    """Asks ``judge`` about every answer.

    Args:
        items: As played.
        rows: Their questions, in the same order.
        judge: Who is asked.
        annotator: What is asked; it decides the score.
        beside: Another annotator, whose figures are added and decide nothing.
        repeat: See `EvalContext.repeat`.
    """
    kinds = [annotator, *([beside] if beside not in (None, annotator) else [])]
    judged = await asyncio.gather(
        *(_ask(judge, kind, items=items, rows=rows, repeat=repeat) for kind in kinds)
    )
    by_kind = dict(zip(kinds, judged, strict=True))
    votes = by_kind[annotator].votes
    numbers = _asked(items)
    ruled = list(items)
    for number, vote in zip(numbers, votes, strict=True):
        ruled[number] = _ruled(items[number], vote)
    ruled = [
        _told(_scored(item, is_correct=False) if _is_silent(item) else item, row)
        for item, row in zip(ruled, rows, strict=True)
    ]
    official = by_kind.get(Annotator.OFFICIAL)
    if official is not None:
        for number, vote in zip(numbers, official.votes, strict=True):
            ruled[number] = _rated(ruled[number], vote)
    metrics = {
        **_metrics(ruled),
        **_usage(judged),
        **noise_metrics([[float(v.is_correct) for v in each.values] for each in votes]),
        **({} if official is None else official_metrics(official.votes, num_items=len(items))),
    }
    return Judging(items=tuple(ruled), metrics=metrics)


def answer_of(item: ItemOutcome) -> str:
    """The answer given in an episode; empty if none was."""
    return str(item.detail.get("answer") or "").strip()


def official_metrics(votes: Sequence[Votes[Vote]], *, num_items: int) -> dict[str, float]:
    """The official figures in percent of ``num_items``; what was not asked counts as not found."""
    rated = [ratings for each in votes if (ratings := _ratings(each))]
    means = {
        "precision": [_mean([r.precision for r in each]) for each in rated],
        "recall": [_mean([r.recall for r in each]) for each in rated],
        "f1": [_mean([r.f1 for r in each]) for each in rated],
    }
    categories = Counter(_category(each) for each in rated)
    return {
        **{
            f"official/{name}_percent": _percent(values, num_items=num_items)
            for name, values in means.items()
        },
        **{
            f"official/{category}_percent": 100.0 * categories[category] / num_items
            for category in Category
        },
        "official/invalid_judge_percent": 100.0 * (len(votes) - len(rated)) / num_items,
    }


async def _ask(
    judge: Judge,
    annotator: Annotator | OtherAnnotator,
    *,
    items: Sequence[ItemOutcome],
    rows: Sequence[Row],
    repeat: int,
) -> Judged[Vote]:
    name = annotator.value if isinstance(annotator, Annotator) else annotator.name
    requests = [
        make_request(
            annotator,
            rows[number],
            item_id=f"{items[number].item_id}/{name}",
            response=answer_of(items[number]),
        )
        for number in _asked(items)
    ]
    return await judge.ask(requests, parse=parser_of(annotator), repeat=repeat)


def _asked(items: Sequence[ItemOutcome]) -> list[int]:
    """The items that a judge is asked about: played to the end, with an answer."""
    return [i for i, item in enumerate(items) if item.status is ItemStatus.OK and answer_of(item)]


def _is_silent(item: ItemOutcome) -> bool:
    return item.status is ItemStatus.OK and not answer_of(item)


def _ruled(item: ItemOutcome, votes: Votes[Vote]) -> ItemOutcome:
    """The item as most votes have it; a tie is not correct."""
    if not votes.is_judged:
        why = "; ".join(dict.fromkeys(votes.failures))[:500]
        detail = {**item.detail, "outcome": UNJUDGED, "error": f"judge: {why}"}
        return replace(item, status=ItemStatus.UNJUDGED, score=None, detail=detail)
    num_correct = sum(vote.is_correct for vote in votes.values)
    detail = {**item.detail, "num_votes": len(votes.values), "num_correct_votes": num_correct}
    return _scored(replace(item, detail=detail), is_correct=2 * num_correct > len(votes.values))


def _scored(item: ItemOutcome, *, is_correct: bool) -> ItemOutcome:
    if item.status is not ItemStatus.OK:
        return item
    outcome = ("correct" if is_correct else "incorrect") if answer_of(item) else NO_ANSWER
    detail = {**item.detail, "outcome": outcome}
    return replace(item, score=float(is_correct), detail=detail)


def _rated(item: ItemOutcome, votes: Votes[Vote]) -> ItemOutcome:
    ratings = _ratings(votes)
    if not ratings:
        return item
    detail = {
        **item.detail,
        "category_official": _category(ratings).value,
        "precision": _mean([r.precision for r in ratings]),
        "recall": _mean([r.recall for r in ratings]),
        "f1": _mean([r.f1 for r in ratings]),
    }
    return replace(item, detail=detail)


def _told(item: ItemOutcome, row: Row) -> ItemOutcome:
    return replace(item, detail={**item.detail, "gold": row.answer})


def _ratings(votes: Votes[Vote]) -> list[Rating]:
    return [vote.rating for vote in votes.values if vote.rating is not None]


def _category(ratings: Sequence[Rating]) -> Category:
    """The most frequent category; of several, the worst."""
    counted = Counter(rating.category for rating in ratings)
    return max(_WORST_FIRST, key=lambda category: counted[category])


def _metrics(items: Sequence[ItemOutcome]) -> dict[str, float]:
    played = [item for item in items if item.status in (ItemStatus.OK, ItemStatus.UNJUDGED)]
    silent = sum(_is_silent(item) for item in played)
    unjudged = sum(item.status is ItemStatus.UNJUDGED for item in items)
    searches = [float(item.detail.get("num_searches") or 0) for item in played]
    return {
        "answered_percent": 100.0 * (len(played) - silent) / len(items),
        "no_answer_percent": 100.0 * silent / len(items),
        "unjudged_percent": 100.0 * unjudged / len(items),
        **({"mean_searches": _mean(searches)} if searches else {}),
    }


def _usage(judged: Sequence[Judged[Vote]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for each in judged:
        total.update(each.usage.metrics())
    return dict(total)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(values: Sequence[float], *, num_items: int) -> float:
    return 100.0 * sum(values) / num_items
