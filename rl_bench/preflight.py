"""Whether this machine has what a plan needs, found out in a second or two, before anything starts.

Every check has a name, a verdict and a cure. Values of keys are never shown. What only the cluster
can know (the GPUs of other machines) is a warning, not a guess.
"""

import json
import os
import shlex
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from rl_bench.config import (
    AgentConfig,
    DataSource,
    Experiment,
    RunSpec,
    TaskConfig,
)
from rl_bench.errors import MissingDataError, PreflightError, RlBenchError
from rl_bench.judges.check import check_judge
from rl_bench.models.base import check_model
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.sweep_claim import check_not_running, check_sweep_config
from rl_bench.tasks.registry import make_task

T = TypeVar("T")
GIB = 1024**3
CONNECT_TIMEOUT_S = 1.0
MAX_COUNTED_RUNS = 200
"""Ledgers that are looked into for how many runs have finished."""
LEDGER_TAIL_BYTES = 64 * 1024
INTERPRETERS = ("bash", "sh", "dash", "zsh", "python", "{python}")
PROVIDES_DRIVERS = find_spec("rl_bench.gateway") is not None
"""Agents reach their driver through the project's gateway only, so that no key enters a run."""


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: ``detail`` says what was found, ``cure`` what to do about it."""

    name: str
    verdict: Verdict
    detail: str
    cure: str = ""


def preflight(experiment: Experiment, *, plan: Sequence[RunSpec], paths: SweepPaths) -> list[Check]:
    """Checks data, models, agents, drivers, disk, resources, sinks and the sweep's name.

    Ports need no check: whatever listens here takes one that is free.
    """
    return [
        *grading_checks(experiment, plan=plan),
        *(_agent_check(agent) for agent in _unique(spec.agent for spec in plan)),
        *_driver_checks(plan),
        _sink_check(experiment),
        _sandbox_check(experiment),
        _name_check(experiment, plan=plan, paths=paths),
    ]


def grading_checks(experiment: Experiment, *, plan: Sequence[RunSpec]) -> list[Check]:
    """Checks what grading alone needs: data, models, disk, resources."""
    return [
        *_task_checks(plan, cache=experiment.paths.cache),
        *_model_checks(plan, cache=experiment.paths.cache),
        *_judge_checks(plan),
        *_disk_checks(
            {"results": experiment.paths.results, "cache": experiment.paths.cache},
            min_free_gib=experiment.paths.min_free_gib,
        ),
        *_resource_checks(experiment),
    ]


def require(checks: Sequence[Check]) -> None:
    """Refuses to start when a check failed.

    Raises:
        PreflightError: One line for each failed check, each with its cure.
    """
    failed = [check for check in checks if check.verdict is Verdict.FAILED]
    if failed:
        lines = [f"{c.name}: {c.detail}" + (f". {c.cure}" if c.cure else "") for c in failed]
        raise PreflightError("\n".join(lines))


def num_local_gpus(environ: Mapping[str, str] = os.environ) -> int:
    """The GPUs that this process may use, from the kernel's list; no driver library is loaded."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in {"", "-1"}])
    listed = Path("/proc/driver/nvidia/gpus")
    return len(list(listed.iterdir())) if listed.is_dir() else 0


def num_local_cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _unique(items: Iterator[T]) -> list[T]:
    """Distinct items in order; configs hold mappings, so they are compared, not hashed."""
    found: list[T] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _attempt(name: str, act: Callable[[], object], *, found: str) -> Check:
    try:
        act()
    except RlBenchError as error:
        detail = error.message.removeprefix(f"{name}: ")
        return Check(name=name, verdict=Verdict.FAILED, detail=detail, cure=error.cure)
    except OSError as error:  # an unreadable folder is the user's to mend, not a crash
        return Check(name=name, verdict=Verdict.FAILED, detail=str(error))
    return Check(name=name, verdict=Verdict.OK, detail=found)


def _task_checks(plan: Sequence[RunSpec], *, cache: Path) -> Iterator[Check]:
    for task in _unique(task for spec in plan for task in spec.tasks):
        where = str(task.data_path) if task.data_path else task.source.value
        yield _attempt(f"task {task.name}", partial(_check_data, task, cache), found=where)


def _with_data_cure(cure: str, task: TaskConfig) -> str:
    """Adds how data are had and where they are looked for.

    A task that a block names has a key of its own.
    """
    if task.source is not DataSource.PATH:
        return cure
    where = (
        f"{_prepare_command(task)} gets the data. They are looked for below RL_BENCH_DATA, or "
        f"where task.data_path= says (options.task.{task.name}.data_path= if a block names the "
        "task)"
    )
    # A task's own advice may name the same command, without the folder.
    own = "" if "rl_bench.prepare" in cure else cure
    return f"{own}. {where}" if own else where


