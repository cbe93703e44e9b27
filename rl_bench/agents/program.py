"""Where a published CLI is on this machine, and what it needs beside itself to run.

    <agents>/<name>/<version>/           one installed CLI, see `rl_bench.agents.install`
        installed.json                   written last: with it the CLI is whole
        node_modules/.bin/<binary>       from npm, or
        venv/bin/<binary>                from PyPI
    <agents>/.node/<version>/bin/node    a Node.js of the project's own, where the machine has none

A CLI of the pinned version in the prefix is taken before one on ``PATH``.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from rl_bench.config import AgentConfig, Frozen, PackageConfig
from rl_bench.errors import PreflightError
from rl_bench.option_files import option_values

MARKER = "installed.json"
MIN_NODE = 20
VERSION_LIMIT_S = 120.0
SYSTEM_FOLDERS = (Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin"))
_SEEN_ANYWAY = (Path("/usr"), Path("/bin"), Path("/sbin"), Path("/lib"), Path("/lib64"))
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_BIN = {"npm": Path("node_modules/.bin"), "pypi": Path("venv/bin")}


class Installed(Frozen):
    """What an installation says of itself.

    Attributes:
        reported: The version that the program itself told.
        num_bytes: On disk, what it shares with nothing else.
    """

    agent: str
    registry: Literal["npm", "pypi"]
    package: str
    version: str
    reported: str
    num_bytes: int
    duration_s: float


class Node(NamedTuple):
    """A Node.js that is new enough."""

    path: Path
    version: str


def prefix_of(agent: AgentConfig, agents_dir: Path) -> Path:
    """The folder that the agent's pinned version is installed in."""
    return agents_dir / agent.name / agent.version


def binary_in(prefix: Path, agent: AgentConfig) -> Path:
    """The program of a package that is installed in ``prefix``."""
    assert agent.package is not None
    return prefix / _BIN[agent.package.registry] / agent.binary


def read_installed(agent: AgentConfig, agents_dir: Path) -> Installed | None:
    """What is installed of the agent's pinned package; None when it is not whole."""
    if agent.package is None:
        return None
    prefix = prefix_of(agent, agents_dir)
    try:
        found = Installed.model_validate_json((prefix / MARKER).read_bytes())
    except (OSError, ValidationError):
        return None
    same = (found.registry, found.package, found.version) == _pin(agent.package, agent.version)
    return found if same and binary_in(prefix, agent).exists() else None


def binary_of(agent: AgentConfig, agents_dir: Path) -> Path | None:
    """The agent's program: in the prefix, else on ``PATH``; None when it is in neither."""
    if read_installed(agent, agents_dir) is not None:
        return binary_in(prefix_of(agent, agents_dir), agent)
    found = shutil.which(agent.binary) if agent.binary else None
    return Path(found) if found else None


def search_folders(agent: AgentConfig, agents_dir: Path) -> tuple[Path, ...]:
    """Folders that its ``PATH`` needs beyond the system's, for itself and its interpreter."""
    binary = binary_of(agent, agents_dir)
    if binary is None:
        return ()
    # A virtual environment has a python of its own, which is not the agent's to find.
    folders = [] if _home_of_venv(binary) else [binary.parent]
    interpreter = _interpreter(binary, agents_dir)
    if interpreter is not None and interpreter.name == "node":
        folders.append(interpreter.parent)
    return tuple(folder for folder in dict.fromkeys(folders) if folder not in SYSTEM_FOLDERS)


def read_only_folders(agent: AgentConfig, agents_dir: Path) -> tuple[Path, ...]:
    """Everything that the CLI must be able to read beyond the system and the project's own Python.

    Its package, the Node.js or Python that runs it, and what its config names. All exist.
    """
    binary = binary_of(agent, agents_dir)
    needed: list[Path] = []
    if binary is not None:
        home = _home_of_venv(binary)
        if home is not None:
            # The venv's python is a link, perhaps to a link.
            needed += [binary.parent.parent, _root(home / "python"), _root(home.resolve() / "x")]
        else:
            needed += [binary, _package_root(binary.resolve())]
            interpreter = _interpreter(binary, agents_dir)
            if interpreter is not None:
                needed += [interpreter.parent, _root(interpreter.resolve())]
        if read_installed(agent, agents_dir) is not None:
            needed.insert(0, prefix_of(agent, agents_dir))
    return _least((*needed, *agent.read_only))


def find_node(agents_dir: Path) -> Node | None:
    """A Node.js of at least `MIN_NODE`: on ``PATH``, else the project's own."""
    own = sorted((agents_dir / ".node").glob("*/bin/node"), reverse=True)
    on_path = shutil.which("node")
    for path in (*([Path(on_path)] if on_path else []), *own):
        version = _run_for_version([str(path), "--version"], env={"PATH": os.defpath})
        if version and int(version.split(".")[0]) >= MIN_NODE:
            return Node(path, version)
    return None


def needs_node(binary: Path) -> bool:
    """Whether a program is a script for Node.js."""
    return _shebang(binary)[-1:] == ["node"]


