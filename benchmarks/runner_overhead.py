"""Seconds a run of an agent that does nothing: this runner against bare Ray and Hydra's launcher.

The ways take turns in one Ray, with the same CPUs and the same number of runs at once, each run in
a process of its own that nothing else used or will use:

    bare      an actor a run; it starts ``true``, writes a file with the run's end, and syncs it
    launcher  the same function as a job of Hydra's Ray launcher, one call a worker process
    reused    the launcher as it comes: worker processes are used again, runs share them
    whole     an actor a run that carries out `rl_bench.run.Run`, without queue, tables or display
    runner    the sweep loop: the same runs with retries, ledgers, tables and progress

``runner`` and ``whole`` also make the workspace, keep the base model's hash, serve the grading API,
supervise the agent, record its code, audit the run and keep a ledger that is synced at every entry.
Grading is off: a baseline of 0 comes at once. Ray's start, the services' and the first run of each
way are not counted.

    python -m benchmarks.runner_overhead [--runs 12] [--rounds 3] [--sandbox none]

The launcher is not among the requirements, since its own would replace packages of the lock:
``pip install --no-deps --target DIR hydra-ray-launcher``, and ``PYTHONPATH=DIR`` for the command.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest.mock import patch

from rich.console import Console

from actors.grader_roster import Demand
from actors.ray_runtime import ray_runtime
from rl_bench.compose import compose
from rl_bench.config import Experiment, RunSpec
from rl_bench.events import Evaluation
from rl_bench.grading import GradeJob
from rl_bench.models.base import resolve_model
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand, run_id
from rl_bench.progress import Progress
from rl_bench.run_table import planned
from rl_bench.run_view import RunView

if TYPE_CHECKING:
    import ray  # Ray reads its environment when it is imported: not before `ray_runtime`

Handle: TypeAlias = Any
LAUNCHER = "hydra_plugins.hydra_ray_launcher"


class NoGrading:
    """Answers every job with 0 at once, in the place of a grader pool without graders."""

    async def grade(self, job: GradeJob) -> tuple[Evaluation, ...]:
        """An evaluation a task, without items."""
        return tuple(
            Evaluation(task=task.name, score=0.0, num_items=0, num_errors=0, evaluator_version="0")
            for task in job.tasks
        )

    async def tend(self, graders: Sequence[str]) -> Demand:
        """Wants no other graders."""
        return Demand(wants_more=False, released=(), notes=())

    async def withdraw(self, run_id: str) -> None:
        """Nobody waits here."""


def do_nothing(folder: Path) -> int:
    """What a run of the no-op agent comes to: its process, and a file that tells its end."""
    end = subprocess.run(["true"], check=False).returncode
    folder.mkdir(parents=True)
    with (folder / "end.txt").open("w") as file:
        file.write(f"{end}\n")
        file.flush()
        os.fsync(file.fileno())
    return end


class Bare:
    """One run as a Ray actor, and nothing around it."""

    def execute(self, folder: Path) -> int:
        return do_nothing(folder)


class Whole:
    """A whole run as a Ray actor, without what a sweep has around it."""

    def execute(self, spec: RunSpec, experiment: Experiment, root: Path, base_model: Path) -> int:
        from rl_bench.run import Run

        run = Run(
            spec,
            run_id=run_id(spec),
            sweep=experiment.sweep.name,
            paths=SweepPaths(root),
            cache=experiment.paths.cache,
            base_model=base_model,
            num_threads=experiment.cluster.threads_per_run,
            agents_dir=experiment.paths.agents,
            audit=experiment.audit,
            keep_models=experiment.sink.keep_models,
            grade=NoGrading().grade,
        )
        return int(run.execute(attempt=0, is_last=True).is_infrastructure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all ways share; ``parallel`` runs go at once."""

    experiment: Experiment
    base_model: Path
    root: Path
    parallel: int


Way = Callable[[Scene, Sequence[RunSpec], Path], float]
"""Carries out the runs below a new folder; seconds."""


def with_actors(make: Callable[[Handle, RunSpec, Path], "ray.ObjectRef[Any]"], cls: type) -> Way:
    """A fresh actor a run, ``parallel`` at once; ``make`` starts the run's call on its actor."""

    def way(scene: Scene, specs: Sequence[RunSpec], root: Path) -> float:
        import ray

        remote: Handle = ray.remote(cls)
        waiting = list(specs)
        flying: dict[ray.ObjectRef[Any], Handle] = {}
        began = time.monotonic()
        while waiting or flying:
            while waiting and len(flying) < scene.parallel:
                actor = remote.options(num_cpus=1).remote()
                flying[make(actor, waiting.pop(0), root)] = actor
            ended, _ = ray.wait(list(flying))
            for reference in ended:
                if ray.get(reference) != 0:
                    raise RuntimeError("a run did not end well")
                ray.kill(flying.pop(reference))
        return time.monotonic() - began

    return way


def launcher(scene: Scene, specs: Sequence[RunSpec], root: Path, *, reuse: bool) -> float:
    """Hydra's multirun with its Ray launcher; the time is its own from ``main`` to the last job."""
    import hydra
    from omegaconf import DictConfig

    folders = {spec.seed: root / run_id(spec) for spec in specs}

    def job(config: DictConfig) -> int:
        return do_nothing(folders[config.seed])

    words = [
        "--multirun",
        "hydra/launcher=ray",
        f"hydra.sweep.dir={root}/multirun",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
        "+hydra.launcher.ray.remote.num_cpus=1",
        *(() if reuse else ("+hydra.launcher.ray.remote.max_calls=1",)),
        f"+seed={','.join(map(str, folders))}",
    ]
    began = time.monotonic()
    with patch.object(sys, "argv", ["runner_overhead", *words]):
        hydra.main(version_base="1.3", config_path=None)(job)()
    spent = time.monotonic() - began
    if any(not (folder / "end.txt").exists() for folder in folders.values()):
        raise RuntimeError("a job of the launcher did not end well")
    return spent