def _prepare_command(task: TaskConfig) -> str:
    """The command that puts a task's data where it looks for them."""
    words = [f"task={task.name}"]
    if task.data_path is not None and task.data_path.name == task.kind:
        words.append(f"paths.data={task.data_path.parent}")
    return f"`python -m rl_bench.prepare {shlex.join(words)}`"


def _check_data(task: TaskConfig, cache: Path) -> None:
    try:
        make_task(task, cache=cache).check_data()
    except MissingDataError as error:
        cure = _with_data_cure(error.cure, task)
        raise MissingDataError(error.message, cure=cure) from error


def _model_checks(plan: Sequence[RunSpec], *, cache: Path) -> Iterator[Check]:
    for model in _unique(spec.model for spec in plan):
        where = str(model.path or model.hub_id or model.kind)
        yield _attempt(f"model {model.name}", partial(check_model, model, cache=cache), found=where)


def _judge_checks(plan: Sequence[RunSpec]) -> Iterator[Check]:
    for judge in _unique(task.judge for spec in plan for task in spec.tasks if task.judge):
        where = judge.base_url or str(judge.path)
        yield _attempt(f"judge {judge.name}", partial(check_judge, judge), found=where)


def _agent_check(agent: AgentConfig) -> Check:
    command = agent.binary or agent.argv[0]
    name = f"agent {agent.name}"
    script = _script(agent.argv)
    if script is not None and not script.exists():
        return Check(
            name=name,
            verdict=Verdict.FAILED,
            detail=f"{script} does not exist",
            cure="Correct agent.argv",
        )
    if command.startswith(("{python}", "{workspace}")):
        return Check(name=name, verdict=Verdict.OK, detail="part of rl_bench")
    found = shutil.which(command)
    if found is None:
        version = f" (version {agent.version})" if agent.version else ""
        return Check(
            name=name,
            verdict=Verdict.FAILED,
            detail=f"'{command}' is not on PATH",
            cure=f"Install {agent.name}{version}, or add its folder to PATH",
        )
    return Check(name=name, verdict=Verdict.OK, detail=found)


def _script(argv: Sequence[str]) -> Path | None:
    """The file that an interpreter is told to run, when it has an absolute path."""
    program, *words = argv
    if not Path(program).name.startswith(INTERPRETERS):
        return None
    for word in words:
        if word in {"-c", "-m"}:
            return None
        if not word.startswith("-"):
            return Path(word) if word.startswith("/") else None
    return None


def _driver_checks(plan: Sequence[RunSpec]) -> Iterator[Check]:
    drivers = _unique(spec.driver for spec in plan if spec.driver.api is not None)
    if drivers and not PROVIDES_DRIVERS:
        yield Check(
            name="drivers",
            verdict=Verdict.FAILED,
            detail="this version cannot connect an agent to a language model yet",
            cure="Use an agent without a driver: reference, command, noop, copy_base",
        )
    for variable in _unique(driver.key_variable for driver in drivers):
        present = bool(os.environ.get(variable))
        yield Check(
            name=f"key {variable}",
            verdict=Verdict.OK if present else Verdict.FAILED,
            detail="set" if present else "not set in the environment",
            cure="" if present else f"Export {variable}",
        )


def _disk_checks(folders: Mapping[str, Path], *, min_free_gib: float) -> Iterator[Check]:
    for key, folder in folders.items():
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not _is_writable(there):
            yield Check(
                name=f"folder {key}",
                verdict=Verdict.FAILED,
                detail=f"{folder} cannot be used: {there} is not a writable folder",
                cure=f"Choose another with paths.{key}= or RL_BENCH_{key.upper()}",
            )
            continue
        free_gib = shutil.disk_usage(there).free / GIB
        enough = free_gib >= min_free_gib
        yield Check(
            name=f"folder {key}",
            verdict=Verdict.OK if enough else Verdict.FAILED,
            detail=f"{folder}, {free_gib:.1f} GiB free"
            + ("" if enough else f", {min_free_gib:g} GiB wanted"),
            cure=""
            if enough
            else f"Free some space, choose another folder with paths.{key}=, "
            "or lower paths.min_free_gib",
        )


