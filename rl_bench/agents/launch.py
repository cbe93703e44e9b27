"""How an agent is called: its command, its files below HOME and its search path.

Every placeholder is filled in within its one value, and no shell reads any of them.
"""

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rl_bench.agents.program import SYSTEM_FOLDERS, binary_of, search_folders
from rl_bench.config import AgentConfig
from rl_bench.errors import WorkspaceError
from rl_bench.sandbox.base import PYTHON

DRIVER_KEY = "rl-bench-dummy-key"
"""What agents are given as their key: the gateway has the real one."""
REPLAY = "rl_bench.agents.replay"
"""The module of the agent that does again what a recorded run did."""
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The kernel takes no longer argument or variable (MAX_ARG_STRLEN, less the final NUL)."""
PLACEHOLDERS = (
    "python", "workspace", "home", "prompt", "driver_model", "driver_url", "driver_key",
)  # fmt: skip
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")


def is_replay(agent: AgentConfig) -> bool:
    """Whether it is the replay agent, by whatever name."""
    return REPLAY in agent.argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What the placeholders stand for.

    Attributes:
        prompt: The words that the agent is started with.
        driver_url: The gateway's base URL; empty without a driver.
    """

    workspace: Path
    home: Path
    prompt: str
    driver_model: str = ""
    driver_url: str = ""

    def fill(self, text: str) -> str:
        """``text`` with its placeholders filled in; other braces stay.

        Raises:
            WorkspaceError: It asks for a driver and there is none.
        """
        return _PLACEHOLDER.sub(lambda match: self._value(match[1]), text)

    def _value(self, name: str) -> str:
        if name in {"driver_url", "driver_key"} and not self.driver_url:
            raise WorkspaceError(
                f"the agent's config has {{{name}}}, and the run has no driver",
                cure="Choose a driver, or leave the placeholder out",
            )
        values = {
            "python": PYTHON,
            "workspace": str(self.workspace),
            "home": str(self.home),
            "prompt": self.prompt,
            "driver_model": self.driver_model,
            "driver_url": self.driver_url,
            "driver_key": DRIVER_KEY,
        }
        return values[name]


def command_line(
    agent: AgentConfig, values: Values, *, agents_dir: Path | None = None, resumes: bool = False
) -> tuple[str, ...]:
    """The agent's command, with the program of a published CLI by its full path.

    Args:
        agent: The agent.
        values: For its placeholders.
        agents_dir: The folder of all CLIs; None: whatever ``PATH`` has.
        resumes: It goes on with its session.

    Raises:
        WorkspaceError: An argument is longer than the kernel takes.
    """
    program, *arguments = agent.resume_argv if resumes else agent.argv
    if agents_dir is not None and agent.package is not None and program == agent.binary:
        program = str(binary_of(agent, agents_dir) or program)
    filled = tuple(values.fill(argument) for argument in (program, *arguments))
    for argument in filled:
        _check_length(argument, what=f"an argument of agent {agent.name}")
    return filled


def variables(agent: AgentConfig, values: Values) -> dict[str, str]:
    """The environment variables of the agent's config.

    Raises:
        WorkspaceError: One is longer than the kernel takes.
    """
    filled = {name: values.fill(text) for name, text in agent.env.items()}
    for name, text in filled.items():
        _check_length(f"{name}={text}", what=f"{name} of agent {agent.name}")
    return filled


def write_home_files(agent: AgentConfig, values: Values) -> None:
    """Writes the config's files below HOME, before the agent has been there.

    Never through a link, and only what is not there yet.

    Raises:
        WorkspaceError: A path leads out of HOME, is taken, or the disk refused.
    """
    for name, text in agent.files.items():
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
            raise WorkspaceError(
                f"agent {agent.name}: file '{name}' is not below HOME",
                cure="Write a relative path without ..",
            )
        try:
            _write(values.home, parts, values.fill(text).encode())
        except OSError as error:
            raise WorkspaceError(
                f"agent {agent.name}: {name} could not be written below HOME: {error}"
            ) from error


def search_path(agent: AgentConfig, *, agents_dir: Path | None = None) -> str:
    """The agent's ``PATH``: the project's Python first, its own program, the system."""
    folders = [Path(PYTHON).parent]
    if agents_dir is not None and agent.package is not None:
        folders += search_folders(agent, agents_dir)
    elif agent.binary and (found := shutil.which(agent.binary)):
        folders.append(Path(found).parent)
    return os.pathsep.join(str(folder) for folder in dict.fromkeys((*folders, *SYSTEM_FOLDERS)))


def _write(folder: Path, parts: tuple[str, ...], data: bytes) -> None:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder, os.O_DIRECTORY | flags)
    try:
        for part in parts[:-1]:
            # A link in its place is refused by the next line.
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=fd)
            inner = os.open(part, os.O_DIRECTORY | flags, dir_fd=fd)
            os.close(fd)
            fd = inner
        file = os.open(parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=fd)
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
    finally:
        os.close(fd)


def _check_length(text: str, *, what: str) -> None:
    num_bytes = len(os.fsencode(text))
    if num_bytes > MAX_ARGUMENT_BYTES:
        raise WorkspaceError(
            f"{what} has {num_bytes} bytes, and the system takes {MAX_ARGUMENT_BYTES}",
            cure="Let it read a file instead",
        )
