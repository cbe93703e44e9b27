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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from rl_bench.agents.check import check_agent
from rl_bench.agents.launch import is_replay
from rl_bench.audit.references import check_references
from rl_bench.checks import Check as Check
from rl_bench.checks import Verdict as Verdict
from rl_bench.checks import attempt, check_all, failed, warning
from rl_bench.clone import open_regular
from rl_bench.config import (
    AuditConfig,
    BudgetConfig,
    DataSource,
    DriverConfig,
    EndpointConfig,
    Experiment,
    RunSpec,
    TaskConfig,
)
from rl_bench.counts import plural
from rl_bench.drivers.session import load_session
from rl_bench.errors import MissingDataError, PreflightError, RlBenchError, fault_of
from rl_bench.gateway.check import check_driver, doubtful_version
from rl_bench.gateway.reach import find_silent, is_loopback
from rl_bench.judges.check import check_judge
from rl_bench.lineage.git import check_git
from rl_bench.models.base import check_model
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.plugins import load_sink
from rl_bench.sandbox.check import SandboxState, check_sandbox
from rl_bench.sweep_claim import check_sweep_config
from rl_bench.sweep_lock import check_not_held
from rl_bench.tasks.registry import make_task

T = TypeVar("T")
GIB = 1024**3
CONNECT_TIMEOUT_S = 1.0
MAX_COUNTED_RUNS = 200
"""Ledgers that are looked into for how many runs have finished."""
LEDGER_TAIL_BYTES = 64 * 1024


def preflight(experiment: Experiment, *, plan: Sequence[RunSpec], paths: SweepPaths) -> list[Check]:
    """Checks data, models, agents, drivers, disk, resources, sinks and the sweep's name.

    Ports need no check: whatever listens here takes one that is free.
    """
    agents = _unique(spec.agent for spec in plan)
    groups: tuple[Callable[[], Iterable[Check]], ...] = (
        lambda: _engine_checks(experiment),
        lambda: grading_checks(experiment, plan=plan),
        lambda: (
            check
            for agent in agents
            for check in check_agent(agent, experiment.paths.agents, results=paths.root)
        ),
        lambda: _driver_checks(experiment, plan),
        lambda: _lineage_checks(plan),
        lambda: _audit_checks(experiment.audit),
        lambda: _sink_checks(experiment),
        lambda: _sandbox_checks(experiment),
        lambda: _name_checks(experiment, plan=plan, paths=paths),
    )
    # At the same time: most of them wait, for a child that is tried out or for an address.
    with ThreadPoolExecutor(len(groups)) as pool:
        found = [pool.submit(_collected, group) for group in groups]
        return [check for each in found for check in each.result()]


def _collected(group: Callable[[], Iterable[Check]]) -> list[Check]:
    return list(group())