def _is_writable(folder: Path) -> bool:
    """Whether a file can be made there; permissions alone do not tell, least of all to root."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _resource_checks(experiment: Experiment) -> Iterator[Check]:
    cluster, grader = experiment.cluster, experiment.grader
    wanted_gpus = grader.num_graders * grader.gpus_per_grader + cluster.gpus_per_run
    wanted = f"{wanted_gpus:g} for the graders and one run"
    if cluster.address is not None:
        yield Check(
            name="GPUs",
            verdict=Verdict.WARNING,
            detail=f"{wanted}; what the cluster has is known when it is joined",
        )
        yield _address_check(cluster.address)
        return
    have = num_local_gpus() if cluster.num_gpus is None else cluster.num_gpus
    yield Check(
        name="GPUs",
        verdict=Verdict.OK if have >= wanted_gpus else Verdict.FAILED,
        detail=f"{have} here, {wanted}",
        cure=""
        if have >= wanted_gpus
        else "Lower grader.num_graders or cluster.gpus_per_run, "
        "choose grader=cpu, or join a cluster with cluster=ray",
    )
    cpus = cluster.num_cpus or num_local_cpus()
    enough = cpus >= cluster.cpus_per_run
    yield Check(
        name="CPUs",
        verdict=Verdict.OK if enough else Verdict.FAILED,
        detail=f"{cpus} here, {cluster.cpus_per_run:g} for each run",
        cure="" if enough else "Lower cluster.cpus_per_run",
    )


def _address_check(address: str) -> Check:
    name, cure = "Ray cluster", "Start one with `ray start --head`, or set cluster.address="
    if address == "auto":
        known = os.environ.get("RAY_ADDRESS") or Path("/tmp/ray/ray_current_cluster").exists()  # noqa: S108  Ray's own place
        detail = "RAY_ADDRESS or a head on this machine" if known else "no running cluster is known"
        verdict = Verdict.OK if known else Verdict.FAILED
        return Check(name=name, verdict=verdict, detail=detail, cure="" if known else cure)
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        return Check(name=name, verdict=Verdict.FAILED, detail=f"{address}: {error}", cure=cure)
    return Check(name=name, verdict=Verdict.OK, detail=address)


def _sink_check(experiment: Experiment) -> Check:
    mode = experiment.sink.wandb.mode
    if mode != "disabled" and find_spec("wandb") is None:
        return Check(
            name="sink wandb",
            verdict=Verdict.FAILED,
            detail="the package wandb is not installed",
            cure="Install it, or set sink.wandb.mode=disabled",
        )
    if mode == "online" and not (os.environ.get("WANDB_API_KEY") or _netrc_knows_wandb()):
        return Check(
            name="sink wandb",
            verdict=Verdict.FAILED,
            detail="mode online without a key",
            cure="Export WANDB_API_KEY or run `wandb login`, or set sink.wandb.mode=offline",
        )
    return Check(name="sink wandb", verdict=Verdict.OK, detail=mode)


def _netrc_knows_wandb() -> bool:
    netrc = Path.home() / ".netrc"
    return netrc.is_file() and "wandb" in netrc.read_text(errors="replace")


def _sandbox_check(experiment: Experiment) -> Check:
    return Check(
        name=f"sandbox {experiment.sandbox.name}",
        verdict=Verdict.WARNING,
        detail="no isolation: agents see your files, your network and each other; run only agents "
        "that you trust",
    )


def _name_check(experiment: Experiment, *, plan: Sequence[RunSpec], paths: SweepPaths) -> Check:
    def check() -> None:
        check_not_running(paths, experiment=experiment)
        check_sweep_config(paths, experiment, plan, write=False)

    state = _progress(plan, paths=paths) if paths.config.exists() else "new"
    return _attempt(f"sweep {experiment.sweep.name}", check, found=f"{state}, {paths.root}")


def _progress(plan: Sequence[RunSpec], *, paths: SweepPaths) -> str:
    if len(plan) > MAX_COUNTED_RUNS:
        return "resumes"
    num = sum(_has_finished(paths.run(run_id(spec)).ledger) for spec in plan)
    text = f"{num} of {len(plan)} runs finished"
    return text if num == len(plan) else f"resumes, {text}"


def _has_finished(ledger: Path) -> bool:
    """Whether its last event ends the run for good; only the end of the file is read."""
    try:
        with ledger.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - LEDGER_TAIL_BYTES))
            event = json.loads(stream.read().splitlines()[-1])["event"]
            return bool(event["type"] == "run_finished" and event["final"])
    except (OSError, ValueError, LookupError, TypeError):
        return False  # never started, or damaged, which the start itself tells
