"""Supervised fine-tuning on expert data, with TRL's `SFTTrainer`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from rl_bench.agents.reference.rows import Row
from rl_bench.agents.reference.training import common_arguments, train


@dataclass(frozen=True, slots=True, kw_only=True)
class SftPlan:
    """How to fine-tune: see `rl_bench.agents.reference.settings.TrainSettings`."""

    epochs: float
    lr: float
    batch: int
    seed: int


class AtSteps(TrainerCallback):
    """Calls ``act`` at evenly spaced steps, the last step excepted."""

    def __init__(self, act: Callable[[int], None], *, num_stages: int) -> None:
        self._act = act
        self._num_stages = num_stages

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: object,
    ) -> None:
        """Acts when a stage's share of the steps is done."""
        marks = {
            round(state.max_steps * stage / self._num_stages)
            for stage in range(1, self._num_stages)
        }
        if state.global_step in marks and not control.should_training_stop:
            self._act(state.global_step)


def supervised(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    *,
    plan: SftPlan,
    callbacks: Sequence[TrainerCallback],
    folder: Path,
) -> int:
    """Fine-tunes ``model`` in place on the answers in ``rows``.

    Returns:
        Optimiser steps done, fewer than planned when a callback stopped the training.
    """
    config = SFTConfig(
        num_train_epochs=plan.epochs,
        learning_rate=plan.lr,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        per_device_train_batch_size=plan.batch,
        max_length=None,
        logging_steps=20,
        **common_arguments(folder, seed=plan.seed),
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([asdict(row) for row in rows]),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    return train(trainer)
