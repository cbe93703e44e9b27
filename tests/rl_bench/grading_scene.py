"""A run's agent side without an engine: small checkpoints, a real ledger, a scripted grader."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import httpx
import numpy as np
from safetensors.numpy import load_file, save_file

from rl_bench.clock import RunClock
from rl_bench.config import (
    AgentConfig,
    BudgetConfig,
    RunSpec,
    TaskConfig,
)
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.grading_api import GradingServer
from rl_bench.grading_desk import GradingDesk
from rl_bench.ledger import Ledger, read_ledger
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.noise import repeatability_limit
from rl_bench.paths import RunPaths
from rl_bench.submission import SubmissionStore
from rl_bench.tasks.base import EvalContext, EvalResult, Task
from rl_bench.workspace import Workspace
from tests.run_specs import make_task_config, run_spec

E = TypeVar("E")
VOCABULARY = {"a": 0, "b": 1, "c": 2, "d": 3}


def write_checkpoint(folder: Path, *, value: float = 0.0) -> Path:
    """A whole checkpoint of two tensors; ``value`` is what its weights hold."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 4,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        "model.embed_tokens.weight": np.full((4, 2), value, dtype=np.float32),
        "model.norm.weight": np.ones(2, dtype=np.float32),
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": VOCABULARY}}))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def value_of(folder: Path) -> float:
    """What `write_checkpoint` was given."""
    tensors = load_file(folder / "model.safetensors")
    return float(tensors["model.embed_tokens.weight"][0, 0])


def make_spec(
    *tasks: str,
    budget: BudgetConfig | None = None,
    agent: AgentConfig | None = None,
    num_repeats: int = 1,
) -> RunSpec:
    """A run on ``tasks``, mode multi for several of them."""
    return run_spec(
        *(make_task_config(name, num_repeats=num_repeats) for name in tasks or ("alfworld",)),
        rules="Do as you like.",
        agent=agent or AgentConfig(name="test", argv=("true",), settings={"steps": 3}),
        budget=budget,
    )


class WordTask:
    """A task with one line of train data."""

    evaluator_version = "1"

    def __init__(self, name: str) -> None:
        self.name = name

    def description(self) -> str:
        return f"Answer as {self.name} wants it."

    def write_train_data(self, folder: Path) -> None:
        (folder / "train.jsonl").write_text(f'{{"task": "{self.name}"}}\n')

    def evaluation_texts(self) -> Iterator[tuple[str, str]]:
        yield "item0", f"What would {self.name} say if it were asked in ten words or more?"

    def check_data(self) -> None:
        """Nothing is needed."""

    async def evaluate(self, context: EvalContext) -> EvalResult:
        raise NotImplementedError


class ScriptedGrade:
    """Scores a checkpoint with the value in its weights; waits and fails as told.

    Attributes:
        jobs: What it was asked.
        errors: Raised one after the other, before anything is scored.
        broken: These tasks have no score.
        spread: A base model that is graded more than once scores up to this much more, each time.
        reused: Verdicts were reached for another run, and waited for.
        gate: Grading waits while it is cleared.
    """

    def __init__(self) -> None:
        self.jobs: list[GradeJob] = []
        self.errors: list[Exception] = []
        self.broken: set[str] = set()
        self.queue_s = 0.0
        self.reused = False
        self.spread = 0.0
        self.gate = threading.Event()
        self.gate.set()

    async def __call__(self, job: GradeJob) -> tuple[Evaluation, ...]:
        self.jobs.append(job)
        await asyncio.to_thread(self.gate.wait, 20)
        if self.errors:
            raise self.errors.pop(0)
        return tuple(self._verdict(job, task) for task in job.tasks)

    def _verdict(self, job: GradeJob, task: TaskConfig) -> Evaluation:
        num = task.num_repeats if job.submission_id is None else 1
        first = value_of(job.snapshot)
        scores = [first + self.spread * n for n in range(num)]
        return Evaluation(
            task=task.name,
            score=None if task.name in self.broken else fmean(scores),
            failure="2 of 3 items could not be evaluated" if task.name in self.broken else "",
            num_items=3,
            num_errors=0,
            evaluator_version="1",
            repeat_scores=tuple(scores) if num > 1 else (),
            noise_floor=repeatability_limit(scores),
            queue_s=self.queue_s,
            reused=self.reused,
        )


class Scene:
    """Everything that one run has for its agent, under ``root``."""

    def __init__(self, root: Path, spec: RunSpec, *, base_value: float = 5.0) -> None:
        self.spec = spec
        self.paths = RunPaths(root / "runs" / "r")
        self.base = root / "base"
        if not self.base.exists():
            write_checkpoint(self.base, value=base_value)
        tasks: list[Task] = [WordTask(task.name) for task in spec.tasks]
        self.workspace = Workspace.create(self.paths, spec, tasks=tasks, base_model=self.base)
        self.clock = RunClock(spec.budget)
        self.grade = ScriptedGrade()
        self.ledger = Ledger(self.paths.ledger)
        self.store = SubmissionStore(
            root / "snapshots", workspace=self.workspace.root, base_model=self.base
        )
        history = CodeHistory(self.workspace.code, history=self.paths.code_history)
        self.desk = GradingDesk(
            spec,
            run_id="r",
            store=self.store,
            ledger=self.ledger,
            clock=self.clock,
            grade=self.grade,
            code_revision=lambda: history.record("submission").id,
            on_scores=self.workspace.refresh,
        )
        self.server = GradingServer(self.desk)

    @contextmanager
    def serving(self, *, baseline: bool = True) -> Iterator["Scene"]:
        """The server up, the baseline graded, the clock running."""
        try:
            with self.server:
                if baseline:
                    self.server.run(self.desk.grade_baseline())
                    self.grade.jobs.clear()
                self.workspace.start_clock(self.clock)
                yield self
        finally:
            self.close()

    def close(self) -> None:
        """Frees port and ledger."""
        self.server.close()
        self.ledger.close()

    def checkpoint(self, name: str, *, value: float) -> str:
        """Writes a checkpoint into the agent's output; the path to submit."""
        write_checkpoint(self.workspace.output / name, value=value)
        return f"output/{name}"

    def events(self, *types: type[E]) -> list[E]:
        """What the ledger holds, of these types."""
        entries = read_ledger(self.paths.ledger)
        return [entry.event for entry in entries if isinstance(entry.event, types)]


def submit(scene: Scene, model_path: str, **fields: object) -> httpx.Response:
    """What the API answers to a submission."""
    body = {"model_path": model_path, **fields}
    return httpx.post(f"{scene.server.url}/submit", json=body, timeout=120)


def get(scene: Scene, path: str) -> httpx.Response:
    """What the API answers to a question."""
    return httpx.get(f"{scene.server.url}/{path}", timeout=120)