def grading_checks(experiment: Experiment, *, plan: Sequence[RunSpec]) -> list[Check]:
    """Checks what grading alone needs: data, models or the served one, disk, resources."""
    endpoint = experiment.grader.endpoint
    return [
        *_task_checks(plan, cache=experiment.paths.cache),
        *(
            _model_checks(plan, cache=experiment.paths.cache)
            if endpoint is None
            else _served_checks(endpoint, is_here=experiment.cluster.address is None)
        ),
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
    lines = [
        f"{check.name}: {check.detail}" + (f". {check.cure}" if check.cure else "")
        for check in checks
        if check.verdict is Verdict.FAILED
    ]
    if lines:
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


def _attempt(name: str, act: Callable[[], object], *, found: str) -> list[Check]:
    def told() -> str:
        act()
        return found

    return attempt(name, told)


def _task_checks(plan: Sequence[RunSpec], *, cache: Path) -> Iterator[Check]:
    for task in _unique(task for spec in plan for task in spec.tasks):
        where = str(task.data_path) if task.data_path else task.source.value
        yield from _attempt(f"task {task.name}", partial(_check_data, task, cache), found=where)


def _with_data_cure(cure: str, task: TaskConfig) -> str:
    """The command that gets the data first; then the task's own advice, and where it looks.

    A task that a block names has a key of its own.
    """
    if task.source is not DataSource.PATH:
        return cure
    # A task's own advice may name the same command, without the folder.
    own = f" Otherwise: {cure}." if cure and "rl_bench.prepare" not in cure else ""
    return (
        f"{_prepare_command(task)} gets the data.{own} They are looked for below RL_BENCH_DATA, "
        f"or where task.data_path= says (options.task.{task.name}.data_path= if a "
        "block names the task)"
    )


def _prepare_command(task: TaskConfig) -> str:
    """The command that puts a task's data where it looks for them."""
    words = [f"task={task.name}"]
    if task.data_path is not None and task.data_path.name == task.kind:
        words.append(f"paths.data={task.data_path.parent}")
    return f"`python -m rl_bench.prepare {shlex.join(words)}`"


def _check_data(task: TaskConfig, cache: Path) -> None:
    try:
        make_task(task, cache=cache).check_data()
    except RlBenchError as error:
        for each in (error, *error.others):
            if isinstance(each, MissingDataError):
                each.cure = _with_data_cure(each.cure, task)
        raise
    except Exception as error:  # a plug-in's code may raise anything
        raise PreflightError(
            f"task {task.name}: its check of its data broke: {fault_of(error)}",
            cure="That is a fault of the task's code",
        ) from error


def _model_checks(plan: Sequence[RunSpec], *, cache: Path) -> Iterator[Check]:
    for model in _unique(spec.model for spec in plan):
        where = str(model.path or model.hub_id or model.kind)
        yield from _attempt(
            f"model {model.name}", partial(check_model, model, cache=cache), found=where
        )


def _sink_checks(experiment: Experiment) -> Iterator[Check]:
    yield _sink_check(experiment)
    for name in experiment.sink.plugins:
        yield from _attempt(f"sink {name}", partial(load_sink, name), found="a plug-in's")


def _engine_checks(experiment: Experiment) -> Iterator[Check]:
    """Whether the graders can take what agents submit."""
    if experiment.grader.engine == "openai":
        yield failed(
            f"grader {experiment.grader.name}",
            "it asks a model that is served already, which cannot be exchanged for the checkpoints "
            "that agents submit",
            cure="Choose grader=cpu or grader=gpu; `python -m rl_bench.evaluate` grades a served "
            "model",
        )


def _served_checks(endpoint: EndpointConfig, *, is_here: bool) -> list[Check]:
    """Key and address of the model to grade, and whether anything listens there."""
    # Imported here, like what replays: a dry run of most plans needs neither, and shall be quick.
    from rl_bench.endpoint.client import NO_KEY
    from rl_bench.endpoint.served import address_of

    def check() -> str:
        has_key = address_of(endpoint).key != NO_KEY
        key = f"key in {endpoint.key_variable}" if has_key else "no key needed"
        return f"{endpoint.model_id} at {endpoint.base_url}, {key}; its weights are not seen"

    checked = attempt("served model", check)
    if checked[0].verdict is not Verdict.OK:
        return checked
    why = find_silent([endpoint.base_url]).get(endpoint.base_url)
    key = "grader.endpoint.base_url"
    return [_address_verdict(checked[0], endpoint.base_url, why, is_here=is_here, key=key)]


def _judge_checks(plan: Sequence[RunSpec]) -> Iterator[Check]:
    for judge in _unique(task.judge for spec in plan for task in spec.tasks if task.judge):
        where = judge.base_url or str(judge.path)
        yield from _attempt(f"judge {judge.name}", partial(check_judge, judge), found=where)


def _driver_checks(experiment: Experiment, plan: Sequence[RunSpec]) -> Iterator[Check]:
    """Key, address and prices of each, and whether anything listens at those addresses."""
    drivers = _unique(spec.driver for spec in plan if not spec.driver.is_none)
    checks = [
        attempt(f"driver {driver.name}", partial(_check_driver, driver, experiment.budget))
        for driver in drivers
    ]
    asked = [
        driver
        for driver, [check, *_] in zip(drivers, checks, strict=True)
        if check.verdict is Verdict.OK and driver.kind == "endpoint"
    ]
    silent = find_silent(driver.base_url for driver in asked)
    is_here = experiment.cluster.address is None
    for driver, [check, *others] in zip(drivers, checks, strict=True):
        why, doubt = silent.get(driver.base_url), doubtful_version(driver)
        if driver not in asked:
            yield from (check, *others)
        elif why is None and doubt:
            yield warning(check.name, f"{check.detail}; {doubt}")
        else:
            yield _address_verdict(
                check, driver.base_url, why, is_here=is_here, key="driver.base_url"
            )


def _address_verdict(
    check: Check, base_url: str, why: str | None, *, is_here: bool, key: str
) -> Check:
    """``check`` with what was found at an address.

    Args:
        check: Passed so far.
        base_url: The address, of the config's ``key``.
        why: There was no connection; ``None``: there was.
        is_here: Those who will ask are on this machine.
        key: For cures.
    """
    if why is None:
        return check
    detail = f"nothing answers at {base_url}: {why}"
    if is_here and is_loopback(base_url):
        return failed(check.name, detail, cure=f"Start its server, or correct {key}")
    return warning(
        check.name,
        f"{detail}; {check.detail}",
        cure=f"Check {key} and the network of the runs",
    )


def _check_driver(driver: DriverConfig, budget: BudgetConfig) -> str:
    if driver.kind == "scripted":
        session = load_session(driver.session)
        return f"scripted: {driver.session}, {plural(len(session.steps), 'step')}"
    return check_driver(driver, budget=budget)


def _lineage_checks(plan: Sequence[RunSpec]) -> Iterator[Check]:
    yield from attempt("git", check_git)
    replays = [spec for spec in plan if is_replay(spec.agent)]
    if not replays:
        return
    from rl_bench.lineage.recording import check_recording

    for spec in replays:
        yield from attempt(f"recording {spec.agent.name}", partial(check_recording, spec))


def _audit_checks(audit: AuditConfig) -> Iterator[Check]:
    if audit.references:
        found = ", ".join(audit.references)
        yield from _attempt(
            "audit references", partial(check_references, audit.references), found=found
        )
    if audit.judge is not None:
        found = audit.judge.base_url or str(audit.judge.path)
        yield from _attempt(
            "audit judge", partial(check_judge, audit.judge, where="audit.judge"), found=found
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
    if mode == "online" and not has_wandb_key():
        return Check(
            name="sink wandb",
            verdict=Verdict.FAILED,
            detail="mode online without a key",
            cure="Export WANDB_API_KEY or run `wandb login`, or set sink.wandb.mode=offline",
        )
    return Check(name="sink wandb", verdict=Verdict.OK, detail=mode)


def has_wandb_key() -> bool:
    """Whether W&B would find a key: in the environment, or where `wandb login` puts it."""
    netrc = Path.home() / ".netrc"
    return bool(os.environ.get("WANDB_API_KEY")) or (
        netrc.is_file() and "wandb" in netrc.read_text(errors="replace")
    )


def _sandbox_checks(experiment: Experiment) -> list[Check]:
    name = f"sandbox {experiment.sandbox.name}"
    states: list[SandboxState] = []
    tried = _attempt(name, lambda: states.append(check_sandbox(experiment)), found="")
    if not states:
        return tried
    verdict = Verdict.OK if states[0].is_confined else Verdict.WARNING
    return [Check(name=name, verdict=verdict, detail=states[0].detail)]


def _name_checks(
    experiment: Experiment, *, plan: Sequence[RunSpec], paths: SweepPaths
) -> list[Check]:
    def check() -> None:
        check_all(
            lambda: check_not_held(paths),
            lambda: check_sweep_config(paths, experiment, plan, write=False),
        )

    state = _progress(plan, paths=paths) if paths.config.exists() else "new"
    return _attempt(f"sweep {experiment.sweep.name}", check, found=f"{state}, {paths.root}")


def _progress(plan: Sequence[RunSpec], *, paths: SweepPaths) -> str:
    if len(plan) > MAX_COUNTED_RUNS:
        return "resumes"
    num = sum(_has_finished(paths.run(run_id(spec)).ledger) for spec in plan)
    text = f"{num} of {plural(len(plan), 'run')} finished"
    return text if num == len(plan) else f"resumes, {text}"


def _has_finished(ledger: Path) -> bool:
    """Whether its last event ends the run for good; only the end of the file is read."""
    try:
        with open_regular(ledger, follow=True) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - LEDGER_TAIL_BYTES))
            event = json.loads(stream.read().splitlines()[-1])["event"]
            return bool(event["type"] == "run_finished" and event["final"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False  # never started, or damaged, which the start itself tells
