"""The one place where plain classes become Ray actors.

Placement: a grader holds its GPUs for as long as it lives; recorder, pool and rollout workers hold
no CPU, since on a single machine the engine's and the agents' threads share the cores; a run actor
holds the CPUs and GPUs of its agent. Graders, pool, workers and recorder build all their state when
they are made, so Ray may start them again; a run actor is never restarted, it is a new attempt. On
a cluster with node types of its own (``cluster.place_by_kind``) each asks for its kind of node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import ray

from actors.grader import Grader
from actors.grader_pool import GraderPool
from actors.remote import Handle, RemoteGrader, RemotePlay
from actors.restart import is_first_start
from actors.rollout_worker import RolloutWorker, ShardedRollouts
from actors.run_actor import RunActor, RunFactory
from rl_bench.config import (
    ClusterConfig,
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
from rl_bench.plugins import plugins_of
from rl_bench.recorder import Recorder
from rl_bench.run import Run
from rl_bench.tasks.base import Task

CONCURRENCY = 100_000
"""Concurrent calls of an async actor: bounded by its callers."""
FOREVER = -1
HUNG = "hung_episodes"
"""Folder of the logs in which workers note episodes that hang."""
Options: TypeAlias = dict[str, float | str | dict[str, float]]
KINDS: Mapping[str, Mapping[str, float]] = {
    "grader": {"grader": 1},
    "worker": {"rollout": 1},
    "run": {"trainer": 1},
    "service": {"head": 0.001},
}
"""What each kind of actor asks for of a node type in `cluster.yaml`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderMaking:
    """What a grader is made with, beside its name."""

    config: GraderConfig
    cache: Path
    logs: Path
    cluster: ClusterConfig | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Handles of what grades checkpoints; actors live while it is held.

    ``graders`` are those of the start, by name; ``making`` is what further ones are made with.
    """

    pool: Handle
    graders: Mapping[str, Handle]
    workers: tuple[Handle, ...]
    making: GraderMaking


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(Grading):
    """Handles of what all runs of a sweep share."""

    recorder: Handle


def start_services(experiment: Experiment, paths: SweepPaths) -> Services:
    """Starts recorder, rollout workers, graders and their pool; returns before they are ready."""
    recorder = _actor(
        Recorder,
        {"num_cpus": 0, "max_restarts": FOREVER, **_place("service", experiment.cluster)},
        paths,
        config=experiment.sink,
        sweep=experiment.sweep.name,
        must_open=is_first_start,
    )
    grading = start_grading(
        experiment.grader,
        cache=experiment.paths.cache,
        logs=paths.logs,
        cluster=experiment.cluster,
    )
    return Services(
        recorder=recorder,
        pool=grading.pool,
        graders=grading.graders,
        workers=grading.workers,
        making=grading.making,
    )


def start_grading(
    config: GraderConfig, *, cache: Path, logs: Path, cluster: ClusterConfig | None = None
) -> Grading:
    """Starts rollout workers, graders and their pool; returns before they are ready."""
    hung_dir = logs / HUNG
    hung_dir.mkdir(parents=True, exist_ok=True)
    workers = tuple(
        _actor(
            RolloutWorker,
            {
                "name": name,
                "num_cpus": 0,
                "max_restarts": FOREVER,
                "max_concurrency": CONCURRENCY,
                **_place("worker", cluster),
            },
            name,
            env_step_timeout_s=config.env_step_timeout_s,
            hung_dir=hung_dir,
        )
        for name in _worker_names(config)
    )
    making = GraderMaking(config=config, cache=cache, logs=logs, cluster=cluster)
    names = tuple(f"grader-{i}" for i in range(config.num_graders))
    graders = {name: start_grader(name, making) for name in names}
    pool = _actor(
        GraderPool,
        {
            "num_cpus": 0,
            "max_restarts": FOREVER,
            "max_concurrency": CONCURRENCY,
            **_place("service", cluster),
        },
        names,
        connect=RemoteGrader,
        config=config,
    )
    return Grading(pool=pool, graders=graders, workers=workers, making=making)


def start_grader(name: str, making: GraderMaking) -> Handle:
    """A grader actor; it waits for its GPUs, and its engine starts with its first job."""
    config, logs = making.config, making.logs
    rollouts = ShardedRollouts(
        RemotePlay(_worker_names(config)),
        num_workers=config.num_rollout_workers,
        episodes_in_flight=config.episodes_in_flight,
        hung_dir=logs / HUNG,
    )
    return _actor(
        Grader,
        {
            "name": name,
            "num_cpus": 0,
            "num_gpus": config.gpus_per_grader,
            "max_restarts": FOREVER,
            "max_concurrency": CONCURRENCY,
            **_place("grader", making.cluster),
        },
        name,
        config,
        make_engine=partial(_make_engine, config, logs / name),
        make_task=partial(_make_task, making.cache),
        make_judge=partial(_make_judge, making.cache, logs / name),
        rollouts=rollouts,
    )


def _worker_names(config: GraderConfig) -> tuple[str, ...]:
    return tuple(f"rollout-{i}" for i in range(config.num_rollout_workers))


def start_run_actor(cluster: ClusterConfig, services: Services) -> Handle:
    """An actor for runs, one at a time; it waits for a run's CPUs and GPUs."""
    return _actor(
        RunActor,
        {
            "num_cpus": cluster.cpus_per_run,
            "num_gpus": cluster.gpus_per_run,
            "max_restarts": 0,
            **_place("run", cluster),
        },
        pool=services.pool,
        recorder=services.recorder,
    )


def run_factory(
    spec: RunSpec, *, run_id: str, experiment: Experiment, paths: SweepPaths, base_model: Path
) -> RunFactory:
    """What makes the run of ``spec`` in its actor."""
    return partial(
        Run,
        spec,
        run_id=run_id,
        sweep=experiment.sweep.name,
        paths=paths,
        cache=experiment.paths.cache,
        base_model=base_model,
        num_threads=experiment.cluster.threads_per_run,
        agents_dir=experiment.paths.agents,
        audit=experiment.audit,
        keep_models=experiment.sink.keep_models,
        plugins=plugins_of(spec, experiment.options),
    )


def _place(kind: str, cluster: ClusterConfig | None) -> Options:
    if cluster is None or not cluster.place_by_kind:
        return {}
    return {"resources": dict(KINDS[kind])}


def _actor(cls: type, options: Options, *args: object, **kwargs: object) -> Handle:
    handle: Handle = ray.remote(cls).options(**options).remote(*args, **kwargs)
    return handle


def _make_engine(config: GraderConfig, log_dir: Path, model: ModelConfig) -> Engine:
    if config.engine == "openai":
        from rl_bench.engine.openai_engine import OpenaiEngine  # imports an HTTP client

        return OpenaiEngine.from_config(config)
    from rl_bench.engine.vllm_engine import VllmEngine  # imports torch: only where it is used

    return VllmEngine.from_config(config, model, log_folder=log_dir)


def _make_task(cache: Path, config: TaskConfig) -> Task:
    from rl_bench.tasks.registry import make_task  # tasks may import heavy libraries

    return make_task(config, cache=cache)


def _make_judge(cache: Path, log_dir: Path, config: JudgeConfig) -> Judge:
    from rl_bench.judges.pool import JudgePool  # imports an HTTP client

    return JudgePool.from_config(config, cache=cache, log_folder=log_dir)
