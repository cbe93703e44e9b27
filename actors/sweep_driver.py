"""Carries out a plan: what has not finished is run, and the end is shown.

`run_sweep` is what the entry point calls. The ledgers alone decide what has finished, so the same
call after a crash goes on where it stopped. The loop itself is in `actors.sweep_loop`, imported
once Ray's environment is set.
"""

from collections.abc import Sequence
from pathlib import Path

from actors.ray_runtime import ray_runtime
from rl_bench.config import Experiment, RunSpec
from rl_bench.ledger import read_ledger
from rl_bench.models.base import resolve_model
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.progress import Progress
from rl_bench.run_view import RunView
from rl_bench.summary import exit_code, print_summary


def run_sweep(experiment: Experiment, plan: Sequence[RunSpec], paths: SweepPaths) -> int:
    """Runs what ``plan`` lacks; prints progress and a summary.

    Returns:
        0 only if every planned run has finished without an infrastructure failure.

    Raises:
        PreflightError: A base model cannot be had.
        SinkError: A configured sink cannot open.
    """
    views = {run_id(spec): recorded_view(paths, run_id(spec)) for spec in plan}
    todo = [spec for spec in plan if not views[run_id(spec)].is_finished]
    with Progress(plan, experiment) as progress:
        progress.say(f"{len(plan) - len(todo)} of {len(plan)} runs have finished before")
        if todo:
            models = base_models(todo, experiment.paths.cache, progress)
            progress.say("starting Ray, the recorder and the graders")
            with ray_runtime(experiment.cluster):
                from actors.sweep_loop import SweepLoop

                loop = SweepLoop(experiment, paths, base_models=models, progress=progress)
                views |= loop.run(todo, views)
    print_summary(plan, views, paths)
    return exit_code(plan, views)


def recorded_view(paths: SweepPaths, name: str) -> RunView:
    """Where a run stands by its ledger; an empty view if it never started."""
    view = RunView(run_id=name)
    ledger = paths.run(name).ledger
    for entry in read_ledger(ledger) if ledger.exists() else ():
        view.fold(entry)
    return view


def base_models(specs: Sequence[RunSpec], cache: Path, progress: Progress) -> dict[str, Path]:
    """The folder of each base model that ``specs`` need, by name; built or fetched when missing."""
    folders = {}
    for model in {spec.model.name: spec.model for spec in specs}.values():
        progress.say(f"base model {model.name}: resolving")
        folders[model.name] = resolve_model(model, cache=cache)
    return folders
