"""Evaluations of synthetic checkpoints, item by item."""

from collections.abc import Sequence

import numpy as np

from analysis.synthetic.conditions import TASKS
from rl_bench.config import RunSpec
from rl_bench.events import Evaluation, Item
from rl_bench.noise import repeatability_limit

_CHANCE = 0.6
"""Standard deviation of an item's luck, where its ease has 1."""


def evaluation(
    spec: RunSpec,
    task: str,
    score: float | None,
    rng: np.random.Generator,
    *,
    repeats: Sequence[float] = (),
    failure: str = "",
) -> Evaluation:
    """One evaluation of one checkpoint.

    Args:
        spec: The run's conditions.
        task: On this task.
        score: What is to be measured; None: it fails.
        rng: The run's randomness.
        repeats: Scores of several gradings, whose mean ``score`` is.
        failure: Why it failed.
    """
    num_items = next(each for each in spec.tasks if each.name == task).num_eval or 0
    items = () if score is None else _items(task, score, num_items, rng)
    measured = score
    if score is not None and not TASKS[task].noise_sd:
        measured = 100 * sum(item.score or 0.0 for item in items) / num_items
    several = tuple(repeats) if len(repeats) > 1 else ()
    return Evaluation(
        task=task,
        score=measured,
        failure=failure,
        num_items=num_items,
        num_errors=num_items if score is None else 0,
        evaluator_version="synthetic-1",
        metrics={} if score is None else {"answered_percent": 100.0},
        repeat_scores=several,
        noise_floor=repeatability_limit(several),
        items=items,
        queue_s=float(rng.exponential(20)),
        load_s=8.0,
        load_kind="warm",
        duration_s=30.0,
    )


def _items(task: str, score: float, num_items: int, rng: np.random.Generator) -> tuple[Item, ...]:
    """Items that are as hard in every run, plus chance; as many right as the score says."""
    exact = score / 100 * num_items
    num_right = int(exact) + int(rng.random() < exact - int(exact))
    ease = np.random.default_rng(list(task.encode())).standard_normal(num_items)
    order = np.argsort(-(ease + _CHANCE * rng.standard_normal(num_items)))
    right = np.zeros(num_items, dtype=bool)
    right[order[:num_right]] = True
    # Made without validation: there are half a million of them.
    return tuple(
        Item.model_construct(
            item_id=f"{task}-{place:04d}",
            status="ok",
            score=1.0 if is_right else 0.0,
            num_steps=1,
            num_tokens=120,
            duration_s=0.4,
            detail={},
        )
        for place, is_right in enumerate(right.tolist())
    )
