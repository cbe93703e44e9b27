"""Carries out a plan: what has not finished is run, and the end is shown.

`run_sweep` is what the entry point calls. The ledgers alone decide what has finished, so the same
call after a crash goes on where it stopped. The loop itself is in `actors.sweep_loop`, imported
once Ray's environment is set.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from actors.ray_runtime import ray_runtime
from rl_bench.config import Experiment, RunSpec
from rl_bench.counts import plural
from rl_bench.errors import LedgerError
from rl_bench.models.base import resolve_model
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.progress import Progress
from rl_bench.run_table import planned
from rl_bench.run_view import RunView
from rl_bench.summary import interpreter, show
from rl_bench.view_store import ViewStore
from rl_bench.waiting import told_while


def run_sweep(experiment: Experiment, plan: Sequence[RunSpec], paths: SweepPaths) -> int:
    """Runs what ``plan`` lacks; prints progress and a summary.

    Returns:
        0 only if every planned run has finished without an infrastructure failure.

    Raises:
        PreflightError: A base model cannot be had.
        SinkError: A configured sink cannot open.
    """
    specs = {run_id(spec): spec for spec in plan}
    store = ViewStore(paths)
    views = {name: store.view(name) for name in specs}
    store.save()
    todo = [spec for name, spec in specs.items() if not views[name].is_finished]
    rows = planned(specs)
    with Progress(rows, known=views) as progress:
        if len(todo) < len(plan):
            progress.say(
                f"{len(plan) - len(todo)} of {plural(len(plan), 'run')} have finished before"
            )
        num_again = sum(views[run_id(spec)].num_attempts > 0 for spec in todo)
        if num_again:
            progress.say(f"{num_again} of {plural(len(plan), 'run')} begin a new attempt")
        if todo:
            models = base_models(todo, experiment.paths.cache, progress)
            with ray_runtime(experiment.cluster, say=progress.say):
                from actors.sweep_loop import SweepLoop

                loop = SweepLoop(experiment, paths, base_models=models, progress=progress)
                loop.run(todo, views)
            # The ledgers, not the recorder, say how it ended: it may have been killed just now.
            views |= ended_views(store, todo, progress)
        # The others have had their chance just now; the next command makes up for what they missed.
        complete_records(experiment, paths, views, only_tables=bool(todo), progress=progress)
    started = {name: view for name, view in views.items() if view.num_attempts}
    command = f"{interpreter()} {shlex.join(['-m', 'rl_bench.sweep', *sys.argv[1:]])}"
    return show(started, rows, paths=paths, sink=experiment.sink, command=command)


def ended_views(
    store: ViewStore, specs: Sequence[RunSpec], progress: Progress
) -> dict[str, RunView]:
    """Where runs stand now; one whose ledger was damaged meanwhile is told and left out."""
    views = {}
    for name in map(run_id, specs):
        try:
            views[name] = store.view(name)
        except LedgerError as error:
            progress.say(str(error))
            views[name] = RunView(run_id=name)
    store.save()
    return views


def complete_records(
    experiment: Experiment,
    paths: SweepPaths,
    views: Mapping[str, RunView],
    *,
    only_tables: bool,
    progress: Progress,
) -> None:
    """Brings sinks up to what the ledgers say, where one failed or a recorder was lost before."""
    from rl_bench.recorder import Recorder, make_sinks
    from rl_bench.sinks.parquet import ParquetSink

    config, sweep = experiment.sink, experiment.sweep.name
    tables = [ParquetSink(paths.tables)]
    sinks = tables if only_tables else make_sinks(paths, config=config, sweep=sweep)
    started = [view for view in views.values() if view.num_attempts]
    behind = [sink for sink in sinks if started and sink.is_behind(started)]
    if behind:
        names = " and ".join(sink.name for sink in behind)
        progress.say(f"{names}: recording what the ledgers have beyond it")
        Recorder(paths, config=config, sweep=sweep, sinks=behind, must_open=lambda: False).close()


def base_models(specs: Sequence[RunSpec], cache: Path, progress: Progress) -> dict[str, Path]:
    """The folder of each base model that ``specs`` need, by name; built or fetched when missing."""
    folders = {}
    for model in {spec.model.name: spec.model for spec in specs}.values():
        what = f"base model {model.name}: preparing"
        progress.say(what)
        with told_while(what, progress.say):
            folders[model.name] = resolve_model(model, cache=cache)
    return folders
