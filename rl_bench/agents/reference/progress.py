"""What the agent leaves behind of its training: a line on stdout and a line of JSON a log event."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_bench.agents.reference.grading_client import Deadline

_SHOWN = ("loss", "reward", "grad_norm", "learning_rate", "completions/mean_length")


def say(text: str) -> None:
    """Prints one line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class TrainingLog(TrainerCallback):
    """Logs a stage and stops it when the deadline passes.

    Args:
        path: JSONL file, appended to.
        stage: The stage's name in every line.
        deadline: When to stop.
    """

    def __init__(self, path: Path, *, stage: str, deadline: Deadline) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._stage = stage
        self._deadline = deadline

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        """Writes the metrics that the trainer reports."""
        metrics = dict(logs or {})
        line = {"stage": self._stage, "step": state.global_step, **metrics}
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        shown = " ".join(f"{k} {metrics[k]:.4g}" for k in _SHOWN if k in metrics)
        if shown:
            say(f"{self._stage} step {state.global_step} {shown}")

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """Stops training when time is up."""
        if self._deadline.passed:
            control.should_training_stop = True
