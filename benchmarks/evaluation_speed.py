"""From submission to score: the runner's way, the published way, and the engine's own ceiling.

One task at a time, all ways on the same checkpoint, items and engine settings, one after the other:

    warm      snapshot, hash and weights into the warm grader, then the task as a sweep grades it;
              another checkpoint was graded on it before, as a run's baseline is
    published a fresh engine, then one episode at a time with batch size one; for ALFWorld in the
              stock environment. Timed on the first ``--slow-items`` and scaled, the start counted
              once
    ceiling   the very same prompts and token limits in one offline ``generate`` of vLLM, warm

The prompts of the ceiling are recorded while the task is played once more, untimed; as many tokens
as in the timed evaluation must come out, or the comparison is refused.

    RL_BENCH_DATA=… python -m benchmarks.evaluation_speed alfworld --slow-items 30
    RL_BENCH_DATA=… python -m benchmarks.evaluation_speed webshop --slow-items 30
    RL_BENCH_DATA=… python -m benchmarks.evaluation_speed gsm8k --slow-items 0
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium

from actors.ray_runtime import ray_runtime
from benchmarks.checkpoints import nudged
from envs.protocols import get_protocol
from rl_bench.checkpoint import content_hash
from rl_bench.compose import compose
from rl_bench.config import Experiment, ModelConfig, TaskConfig
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest
from rl_bench.engine.vllm_engine import VllmEngine
from rl_bench.engine.vllm_setup import VllmOptions, engine_arguments, prepare_environment
from rl_bench.errors import GraderError
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.grading_status import Tally
from rl_bench.judges.base import Judge
from rl_bench.models.base import resolve_model
from rl_bench.paths import SweepPaths
from rl_bench.rollout import Policy, RolloutSpec, play_episode
from rl_bench.submission import SubmissionStore
from rl_bench.tasks.base import Episode, ItemOutcome, Task
from rl_bench.tasks.registry import make_task

TASKS = {
    # The tiny model's context does not hold the published few-shot prompt: both ways chat.
    "alfworld": ("task.protocol=chat", "task.max_tokens=16"),
    "webshop": (),
    # Nor does it hold four worked examples.
    "gsm8k": ("task.num_eval=400", "task.settings.shots=[]"),
}
WITHOUT_CEILING = {"webshop"}
"""Their stop strings are looked for outside the engine, so a bare ``generate`` does other work."""
RECORDED_AT_A_TIME = 32
RAY_NICENESS = 15
"""Of Ray's workers: what else runs on the machine takes as much from the ceiling as from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all ways share."""

    experiment: Experiment
    task: TaskConfig
    model: ModelConfig
    scratch: Path

    def make_task(self) -> Task:
        return make_task(self.task, cache=self.experiment.paths.cache)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--model", default="tiny", help="an option of the group model")
    parser.add_argument("--slow-items", type=int, default=30, help="0: leave the published way out")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, e.g. task.num_eval=20")
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        scene = _scene(arguments.task, arguments.model, arguments.overrides, Path(scratch))
        base = resolve_model(scene.model, cache=scene.experiment.paths.cache)
        checkpoint = scene.scratch / "workspace" / "output" / "model"
        shutil.copytree(base, checkpoint)
        evaluation, warm_s = warm(scene, checkpoint)
        report: dict[str, object] = {
            "task": scene.task.name,
            "model": scene.model.name,
            "items": evaluation.num_items,
            "score": evaluation.score,
            "errors": evaluation.num_errors,
            "warm": {
                "total_s": round(warm_s, 2),
                "load_s": round(evaluation.load_s, 2),
                "evaluation_s": round(evaluation.duration_s, 2),
            },
        }
        if arguments.task not in WITHOUT_CEILING:
            report["ceiling"] = asyncio.run(ceiling(scene, checkpoint, evaluation))
        if arguments.slow_items:
            report["published"] = asyncio.run(
                published(scene, checkpoint, evaluation, num=arguments.slow_items, warm_s=warm_s)
            )
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


def _scene(name: str, model: str, overrides: Sequence[str], scratch: Path) -> Scene:
    words = ["agent=noop", f"task={name}", f"model={model}", *TASKS[name], *overrides]
    experiment = compose(words).experiment
    return Scene(
        experiment=experiment,
        task=experiment.options.tasks[name],
        model=experiment.options.models[model],
        scratch=scratch,
    )


