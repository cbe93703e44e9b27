"""What did not fit a model's context: the metrics that tell it, and how it is told.

Such items count as not solved, so that a low score may say nothing about the model's ability.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_bench.events import Evaluation

PROMPT_TOO_LONG = "prompt_too_long_percent"
"""Metric of static tasks: items whose prompt does not fit the context, 0 to 100."""
CONTEXT_WINDOW = "context_window_percent"
"""Metric of interactive tasks: episodes that ended because the next step did not fit, 0 to 100."""
_SAID = {
    PROMPT_TOO_LONG: "prompts do not fit",
    CONTEXT_WINDOW: "episodes ended since they outgrew",
}


def context_remark(evaluation: "Evaluation") -> str:
    """``20 of 20 prompts do not fit the model's context (model.max_model_len)``, or nothing."""
    total = evaluation.num_items
    parts = [
        f"{round(percent * total / 100)} of {total} {said} the model's context"
        for metric, said in _SAID.items()
        if (percent := evaluation.metrics.get(metric))
    ]
    return ", ".join(parts) + (" (model.max_model_len)" if parts else "")