@contextmanager
def ungraded_sweep(
    experiment: Experiment,
    root: Path,
    *,
    specs: Sequence[RunSpec],
    base_model: Path,
    recorder: Handle,
    pool: Handle,
) -> Iterator[Callable[[], None]]:
    """The sweep loop over these actors in the place of a sweep's own, with a display nobody sees.

    Args:
        experiment: All of ``specs`` have its one model.
        root: The sweep's folder.
        specs: The runs.
        base_model: The model's folder.
        recorder: An actor, as is ``pool``.
        pool: There are no graders.

    Yields:
        What carries the runs out.
    """
    from actors import sweep_loop
    from actors.factory import GraderMaking, Services

    making = GraderMaking(
        config=experiment.grader, cache=root, logs=root, cluster=experiment.cluster
    )
    services = Services(recorder=recorder, pool=pool, graders={}, workers=(), making=making)
    named = {run_id(spec): spec for spec in specs}
    with (
        patch.object(sweep_loop, "start_services", lambda *_: services),
        Progress(planned(named), console=Console(file=io.StringIO())) as progress,
    ):
        loop = sweep_loop.SweepLoop(
            experiment,
            SweepPaths(root),
            base_models={specs[0].model.name: base_model},
            progress=progress,
        )
        yield lambda: loop.run(specs, {name: RunView(run_id=name) for name in named})


def runner(scene: Scene, specs: Sequence[RunSpec], root: Path) -> float:
    """The sweep loop from its first run to the closed tables."""
    import ray

    from rl_bench.recorder import Recorder

    experiment, paths = scene.experiment, SweepPaths(root)
    recorder: Handle = ray.remote(Recorder).options(num_cpus=0)
    recorder = recorder.remote(paths, config=experiment.sink, sweep=experiment.sweep.name)
    pool: Handle = ray.remote(NoGrading).options(num_cpus=0, max_concurrency=100).remote()
    ray.get([recorder.views.remote(), pool.__ray_ready__.remote()])
    with ungraded_sweep(
        experiment,
        root,
        specs=specs,
        base_model=scene.base_model,
        recorder=recorder,
        pool=pool,
    ) as carry_out:
        began = time.monotonic()
        carry_out()
        spent = time.monotonic() - began
    if any(not (paths.run(run_id(spec)).root / "ledger.jsonl").exists() for spec in specs):
        raise RuntimeError("a run of the sweep loop did not end well")
    for actor in (recorder, pool):
        ray.kill(actor)
    return spent


def ways(scene: Scene) -> dict[str, Way]:
    """The ways that can be had here, by name."""
    found: dict[str, Way] = {
        "bare": with_actors(
            lambda actor, spec, root: actor.execute.remote(root / run_id(spec)),
            Bare,
        ),
        "whole": with_actors(
            lambda actor, spec, root: actor.execute.remote(
                spec, scene.experiment, root, scene.base_model
            ),
            Whole,
        ),
        "runner": runner,
    }
    if find_spec("hydra_plugins") and find_spec(LAUNCHER):
        found["launcher"] = partial(launcher, reuse=False)
        found["reused"] = partial(launcher, reuse=True)
    else:
        sys.stderr.write("the launcher is left out: it is not installed, see the module's text\n")
    return found


def measure(scene: Scene, *, num_runs: int, num_rounds: int) -> dict[str, list[float]]:
    """Seconds a run of each way, one figure a round; the ways take turns."""
    chosen = ways(scene)
    spent: dict[str, list[float]] = {name: [] for name in chosen}
    for number in range(-1, num_rounds):
        for name, way in chosen.items():
            specs = expand(scene.experiment)[: num_runs if number >= 0 else scene.parallel]
            root = scene.root / f"{name}{number}"
            seconds = way(scene, specs, root)
            if number >= 0:
                spent[name].append(seconds / len(specs))
    return spent


def report(spent: Mapping[str, Sequence[float]]) -> str:
    """Medians, and each way's ratio to bare actors: the median of the rounds' own ratios."""
    lines = [f"{'way':<10}{'s a run':>9}{'to bare':>9}   rounds"]
    for name, seconds in spent.items():
        ratio = statistics.median(a / b for a, b in zip(seconds, spent["bare"], strict=True))
        rounds = " ".join(f"{one:.3f}" for one in seconds)
        lines.append(f"{name:<10}{statistics.median(seconds):>9.3f}{ratio:>9.2f}   {rounds}")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sandbox", default="none", choices=("none", "bwrap"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rl_bench-") as folder:
        experiment = compose(
            [
                *("agent=noop", "task=gsm8k_mini", "sink=no_wandb", "sweep.name=overhead"),
                f"sandbox={arguments.sandbox}",
                f"sweep.seeds={list(range(arguments.runs))}",
                f"cluster.num_cpus={arguments.parallel}",
                f"paths.results={folder}",
            ]
        ).experiment
        model = expand(experiment)[0].model
        scene = Scene(
            experiment=experiment,
            base_model=resolve_model(model, cache=experiment.paths.cache),
            root=Path(folder),
            parallel=arguments.parallel,
        )
        with ray_runtime(experiment.cluster):
            spent = measure(scene, num_runs=arguments.runs, num_rounds=arguments.rounds)
    sys.stdout.write(f"{report(spent)}\n")


if __name__ == "__main__":
    main()
