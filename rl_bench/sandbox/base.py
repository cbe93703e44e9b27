"""How an agent's process is confined: the seam between a run and whatever isolates it.

Folders keep their paths inside, so that what an agent names is what the run knows.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

PYTHON = os.path.abspath(sys.executable)  # noqa: PTH100  Path.absolute keeps the `..`
"""The project's interpreter for what runs in a sandbox: links stay, since a link makes a virtual
environment's, and a ``..`` goes, since the folder before it may not be there inside."""


class Forward(NamedTuple):
    """A service of the run: reachable inside at its loopback ``port``, from a socket outside."""

    port: int
    socket_path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that a confined agent sees beside the system's own programs and libraries.

    Attributes:
        workspace: Readable and writable.
        protected: Parts of the workspace that are read-only: its data, its base model.
        read_only: Files and folders elsewhere: the interpreter, the agent's CLI, the base model.
        forwards: The only services that it reaches.
        home, tmp: Folders of the workspace that are its HOME and /tmp.
        devices: Device files, e.g. of GPUs.
    """

    workspace: Path
    home: Path
    tmp: Path
    protected: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    forwards: tuple[Forward, ...] = ()
    devices: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command as it is really started: whole environment, folder to start in.

    Attributes:
        is_wrapped: ``argv`` is a wrapper around the agent: a program of ours inside tells the
            agent's own exit code, as a line of JSON on `rl_bench.process.supervisor.STATUS_FD`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    is_wrapped: bool = False


class Sandbox(Protocol):
    """Confines a command.

    Attributes:
        kind: ``bwrap`` or ``none``.
        version: Of the program that does it; empty for ``none``.
    """

    @property
    def kind(self) -> str: ...

    @property
    def version(self) -> str: ...

    def wrap(self, launch: Launch, view: View) -> Launch:
        """The same command, confined to ``view``."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What it does not protect, a sentence each; shown before a sweep and kept with the run."""
        ...