def reported_version(
    binary: Path,
    *,
    agent: AgentConfig,
    agents_dir: Path,
    python: Path | None = None,
    limit_s: float = VERSION_LIMIT_S,
) -> str:
    """The version that a program tells with ``--version``; empty when it tells none.

    Args:
        binary: The program.
        agent: Gives its environment, as far as that is fixed.
        agents_dir: The folder of all CLIs.
        python: Runs it in place of the interpreter that it names.
        limit_s: A program that takes longer tells none.
    """
    node = find_node(agents_dir) if needs_node(binary) else None
    folders = [*([str(node.path.parent)] if node else []), *map(str, SYSTEM_FOLDERS)]
    quiet = {name: text for name, text in agent.env.items() if "{" not in text}
    with tempfile.TemporaryDirectory(prefix="rl_bench-") as home:
        env = {"HOME": home, "PATH": os.pathsep.join(folders), "LANG": "C.UTF-8", **quiet}
        argv = [*([str(python)] if python else []), str(binary), "--version"]
        return _run_for_version(argv, env=env, limit_s=limit_s)


def check_program(agent: AgentConfig, agents_dir: Path) -> str:
    """What preflight says of an agent that is a published CLI.

    Returns:
        Where it is.

    Raises:
        PreflightError: It is missing, or of another version, or what runs it is missing.
    """
    cure = f"`{_install_command(agent)}`"
    binary = binary_of(agent, agents_dir)
    if binary is None:
        raise PreflightError(
            f"'{agent.binary}' {agent.version} is neither in {prefix_of(agent, agents_dir)} nor on "
            "PATH",
            cure=cure,
        )
    if needs_node(binary) and find_node(agents_dir) is None:
        raise PreflightError(f"{binary} needs Node.js {MIN_NODE} or newer", cure=f"{cure} gets one")
    home = _home_of_venv(binary)
    if home is not None and not any(home.glob("python*")):
        raise PreflightError(f"{binary}: its Python at {home} is gone", cure=f"{cure} again")
    if read_installed(agent, agents_dir) is not None:
        return f"{agent.version}, {prefix_of(agent, agents_dir)}"
    version = reported_version(binary, agent=agent, agents_dir=agents_dir)
    if version != agent.version:
        raise PreflightError(
            f"{binary} is version {version or 'unknown'}, pinned is {agent.version}",
            cure=f"{cure}, or run another version knowingly with agent.version={version or '...'}",
        )
    return f"{version}, {binary} on PATH"


def _install_command(agent: AgentConfig) -> str:
    """Gets just this version: it is named where the project's own option pins another."""
    pinned = str(option_values("agent").get(agent.name, {}).get("version", agent.version))
    other = "" if pinned == agent.version else f" agent.version={agent.version}"
    return f"python -m rl_bench.agents install {agent.name}{other}"


def _pin(package: PackageConfig, version: str) -> tuple[str, str, str]:
    return package.registry, package.name, version


def _run_for_version(
    argv: list[str], *, env: dict[str, str], limit_s: float = VERSION_LIMIT_S
) -> str:
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = _VERSION.search(done.stdout.decode(errors="replace"))
    return match[0] if match and done.returncode == 0 else ""


def _shebang(binary: Path) -> list[str]:
    """The words after ``#!``; none for a native program."""
    try:
        with binary.open("rb") as file:
            head = file.read(256)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    words = head[2:].split(b"\n")[0].decode(errors="replace").split()
    is_env = words and Path(words[0]).name == "env"
    return [word for word in words[1:] if not word.startswith("-")] if is_env else words[:1]


def _interpreter(binary: Path, agents_dir: Path) -> Path | None:
    """The program that runs a script; None for a native program, or when it is missing."""
    words = _shebang(binary)
    if not words:
        return None
    if words[0] == "node":
        node = find_node(agents_dir)
        return node.path if node else None
    found = shutil.which(words[0])
    return Path(found) if found else None


def _home_of_venv(binary: Path) -> Path | None:
    """Of a program in a virtual environment: the folder with the Python that it was made from."""
    try:
        text = (binary.parent.parent / "pyvenv.cfg").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^home\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return Path(match[1]) if match else None


def _root(program: Path) -> Path:
    """The installation that a program in a ``bin`` is a part of."""
    return program.parent.parent if program.parent.name == "bin" else program.parent


def _package_root(program: Path) -> Path:
    """The outermost ``node_modules`` of a program from npm, else its own folder."""
    parts = program.parts
    if "node_modules" in parts:
        return Path(*parts[: parts.index("node_modules") + 1])
    return program.parent


def _least(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """What exists of them and is not seen anyway, without what lies in another of them."""
    seen = (*_SEEN_ANYWAY, Path(sys.prefix), Path(sys.base_prefix))
    wanted = [
        folder
        for folder in dict.fromkeys(folders)
        if folder.exists() and not any(folder.is_relative_to(each) for each in seen)
    ]
    return tuple(
        folder
        for folder in wanted
        if not any(folder != other and folder.is_relative_to(other) for other in wanted)
    )