# --- the runner's way


def warm(scene: Scene, checkpoint: Path) -> tuple[Evaluation, float]:
    """The task's evaluation by a grader that holds another checkpoint, and its seconds."""
    paths = SweepPaths(scene.scratch / "sweep")
    model = resolve_model(scene.model, cache=scene.experiment.paths.cache)
    base = nudged(model, scene.scratch / "base", by=0.01)
    store = SubmissionStore(paths.snapshots, workspace=scene.scratch / "workspace", base_model=base)
    with ray_runtime(scene.experiment.cluster):
        import ray

        from actors.factory import start_grading

        grading = start_grading(
            scene.experiment.grader, cache=scene.experiment.paths.cache, logs=paths.logs
        )
        pool = grading.pool
        # A run's baseline comes first: processes have started, games are translated on disk.
        ray.get(pool.grade.remote(_job(scene, base, content_hash(base), scene.task)))
        started = time.monotonic()
        snapshot = store.take("output/model")
        job = _job(scene, snapshot.folder, snapshot.content_hash, scene.task)
        [evaluation] = ray.get(pool.grade.remote(job))
        return evaluation, time.monotonic() - started


def _job(scene: Scene, folder: Path, digest: str, task: TaskConfig) -> GradeJob:
    return GradeJob(
        run_id="benchmark",
        submission_id=1,
        snapshot=folder,
        content_hash=digest,
        tasks=(task,),
        model=scene.model,
    )


# --- the same prompts


@dataclass(slots=True)
class Recorder:
    """An `EvalContext` that plays on an engine of its own, untimed, and keeps what was asked."""

    scene: Scene
    engine: VllmEngine
    asked: list[GenerationRequest]
    repeat: int = 0
    tally: Tally = field(default_factory=lambda: Tally("benchmark", task=""))

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.asked.extend(requests)
        return await self.engine.generate(requests)

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        spec = RolloutSpec.of(self.scene.task, protocol=protocol)
        tapes = [Tape(self.engine, []) for _ in episodes]
        outcomes = []
        for begin in range(0, len(episodes), RECORDED_AT_A_TIME):
            part = slice(begin, begin + RECORDED_AT_A_TIME)
            games = zip(episodes[part], tapes[part], strict=True)
            outcomes += await asyncio.gather(
                *(_play(episode, policy=tape, spec=spec) for episode, tape in games)
            )
        # All first steps, then all second ones, …: each prompt finds the one before it in the
        # engine's prefix cache. Episode after episode would deny the ceiling its cache.
        by_step = zip_longest(*(tape.asked for tape in tapes))
        self.asked.extend(request for step in by_step for request in step if request)
        return outcomes

    def judge(self, config: object) -> Judge:
        raise NotImplementedError("judged tasks are not measured here")


@dataclass(slots=True)
class Tape:
    """A policy that keeps what an episode asked, in order."""

    engine: VllmEngine
    asked: list[GenerationRequest]

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.asked.extend(requests)
        return await self.engine.generate(requests)


def _said(text: str) -> Completion:
    return Completion(text=text, num_prompt_tokens=1, num_tokens=1, finish_reason=FinishReason.STOP)


async def _play(episode: Episode, *, policy: Policy, spec: RolloutSpec) -> ItemOutcome:
    arguments: dict[str, Any] = dict(episode.env_kwargs)
    env = gymnasium.make(episode.env_id, disable_env_checker=True, **arguments).unwrapped
    try:
        return await play_episode(
            env, episode, policy=policy, protocol=get_protocol(spec.protocol), spec=spec
        )
    finally:
        env.close()


async def ceiling(scene: Scene, checkpoint: Path, evaluation: Evaluation) -> dict[str, object]:
    """Seconds of one offline ``generate`` over every prompt of the evaluation."""
    recorder = Recorder(scene, VllmEngine.from_config(scene.experiment.grader, scene.model), [])
    try:
        await recorder.engine.load(checkpoint, content_hash=content_hash(checkpoint))
        await scene.make_task().evaluate(recorder)
    finally:
        await recorder.engine.close()
    options = VllmOptions.of(scene.experiment.grader, scene.model)
    # A process of its own, as the grader's engine has: this one's torch has its threads already.
    prepare_environment(options)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        done = process.submit(_offline, checkpoint, recorder.asked, options, evaluation)
        return await asyncio.wrap_future(done)


