"""Installs a published CLI from its package registry, all of it or nothing.

Each version gets a folder of its own below the agents' folder (see `rl_bench.agents.program`). It
is made as a draft beside its place, tried out, and given its name by a rename, so that what has its
name is whole. Packages come through npm and pip as the user has set them up: mirrors, proxies and
caches are theirs. What they print goes to ``install.log``.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from rl_bench.agents.program import (
    MARKER,
    Installed,
    binary_in,
    prefix_of,
    read_installed,
    reported_version,
)
from rl_bench.agents.tools import Step, npm_of, python_of
from rl_bench.config import AgentConfig, PackageConfig
from rl_bench.errors import ConfigError, InstallError

LOCKS = Path(__file__).with_name("locks")
"""Versions of all that a package needs, where its own pins do not fix them."""
STEP_LIMIT_S = 1800.0
STILL_EVERY_S = 15.0
TAIL_LINES = 15
Say = Callable[[str], None]


def install(agent: AgentConfig, *, agents_dir: Path, say: Say) -> Installed:
    """Installs the agent's pinned version, unless it is there.

    Args:
        agent: It has a package and a version.
        agents_dir: The folder of all CLIs.
        say: Told what is done, a line each.

    Raises:
        ConfigError: It is no published CLI.
        PreflightError: Something that installs it is missing.
        InstallError: It could not be installed, or does not run.
    """
    if agent.package is None or not agent.version or not agent.binary:
        raise ConfigError(
            f"agent {agent.name} is no package of a registry",
            cure="It needs package, version and binary to be installed",
        )
    folder = agents_dir / agent.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            return _install(agent, agents_dir=agents_dir, say=say)
    except Timeout as error:
        raise InstallError(
            f"agent {agent.name} is being installed by another process", cure="Wait for it"
        ) from error


def _install(agent: AgentConfig, *, agents_dir: Path, say: Say) -> Installed:
    there = read_installed(agent, agents_dir)
    if there is not None:
        return there
    assert agent.package is not None
    begin = time.monotonic()
    prefix = prefix_of(agent, agents_dir)
    draft = prefix.parent / ".draft"
    log = prefix.parent / "install.log"
    log.unlink(missing_ok=True)
    say(f"{agent.name}: {agent.package.name} {agent.version} from {agent.package.registry} ...")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        step = partial(run_step, log=log, say=partial(_say_of, agent.name, say))
        if agent.package.registry == "npm":
            _from_npm(agent.package, agent.version, draft, agents_dir=agents_dir, step=step)
        else:
            _from_pypi(agent.package, agent.version, draft, prefix=prefix, step=step)
        found = _tried(agent, draft, agents_dir=agents_dir, log=log, begin=begin)
        (draft / MARKER).write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(prefix, ignore_errors=True)
        draft.rename(prefix)
    except OSError as error:
        raise InstallError(f"agent {agent.name}: {error}", cure="Check the disk") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return found


def _from_npm(
    package: PackageConfig,
    version: str,
    draft: Path,
    *,
    agents_dir: Path,
    step: Step,
) -> None:
    npm = npm_of(agents_dir, step=step)
    # Only the package's own script may run; others would build what it does not need.
    manifest = {"private": True, "allowScripts": {package.name: True}}
    (draft / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress")
    place = ("--prefix", str(draft))
    wanted = f"{package.name}@{version}"
    path = os.pathsep.join((str(npm.folder), os.environ.get("PATH", os.defpath)))
    env = {"PATH": path}
    step(
        "npm install",
        (*npm.argv, "install", *place, *quiet, "--ignore-scripts", "--save-exact", wanted),
        env=env,
    )
    step("npm rebuild", (*npm.argv, "rebuild", *place, *quiet, package.name), env=env)


def _from_pypi(
    package: PackageConfig, version: str, draft: Path, *, prefix: Path, step: Step
) -> None:
    python = python_of(package.python)
    venv = draft / "venv"
    step("python -m venv", (str(python), "-m", "venv", str(venv)))
    lock = LOCKS / f"{package.name}-{version}.txt"
    pins = ("-c", str(lock)) if lock.exists() else ()
    pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check")
    step("pip install", (*pip, *pins, f"{package.name}=={version}"))
    _move_scripts(venv / "bin", draft, prefix)


def _move_scripts(folder: Path, old: Path, new: Path) -> None:
    """Scripts of a virtual environment name its place: the one that it will have."""
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if os.fsencode(old) in content:
            path.write_bytes(content.replace(os.fsencode(old), os.fsencode(new)))


def _tried(
    agent: AgentConfig, draft: Path, *, agents_dir: Path, log: Path, begin: float
) -> Installed:
    """Starts the program once; what it says of its version must be what was asked for."""
    assert agent.package is not None
    binary = binary_in(draft, agent)
    if not binary.exists():
        raise InstallError(
            f"agent {agent.name}: the package has no program '{agent.binary}'",
            cure=f"Correct agent.binary; it has: {', '.join(_programs(binary.parent))}",
        )
    # The scripts of a virtual environment already name the place that they will have.
    python = draft / "venv" / "bin" / "python"
    reported = reported_version(
        binary, agent=agent, agents_dir=agents_dir, python=python if python.exists() else None
    )
    if reported != agent.version:
        said = f"says version {reported}" if reported else "does not start"
        raise InstallError(
            f"agent {agent.name}: it was installed as {agent.version} and {said}",
            cure=f"{log} tells what was installed; try `{binary} --version` by hand",
        )
    return Installed(
        agent=agent.name,
        registry=agent.package.registry,
        package=agent.package.name,
        version=agent.version,
        reported=reported,
        num_bytes=size_of(draft),
        duration_s=round(time.monotonic() - begin, 1),
    )


def _programs(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())[:20]
    except OSError:
        return []


def size_of(folder: Path) -> int:
    """Bytes on disk below a folder; what has several names there counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def run_step(
    name: str,
    argv: Sequence[str],
    *,
    log: Path,
    say: Say,
    env: Mapping[str, str] | None = None,
) -> None:
    """Runs one command to its end; its output is appended to ``log``.

    Args:
        name: What it is called.
        argv: The command.
        log: Gets its output; the last lines are said when it fails.
        say: Told now and then that it goes on.
        env: Variables beside the process's own.

    Raises:
        InstallError: It failed or took too long.
    """
    begin = time.monotonic()
    with log.open("ab") as output:
        output.write(f"$ {' '.join(argv)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            argv,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _wait(process, lambda: say(f"{name}, {time.monotonic() - begin:.0f} s"))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == 0:
        return
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]:
        say(f"| {line[:300]}")
    why = f"took more than {STEP_LIMIT_S:g} s" if code is None else f"failed with exit code {code}"
    raise InstallError(
        f"{name} {why}, see {log}",
        cure="Check the network and the registry that it is set up for, and repeat this",
    )


def _wait(process: "subprocess.Popen[bytes]", still: Callable[[], None]) -> int | None:
    """The exit code; None when it took too long. ``still`` is called now and then."""
    for _ in range(int(STEP_LIMIT_S / STILL_EVERY_S)):
        try:
            return process.wait(timeout=STILL_EVERY_S)
        except subprocess.TimeoutExpired:
            still()
    return None


def _say_of(name: str, say: Say, text: str) -> None:
    say(f"{name}: {text}")
