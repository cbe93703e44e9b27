"""The one place where plain classes become Ray actors.

Placement: a grader holds its GPUs for as long as it lives; recorder, pool and rollout workers hold
no CPU, since on a single machine the engine's and the agents' threads share the cores; a run actor
holds the CPUs and GPUs of its agent. Graders, pool, workers and recorder build all their state when
they are made, so Ray may start them again; a run actor is never restarted, it is a new attempt.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ray

from actors.grader import Grader
from actors.grader_pool import GraderPool
from actors.remote import Handle, RemoteGrade, RemotePlay
from actors.rollout_worker import RolloutWorker, ShardedRollouts
from actors.run_actor import RunActor
from rl_bench.config import (
    Experiment,
    GraderConfig,
    JudgeConfig,
    ModelConfig,
    RunSpec,
    TaskConfig,
)
from rl_bench.engine.base import Engine
from rl_bench.judges.base import Judge
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.run import Run
from rl_bench.tasks.base import Task

CONCURRENCY = 100_000
"""Concurrent calls of an async actor: bounded by its callers."""
FOREVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Handles of what grades checkpoints; actors live while it is held."""

    pool: Handle
    graders: tuple[Handle, ...]
    workers: tuple[Handle, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(Grading):
    """Handles of what all runs of a sweep share."""

    recorder: Handle


def start_services(experiment: Experiment, paths: SweepPaths) -> Services:
    """Starts recorder, rollout workers, graders and their pool; returns before they are ready."""
    recorder = _actor(
        Recorder,
        {"num_cpus": 0, "max_restarts": FOREVER},
        paths,
        config=experiment.sink,
        sweep=experiment.sweep.name,
    )
    cache = experiment.paths.cache
    grading = start_grading(experiment.grader, cache=cache, logs=paths.logs)
    return Services(
        recorder=recorder,
        pool=grading.pool,
        graders=grading.graders,
        workers=grading.workers,
    )


def start_grading(config: GraderConfig, *, cache: Path, logs: Path) -> Grading:
    """Starts rollout workers, graders and their pool; returns before they are ready."""
    hung_dir = logs / "hung_episodes"
    hung_dir.mkdir(parents=True, exist_ok=True)
    worker_names = tuple(f"rollout-{i}" for i in range(config.num_rollout_workers))
    workers = tuple(
        _actor(
            RolloutWorker,
            {
                "name": name,
                "num_cpus": 0,
                "max_restarts": FOREVER,
                "max_concurrency": CONCURRENCY,
            },
            name,
            env_step_timeout_s=config.env_step_timeout_s,
            hung_dir=hung_dir,
        )
        for name in worker_names
    )
    rollouts = ShardedRollouts(
        RemotePlay(worker_names),
        num_workers=len(worker_names),
        episodes_in_flight=config.episodes_in_flight,
        hung_dir=hung_dir,
    )
    grader_names = tuple(f"grader-{i}" for i in range(config.num_graders))
    graders = tuple(
        _actor(
            Grader,
            {
                "name": name,
                "num_cpus": 0,
                "num_gpus": config.gpus_per_grader,
                "max_restarts": FOREVER,
                "max_concurrency": CONCURRENCY,
            },
            name,
            config,
            make_engine=partial(_make_engine, config, logs / name),
            make_task=partial(_make_task, cache),
            make_judge=partial(_make_judge, cache, logs / name),
            rollouts=rollouts,
        )
        for name in grader_names
    )
    pool = _actor(
        GraderPool,
        {"num_cpus": 0, "max_restarts": FOREVER, "max_concurrency": CONCURRENCY},
        [RemoteGrade(name) for name in grader_names],
        num_retries=config.num_retries,
    )
    return Grading(pool=pool, graders=graders, workers=workers)


def start_run(
    spec: RunSpec,
    *,
    run_id: str,
    experiment: Experiment,
    paths: SweepPaths,
    base_model: Path,
    services: Services,
) -> Handle:
    """An actor for one attempt at ``spec``; it waits for its CPUs and GPUs."""
    cluster = experiment.cluster
    return _actor(
        RunActor,
        {
            "num_cpus": cluster.cpus_per_run,
            "num_gpus": cluster.gpus_per_run,
            "max_restarts": 0,
        },
        run_id,
        make_run=partial(
            Run,
            spec,
            run_id=run_id,
            sweep=experiment.sweep.name,
            paths=paths,
            cache=experiment.paths.cache,
            base_model=base_model,
            num_threads=cluster.threads_per_run,
        ),
        pool=services.pool,
        recorder=services.recorder,
    )


def _actor(cls: type, options: dict[str, float | str], *args: object, **kwargs: object) -> Handle:
    handle: Handle = ray.remote(cls).options(**options).remote(*args, **kwargs)
    return handle


def _make_engine(config: GraderConfig, log_dir: Path, model: ModelConfig) -> Engine:
    from rl_bench.engine.vllm_engine import VllmEngine  # imports torch: only where it is used

    return VllmEngine.from_config(config, model, log_folder=log_dir)


def _make_task(cache: Path, config: TaskConfig) -> Task:
    from rl_bench.tasks.registry import make_task  # tasks may import heavy libraries

    return make_task(config, cache=cache)


def _make_judge(cache: Path, log_dir: Path, config: JudgeConfig) -> Judge:
    from rl_bench.judges.pool import JudgePool  # imports an HTTP client

    return JudgePool.from_config(config, cache=cache, log_folder=log_dir)
