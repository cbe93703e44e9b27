"""Whether an experiment's sandbox keeps agents from what is the experiment's own: for preflight."""

from pathlib import Path
from typing import NamedTuple

from rl_bench.agents.leak_probe import Targets
from rl_bench.config import Experiment
from rl_bench.errors import SandboxError
from rl_bench.sandbox.choose import make_sandbox
from rl_bench.sandbox.self_test import leaks, self_test

MAX_PROBED_SWEEPS = 50


class SandboxState(NamedTuple):
    """What was found on this machine, in words, and whether agents are confined."""

    is_confined: bool
    detail: str


def check_sandbox(experiment: Experiment) -> SandboxState:
    """Tries the sandbox out with an agent that looks for leaks.

    Raises:
        SandboxError: It does not work here, or something leaked.
        OSError: The results' folder cannot be written.
    """
    sandbox = make_sandbox(experiment.sandbox)
    if sandbox.kind == "none":
        said = "; ".join(text.partition(": ")[2] for text in sandbox.warnings())
        return SandboxState(False, f"no isolation: {said}; run only agents that you trust")
    results = experiment.paths.results
    folder = next(path for path in (results, *results.parents) if path.exists())
    tried = self_test(sandbox, targets_of(experiment), folder=folder)
    if found := leaks(tried):
        raise SandboxError(
            f"an agent in the sandbox could: {'; '.join(found)}",
            cure="Choose other folders for paths, or sandbox=none if you trust every agent",
        )
    detail = f"{sandbox.kind} {sandbox.version}, {len(tried)} attempts to break out were refused"
    return SandboxState(True, detail)


def targets_of(experiment: Experiment) -> Targets:
    """What no agent of it may have, as far as it is there already."""
    paths = experiment.paths
    tasks = experiment.options.tasks.values()
    data = [task.data_path for task in tasks if task.data_path is not None]
    sweeps = sorted(paths.results.glob("*"))[:MAX_PROBED_SWEEPS]
    keys = {driver.key_variable for driver in experiment.options.drivers.values()}
    keys |= {task.judge.key_variable for task in tasks if task.judge is not None}
    return Targets(
        paths=tuple(_present([paths.cache, paths.data, *data, *sweeps])),
        variables=tuple(sorted(keys - {""})),
    )


def _present(paths: list[Path]) -> list[str]:
    return [str(path) for path in dict.fromkeys(paths) if path.exists()]
