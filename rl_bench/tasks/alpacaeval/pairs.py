"""A model's output beside the reference's: who decides, what was decided, and figures over many.

A preference is the model's: 1 it wins, 0 it loses, whatever place the judge saw it in.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from rl_bench.engine.base import Completion
from rl_bench.judges.base import Votes
from rl_bench.judges.noise import noise_metrics
from rl_bench.tasks.alpacaeval.data import Instruction
from rl_bench.tasks.alpacaeval.winrate import Comparison, win_rate
from rl_bench.tasks.base import ItemOutcome, ItemStatus, Scalar

_DETAIL_CHARS = 4000  # as good as every output of 512 tokens: items can be judged again


class Ruling(StrEnum):
    """Who decides about a pair."""

    JUDGE = "judge"
    IDENTICAL = "identical"
    """Equal outputs are a draw."""
    EMPTY = "empty"
    """An empty output loses."""


_UNASKED: Mapping[Ruling, float] = {Ruling.IDENTICAL: 0.5, Ruling.EMPTY: 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One instruction's two outputs; ``model_first`` is the order in which a judge sees them."""

    row: Instruction
    completion: Completion
    model_first: bool
    ruling: Ruling

    @property
    def answer(self) -> str:
        """The model's output, without white space around it."""
        return self.completion.text.strip()

    @property
    def outputs(self) -> tuple[str, str]:
        """Both outputs in the order that a judge sees."""
        both = (self.row.reference, self.answer)
        return (both[1], both[0]) if self.model_first else both


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A pair and the preferences that its votes say; none: it is unjudged."""

    pair: Pair
    preferences: tuple[float, ...]
    failures: tuple[str, ...] = ()

    @classmethod
    def of(cls, pair: Pair, votes: Votes[float] | None) -> Self:
        """From votes on the first output; ``None``: the judge was not asked."""
        if votes is None:
            return cls(pair=pair, preferences=(_UNASKED[pair.ruling],))
        seen = tuple(vote if pair.model_first else 1.0 - vote for vote in votes.values)
        return cls(pair=pair, preferences=seen, failures=votes.failures)

    @property
    def preference(self) -> float | None:
        """The mean vote."""
        return statistics.fmean(self.preferences) if self.preferences else None

    def outcome(self, item_id: str, *, duration_s: float) -> ItemOutcome:
        """As a task's item; ``detail`` holds what judging again or another statistic needs."""
        preference = self.preference
        return ItemOutcome(
            item_id=item_id,
            status=ItemStatus.UNJUDGED if preference is None else ItemStatus.OK,
            score=preference,
            num_tokens=self.pair.completion.num_tokens,
            duration_s=duration_s,
            detail=self._detail(preference),
        )

    def _detail(self, preference: float | None) -> dict[str, Scalar]:
        pair, row = self.pair, self.pair.row
        is_judged = pair.ruling is Ruling.JUDGE and preference is not None
        mirrored = preference if pair.model_first or preference is None else 1.0 - preference
        detail: dict[str, Scalar] = {
            "preference": None if preference is None else 1.0 + preference,
            "order": "model_first" if pair.model_first else "reference_first",
            "judge_p_first": mirrored if is_judged else None,
            "decided_by": pair.ruling.value,
            "num_votes": len(self.preferences) if is_judged else 0,
            "num_chars": len(pair.answer),
            "num_chars_reference": len(row.reference),
            "finish_reason": pair.completion.finish_reason.value,
            "output": pair.answer[:_DETAIL_CHARS],
            "reference_generator": row.generator,
            "dataset": row.dataset,
        }
        if preference is None:
            detail["error"] = self.failures[0] if self.failures else "the judge gave no vote"
        return detail


def comparisons(verdicts: Sequence[Verdict]) -> list[Comparison]:
    """The judged ones."""
    return [
        Comparison(
            item=verdict.pair.row.item,
            preference=preference,
            num_chars_model=len(verdict.pair.answer),
            num_chars_reference=len(verdict.pair.row.reference),
        )
        for verdict in verdicts
        if (preference := verdict.preference) is not None
    ]


def figures(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Metrics of the judged items, rates in percent; only counts if there are none."""
    judged = comparisons(verdicts)
    counts = {
        "num_judged": float(len(judged)),
        "num_empty": float(sum(not verdict.pair.answer for verdict in verdicts)),
    }
    if not judged:
        return counts
    rate = win_rate([comparison.preference for comparison in judged])
    return {
        **counts,
        "win_rate": rate.win_rate,
        "win_rate_se": rate.standard_error,
        "discrete_win_rate": rate.discrete,
        "num_wins": float(rate.num_wins),
        "num_losses": float(rate.num_losses),
        "num_draws": float(rate.num_draws),
        "avg_length": statistics.fmean(c.num_chars_model for c in judged),
        "avg_length_reference": statistics.fmean(c.num_chars_reference for c in judged),
        **_judge_figures(verdicts),
    }


def _judge_figures(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The judge's taste for the first place, and its noise where it voted more than once."""
    asked = [v for v in verdicts if v.pair.ruling is Ruling.JUDGE and v.preferences]
    if not asked:
        return {}
    first = [
        vote if verdict.pair.model_first else 1.0 - vote
        for verdict in asked
        for vote in verdict.preferences
    ]
    return {
        "judge/first_percent": 100.0 * statistics.fmean(first),
        **noise_metrics([verdict.preferences for verdict in asked]),
    }
