"""Reinforcement learning with TRL's `GRPOTrainer` and online rollouts.

The trainer asks for rollouts through ``rollout_func``; they are played by a `World`, turn by turn,
with the very weights being trained, and come back with the environment's tokens masked out of the
loss (``env_mask``) and with their rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from rl_bench.agents.reference.rollouts import World
from rl_bench.agents.reference.training import common_arguments, train


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoPlan:
    """How to reinforce: see `rl_bench.agents.reference.settings.TrainSettings`.

    Attributes:
        max_completion_length: Tokens that an episode can have; a constant by which the loss divides
            (dr_grpo), so that long lost episodes weigh no more than short won ones.
    """

    steps: int
    prompts: int
    group: int
    lr: float
    temperature: float
    micro_batch: int
    max_completion_length: int
    seed: int


def reinforce(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    world: World,
    *,
    plan: GrpoPlan,
    callbacks: Sequence[TrainerCallback],
    folder: Path,
) -> int:
    """Trains ``model`` in place on what it earns in ``world``.

    Every optimiser step sees ``plan.prompts * plan.group`` fresh rollouts.

    Returns:
        Optimiser steps done, fewer than planned when a callback stopped the training.
    """

    def rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[object]]:
        policy = cast(PreTrainedModel, trainer.model)
        policy.train(False)
        played = world.play([int(prompt) for prompt in prompts], model=policy)
        policy.train(True)
        rows = [rollout.conversation for rollout in played]
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids for row in rows],
            "logprobs": [row.logprobs for row in rows],
            "env_mask": [row.model_mask for row in rows],
            "earned": [rollout.reward for rollout in played],
        }

    def earned_reward(
        prompts: list[str], completions: list[str], earned: list[float], **_: object
    ) -> list[float | None]:
        return list(earned)

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=earned_reward,
        args=_config(plan, folder=folder),
        train_dataset=Dataset.from_list([{"prompt": str(i)} for i in range(len(world))]),
        processing_class=tokenizer,
        rollout_func=rollout,
        callbacks=list(callbacks),
    )
    return train(trainer)


def _config(plan: GrpoPlan, *, folder: Path) -> GRPOConfig:
    """One generation of rollouts a step, split over as many forward passes as memory wants."""
    num_rollouts = plan.prompts * plan.group
    if num_rollouts % plan.micro_batch:
        raise ValueError(f"{num_rollouts} rollouts do not divide by {plan.micro_batch}")
    return GRPOConfig(
        max_steps=plan.steps,
        learning_rate=plan.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,  # Adam's first steps go by the sign of one noisy gradient
        adam_beta2=0.99,
        per_device_train_batch_size=plan.micro_batch,
        gradient_accumulation_steps=num_rollouts // plan.micro_batch,
        num_generations=plan.group,
        max_completion_length=plan.max_completion_length,
        temperature=plan.temperature,
        beta=0.0,
        loss_type="dr_grpo",
        scale_rewards="group",
        max_grad_norm=1.0,
        logging_steps=1,
        **common_arguments(folder, seed=plan.seed),
    )
