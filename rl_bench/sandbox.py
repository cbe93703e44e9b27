"""How an agent's process is confined: the seam between a run and whatever isolates it.

`none` changes nothing and says what that means. Others wrap the command, keeping its environment
and folders as the agent knows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rl_bench.config import SandboxConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command as it is really started: whole environment, folder to start in."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


class Sandbox(Protocol):
    """Confines a command."""

    def wrap(self, launch: Launch, *, workspace: Path) -> Launch:
        """The same command, confined to ``workspace`` and its services."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What it does not protect, a sentence each; shown before a sweep and kept with the run."""
        ...


class NoSandbox:
    """The agent runs as the user that runs the sweep."""

    def wrap(self, launch: Launch, *, workspace: Path) -> Launch:
        """The command as it is."""
        return launch

    def warnings(self) -> tuple[str, ...]:
        return (
            "sandbox=none: the agent can read every file of this user, test data, other runs and "
            "keys on disk among them",
            "sandbox=none: the agent can write through to shared files and reach the network",
        )


def make_sandbox(config: SandboxConfig) -> Sandbox:
    """The sandbox that ``config`` names."""
    return {"none": NoSandbox}[config.name]()
