"""What the reference agent is told: its run, read once from the environment and ``run_meta.json``.

`read_job` is the only place that looks at environment variables or at the workspace's metadata.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any


class SettingsError(ValueError):
    """The environment or the settings are incomplete or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """How to train on one kind of task.

    Attributes:
        sft_demos: Demonstrations for supervised fine-tuning; 0: all.
        sft_epochs: Passes over them.
        sft_lr: Peak learning rate.
        sft_batch: Sequences a step.
        sft_stages: Submissions during supervised fine-tuning, evenly spaced.
        warmup_demos: Demonstrations of the warm-up in mode ``rl_only``.
        warmup_epochs: Passes over them.
        grpo_steps: Optimiser steps; 0: none.
        grpo_prompts: Different problems or games a step.
        grpo_group: Rollouts of each.
        grpo_pool: Problems or games that steps draw from; 0: all. Few make an environment's caches
            pay.
        grpo_lr: Learning rate, constant.
        grpo_temperature: Sampling temperature of the rollouts.
        grpo_micro_batch: Sequences a forward pass.
        grpo_stages: Submissions during reinforcement learning, evenly spaced.
        step_penalty: Taken from an episode's reward for each step, so that shorter wins count more.
        reserve_s: Seconds kept free before the deadline, for the last submission.
    """

    sft_demos: int = 0
    sft_epochs: float = 3.0
    sft_lr: float = 2e-3
    sft_batch: int = 16
    sft_stages: int = 1
    warmup_demos: int = 300
    warmup_epochs: float = 10.0
    grpo_steps: int = 0
    grpo_prompts: int = 64
    grpo_group: int = 8
    grpo_pool: int = 0
    grpo_lr: float = 4e-4
    grpo_temperature: float = 1.0
    grpo_micro_batch: int = 64
    grpo_stages: int = 2
    step_penalty: float = 0.0
    reserve_s: float = 20.0

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> "TrainSettings":
        """Reads settings from JSON values.

        Raises:
            SettingsError: An unknown key, or a value that is no number.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise SettingsError(f"unknown settings {unknown}; choices: {sorted(known)}")
        wrong = [name for name, value in values.items() if not isinstance(value, int | float)]
        if wrong:
            raise SettingsError(f"settings {wrong} must be numbers")
        numbers: dict[str, Any] = dict(values)
        return replace(cls(), **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMeta:
    """A task as ``run_meta.json`` describes it."""

    name: str
    kind: str
    protocol: str
    max_steps: int
    max_tokens: int
    data: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that one run of the agent depends on.

    Attributes:
        max_model_len: Tokens of a prompt and its answer in the evaluation; ``None``: not told.
    """

    mode: str
    seed: int
    max_model_len: int | None
    tasks: tuple[TaskMeta, ...]
    settings: Mapping[str, TrainSettings]
    workspace: Path
    model: Path
    output: Path
    grading_url: str

    def train_settings(self, task: TaskMeta) -> TrainSettings:
        """The settings of the task's name, else of its kind, else the defaults."""
        return self.settings.get(task.name) or self.settings.get(task.kind) or TrainSettings()


def read_job(environ: Mapping[str, str] = os.environ) -> Job:
    """Reads the job.

    Raises:
        SettingsError: A variable, a file or a setting is missing or wrong.
    """
    try:
        workspace = Path(environ["WORKSPACE"])
        meta = json.loads((workspace / "run_meta.json").read_text(encoding="utf-8"))
        given = json.loads(environ.get("AGENT_SETTINGS") or "{}")
        data = Path(environ["DATA_PATH"])
        return Job(
            mode=str(meta["mode"]),
            seed=int(meta["seed"]),
            max_model_len=meta.get("max_model_len"),
            tasks=_tasks(meta["tasks"], data=data),
            settings={kind: TrainSettings.parse(values) for kind, values in given.items()},
            workspace=workspace,
            model=Path(environ["MODEL_PATH"]),
            output=Path(environ["OUTPUT_DIR"]),
            grading_url=environ["GRADING_SERVER_URL"],
        )
    except KeyError as error:
        raise SettingsError(f"missing {error.args[0]} (environment or run_meta.json)") from error
    except (OSError, json.JSONDecodeError) as error:
        raise SettingsError(f"run_meta.json or AGENT_SETTINGS cannot be read: {error}") from error


def _tasks(rows: list[dict[str, object]], *, data: Path) -> tuple[TaskMeta, ...]:
    return tuple(
        TaskMeta(
            name=str(row["name"]),
            kind=str(row["kind"]),
            protocol=str(row["protocol"]),
            max_steps=int(str(row["max_steps"])),
            max_tokens=int(str(row["max_tokens"])),
            data=data / str(row["name"]) if len(rows) > 1 else data,
        )
        for row in rows
    )
