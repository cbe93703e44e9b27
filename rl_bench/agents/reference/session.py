"""One run of the agent: the stages of its mode, a submission after each, the best one kept.

sft_only   supervised fine-tuning on all demonstrations
rl_only    a short warm-up on few demonstrations, then GRPO with online rollouts
free       supervised fine-tuning, then GRPO where the task has a world to roll out in
multi      supervised fine-tuning on the demonstrations of all tasks together
"""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from transformers import set_seed

from rl_bench.agents.reference import checkpoint, data
from rl_bench.agents.reference.demos import Demo
from rl_bench.agents.reference.grading_client import Deadline, GradingClient, Refused
from rl_bench.agents.reference.grpo import GrpoPlan, reinforce
from rl_bench.agents.reference.progress import TrainingLog, say
from rl_bench.agents.reference.rows import Row, make_rows
from rl_bench.agents.reference.settings import Job, SettingsError, TaskMeta, TrainSettings
from rl_bench.agents.reference.sft import AtSteps, SftPlan, supervised
from rl_bench.agents.reference.worlds import check_mode, check_world, load_world


class Session:
    """Holds the model being trained and what has been submitted of it.

    Raises:
        SettingsError: The mode is unknown, or has nothing to train on; said before a model is
            loaded.
    """

    def __init__(self, job: Job) -> None:
        set_seed(job.seed)
        self.job = job
        check_mode(job)
        self.demos = [data.load_demos(task) for task in job.tasks]
        self.settings = job.train_settings(job.tasks[0])
        self.client = GradingClient(job.grading_url)
        self.deadline = Deadline(self.client, reserve_s=self.settings.reserve_s)
        self.loaded = checkpoint.load(job.model)
        positions = int(self.loaded.model.config.max_position_embeddings)
        self.max_length = min(job.max_model_len or positions, positions)
        self.best: float | None = None
        self._num_saved = 0

    def run(self) -> None:
        """Goes through the stages of the mode."""
        self._record_plan()
        settings, mode = self.settings, self.job.mode
        if mode == "rl_only":
            self._supervise("warmup", demos=settings.warmup_demos, epochs=settings.warmup_epochs)
            self._reinforce(self.job.tasks[0])
            return
        self._supervise("sft", demos=settings.sft_demos, epochs=settings.sft_epochs)
        if mode == "free":
            self._reinforce_if_possible(self.job.tasks[0])

    def _supervise(self, stage: str, *, demos: int, epochs: float) -> None:
        """Fine-tunes on ``demos`` demonstrations of each task and submits."""
        chosen = [
            demo
            for of_task in self.demos
            for demo in data.choose(of_task, num=demos, seed=self.job.seed)
        ]
        random.Random(self.job.seed).shuffle(chosen)  # noqa: S311  not for secrets
        say(f"{stage}: demonstrations {len(chosen)}, epochs {epochs:g}")
        settings = self.settings
        num_stages = settings.sft_stages if stage == "sft" else 1
        steps = supervised(
            *self.loaded,
            self._rows(chosen),
            plan=SftPlan(
                epochs=epochs,
                lr=settings.sft_lr,
                batch=settings.sft_batch,
                seed=self.job.seed,
            ),
            callbacks=[
                self._log(stage),
                AtSteps(lambda step: self._submit(f"{stage}-{step}"), num_stages=num_stages),
            ],
            folder=self.job.output / "trainer",
        )
        self._submit(f"{stage}-{steps}")

    def _rows(self, demos: Sequence[Demo]) -> Sequence[Row]:
        made = make_rows(self.loaded.tokenizer, demos, max_length=self.max_length)
        if made.num_too_long:
            say(f"left out: answers that do not fit {self.max_length} tokens, {made.num_too_long}")
        if not made.rows:
            raise SettingsError(f"no demonstration fits the context of {self.max_length} tokens")
        return made.rows

    def _reinforce_if_possible(self, task: TaskMeta) -> None:
        try:
            check_world(task)
        except SettingsError as error:
            say(f"no reinforcement learning: {error}")
            return
        self._reinforce(task)

    def _reinforce(self, task: TaskMeta) -> None:
        """GRPO with online rollouts in ``task``'s world, submitting on the way."""
        settings = self.settings
        if not settings.grpo_steps or self.deadline.passed:
            return
        world = load_world(
            task, settings, tokenizer=self.loaded.tokenizer, max_length=self.max_length
        )
        rollouts = f"{settings.grpo_prompts} x {settings.grpo_group} rollouts a step"
        say(f"grpo: {len(world)} problems or games, {rollouts}")
        steps = reinforce(
            *self.loaded,
            world,
            plan=_grpo_plan(settings, task=task, seed=self.job.seed),
            callbacks=[
                self._log("grpo"),
                AtSteps(lambda step: self._submit(f"grpo-{step}"), num_stages=settings.grpo_stages),
            ],
            folder=self.job.output / "trainer",
        )
        self._submit(f"grpo-{steps}")

    def _log(self, stage: str) -> TrainingLog:
        path = self.job.output / "logs" / f"{stage}.jsonl"
        return TrainingLog(path, stage=stage, deadline=self.deadline)

    def _submit(self, name: str) -> None:
        """Saves and submits the model as it is now; keeps the folder if it is the best so far."""
        self._num_saved += 1
        folder = self.job.output / "checkpoints" / f"{self._num_saved:02d}-{name}"
        checkpoint.save(self.loaded, folder, base=self.job.model)
        scores: list[float] = []
        for task in self._targets():
            answer = self.client.submit(folder, task=task)
            if isinstance(answer, Refused):
                say(f"{name}: refused with {answer.status}: {answer.reason}")
                continue
            say(f"{name}: {json.dumps(answer)}")
            scores += [score for score in [answer.get("score")] if score is not None]
        self.deadline.refresh()
        self._keep_best(folder, scores)

    def _targets(self) -> Sequence[str | None]:
        return [task.name for task in self.job.tasks] if self.job.mode == "multi" else [None]

    def _keep_best(self, folder: Path, scores: Sequence[float]) -> None:
        if not scores:
            return
        score = sum(scores) / len(scores)
        if self.best is None or score > self.best:
            self.best = score
            best = self.job.output / "best"
            shutil.rmtree(best, ignore_errors=True)
            shutil.copytree(folder, best)

    def _record_plan(self) -> None:
        """Leaves the settings under ``code/``, where revisions of an agent's work are recorded."""
        code = self.job.workspace / "code"
        code.mkdir(exist_ok=True)
        plan = {"mode": self.job.mode, "seed": self.job.seed, "settings": asdict(self.settings)}
        (code / "plan.json").write_text(json.dumps(plan, indent=2), encoding="utf-8")


def _grpo_plan(settings: TrainSettings, *, task: TaskMeta, seed: int) -> GrpoPlan:
    return GrpoPlan(
        steps=settings.grpo_steps,
        prompts=settings.grpo_prompts,
        group=settings.grpo_group,
        lr=settings.grpo_lr,
        temperature=settings.grpo_temperature,
        micro_batch=settings.grpo_micro_batch,
        max_completion_length=task.max_tokens * task.max_steps,
        seed=seed,
    )