def _offline(
    checkpoint: Path,
    asked: Sequence[GenerationRequest],
    options: VllmOptions,
    evaluation: Evaluation,
) -> dict[str, object]:
    from vllm import LLM, EngineArgs, SamplingParams
    from vllm.inputs import TokensPrompt

    from rl_bench.engine.prompts import CheckpointTokenizer

    os.nice(RAY_NICENESS)
    tokenizer = CheckpointTokenizer(checkpoint)
    prompts = tokenizer.encode(asked)
    arguments = engine_arguments(checkpoint, options)
    llm = LLM(**{field.name: getattr(arguments, field.name) for field in fields(EngineArgs)})
    params = [
        SamplingParams(
            max_tokens=min(request.sampling.max_tokens, options.max_model_len - len(prompt)),
            temperature=0.0,
            stop_token_ids=sorted(tokenizer.stop_ids),
            detokenize=False,
        )
        for request, prompt in zip(asked, prompts, strict=True)
    ]
    tokens = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
    passes = []
    for _ in range(2):  # the better one: the first also pays for whatever the engine does once
        llm.reset_prefix_cache()
        started = time.monotonic()
        outputs = llm.generate(tokens, params, use_tqdm=False)
        passes.append(time.monotonic() - started)
    seconds = min(passes)
    num_tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    recorded = sum(item.num_tokens for item in evaluation.items)
    if abs(num_tokens - recorded) > 0.01 * recorded:
        raise GraderError(f"the ceiling generated {num_tokens} tokens, the evaluation {recorded}")
    return {
        "prompts": len(prompts),
        "tokens": num_tokens,
        "tokens_recorded": recorded,
        "generate_s": round(seconds, 2),
        "both_passes_s": [round(each, 2) for each in passes],
        "warm_evaluation_reaches_percent": round(100 * seconds / evaluation.duration_s, 1),
    }


# --- the published way


async def published(
    scene: Scene, checkpoint: Path, evaluation: Evaluation, *, num: int, warm_s: float
) -> dict[str, float]:
    """Seconds of a cold engine and one item at a time, scaled from ``num`` items to all."""
    engine = VllmEngine.from_config(scene.experiment.grader, scene.model)
    started = time.monotonic()
    try:
        await engine.load(checkpoint, content_hash=content_hash(checkpoint))
        start_s = time.monotonic() - started
        started = time.monotonic()
        await scene.make_task().evaluate(Sequential(scene, engine, num))
        items_s = time.monotonic() - started
    finally:
        await engine.close()
    total_s = start_s + items_s * evaluation.num_items / num
    return {
        "items_timed": num,
        "start_s": round(start_s, 2),
        "items_s": round(items_s, 2),
        "total_s_scaled": round(total_s, 1),
        "warm_is_faster": round(total_s / warm_s, 1),
    }


@dataclass(slots=True)
class Sequential:
    """An `EvalContext` as the published code has it: item after item, the first ``num``."""

    scene: Scene
    engine: VllmEngine
    num: int
    repeat: int = 0
    tally: Tally = field(default_factory=lambda: Tally("benchmark", task=""))

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        done = [(await self.engine.generate([request]))[0] for request in requests[: self.num]]
        return done + [_said("") for _ in requests[self.num :]]

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        spec = RolloutSpec.of(self.scene.task, protocol=protocol)
        outcomes = []
        for episode in episodes[: self.num]:
            if self.scene.task.kind == "alfworld":
                stock = {"max_steps": self.scene.task.max_steps, "engine": "stock"}
                episode = replace(episode, env_kwargs=stock)
            outcomes.append(await _play(episode, policy=self.engine, spec=spec))
        rest = [replace(outcomes[0], item_id=e.episode_id) for e in episodes[self.num :]]
        return outcomes + rest

    def judge(self, config: object) -> Judge:
        raise NotImplementedError("judged tasks are not measured here")


if __name__ == "__main__":
    main()
