"""Git on a shadow repository: its plumbing only, and with nobody's configuration.

No hook, filter, attribute or alias of the user or of the agent takes part, and no command ever runs
in the agent's folder. An exit code alone is not believed: in a process that ignores SIGCHLD, as
Ray's workers do, it is 0 for every child.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rl_bench.errors import PreflightError, WorkspaceError

TIMEOUT_S = 60.0


class GitError(WorkspaceError):
    """Git ran and refused: something is wrong with the repository or what was asked of it."""


_CURE = "Check free space and permissions of the results folder"
_OPTIONS = (
    "core.protectNTFS=false",
    "core.protectHFS=false",
    "core.quotePath=true",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.logAllRefUpdates=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
)


def find_git() -> str:
    """The path of git.

    Raises:
        WorkspaceError: There is none.
    """
    found = shutil.which("git")
    if found is None:
        raise WorkspaceError("git is not on PATH", cure="Install git: code history is kept with it")
    return found


def check_git() -> str:
    """The version of git, for preflight.

    Raises:
        PreflightError: There is none, or it does not run.
    """
    try:
        done = subprocess.run(
            [find_git(), "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except (WorkspaceError, OSError, subprocess.SubprocessError) as error:
        raise PreflightError(
            "git cannot be run", cure="Install git: each run's code history is kept with it"
        ) from error
    return done.stdout.removeprefix("git version").strip()


def run_git(
    repository: Path,
    args: Sequence[str],
    *,
    stdin: bytes = b"",
    keep_open: Sequence[int] = (),
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """What a git command on ``repository`` prints.

    Args:
        repository: A bare repository.
        args: The command and its arguments.
        stdin: What it reads.
        keep_open: File descriptors that it inherits, so that a lock lasts as long as it does.
        timeout_s: After this it is killed.

    Raises:
        GitError: It refused.
        WorkspaceError: It could not be run, was killed, or took too long.
    """
    try:
        done = subprocess.run(
            _command(args),
            input=stdin,
            capture_output=True,
            cwd=repository,
            env=_environment(),
            pass_fds=tuple(keep_open),
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WorkspaceError(
            f"git {args[0]} on {repository} took longer than {timeout_s:g} s"
        ) from error
    except OSError as error:
        raise WorkspaceError(f"git {args[0]} on {repository}: {error}") from error
    said = done.stderr.decode("utf-8", "replace").strip()
    if said.startswith(("fatal:", "error:")):
        raise GitError(
            f"git {args[0]} on {repository} failed: {said.splitlines()[0][:300]}", cure=_CURE
        )
    if done.returncode:
        raise WorkspaceError(
            f"git {args[0]} on {repository} ended with {done.returncode}", cure=_CURE
        )
    return done.stdout


def open_git(repository: Path, args: Sequence[str]) -> subprocess.Popen[bytes]:
    """A git command on ``repository`` that runs, with a pipe to it and two from it.

    Raises:
        WorkspaceError: It could not be run.
    """
    try:
        return subprocess.Popen(
            _command(args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=repository,
            env=_environment(),
        )
    except OSError as error:
        raise WorkspaceError(f"git {args[0]} on {repository}: {error}") from error


def _command(args: Sequence[str]) -> list[str]:
    words = [part for option in _OPTIONS for part in ("-c", option)]
    return [find_git(), "--git-dir=.", "--no-replace-objects", *words, *args]


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }
