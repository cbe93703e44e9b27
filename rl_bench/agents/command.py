"""What ``python -m rl_bench.agents`` does once its help is not all that is asked for.

`rl_bench.agents.install` gets the CLIs, `rl_bench.agents.program` knows where they are. This module
reads the command line's words and tells the outcome.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl_bench.agents.install import install
from rl_bench.agents.program import (
    Installed,
    binary_of,
    check_program,
    prefix_of,
    read_installed,
    reported_version,
)
from rl_bench.command_line import EXIT_FAILED, Words, complain, say
from rl_bench.compose import compose_agent, compose_paths
from rl_bench.config import AgentConfig
from rl_bench.errors import ConfigError, InstallError, PreflightError
from rl_bench.nearest import did_you_mean
from rl_bench.option_files import groups

EVERY = "all"
ACTIONS = ("list", "install", "check")
MB = 1e6


class Request(NamedTuple):
    """What a command line asks for."""

    action: str
    agents: tuple[AgentConfig, ...]
    agents_dir: Path


def read_request(words: Words) -> Request:
    """Reads the words.

    Raises:
        ConfigError: With the word, the choices and the cure.
    """
    named = [word for word in words.overrides if "=" not in word]
    given = [word for word in words.overrides if "=" in word]
    if not named or named[0] not in ACTIONS:
        raise ConfigError(
            f"unknown action '{named[0]}'" if named else "no action is named",
            cure=did_you_mean(named[0] if named else "", ACTIONS),
        )
    action, *names = named
    known = {agent.name: agent for agent in catalogue(words.config_dirs)}
    _check_has_package(names, known=tuple(known), config_dirs=words.config_dirs)
    _check(action, names, given, known=tuple(known))
    chosen = tuple(known) if EVERY in names or not names else tuple(dict.fromkeys(names))
    agents = tuple(known[name] for name in chosen)
    own = [word for word in given if word.startswith("agent.")]
    if own:
        other = compose_agent(names[0], own, config_dirs=words.config_dirs)
        agents = (other,) if other is not None else agents
    paths = [word for word in given if word not in own]
    return Request(action, agents, compose_paths(paths, config_dirs=words.config_dirs).agents)


def catalogue(config_dirs: Sequence[Path] = ()) -> list[AgentConfig]:
    """The agents that are packages of a registry, by name.

    Raises:
        ConfigError: An option of the group cannot be read.
    """
    names = groups(config_dirs=config_dirs)["agent"]
    found = [compose_agent(name, config_dirs=config_dirs) for name in names]
    return [agent for agent in found if agent is not None]


def _check_has_package(
    names: Sequence[str], *, known: Sequence[str], config_dirs: Sequence[Path]
) -> None:
    """Refuses agents without a package: only a sweep's own check looks at their programs."""
    others = set(groups(config_dirs=config_dirs)["agent"]) - set(known)
    for name in names:
        if name in others:
            raise ConfigError(
                f"agent '{name}' is no package of a registry, so there is nothing to install or "
                "to compare with here",
                cure=f"`python -m rl_bench.sweep agent={name} dry_run=true` checks its program; to "
                "have it installed, give its config package, version and binary",
            )


def _check(
    action: str, names: Sequence[str], given: Sequence[str], *, known: Sequence[str]
) -> None:
    if action == "install" and not names:
        raise ConfigError("no agent is named", cure=f"Name some: {', '.join(known)}, or {EVERY}")
    if action == "list" and names:
        raise ConfigError("list takes no names", cure="`check NAME` tells of one")
    for name in names:
        if name != EVERY and name not in known:
            raise ConfigError(
                f"no package is known for agent '{name}'", cure=did_you_mean(name, known)
            )
    for word in given:
        if not word.startswith(("paths.agents=", "paths.cache=", "agent.")):
            raise ConfigError(
                f"unknown override '{word}'",
                cure="Choices: paths.agents=, paths.cache=, agent.KEY=",
            )
        if word.startswith("agent.") and (len(names) != 1 or EVERY in names):
            raise ConfigError(f"{word} is for one agent", cure="Name the one that it is for")


def start(words: Words) -> int:
    """Does what the words ask for; returns the exit code."""
    request = read_request(words)
    say(f"folder: {request.agents_dir}")
    act: Callable[[AgentConfig, Path], bool] = {
        "list": _list,
        "install": _install,
        "check": _check_one,
    }[request.action]
    agents = request.agents
    if request.action == "check" and not _is_named(words):
        agents = tuple(each for each in agents if binary_of(each, request.agents_dir) is not None)
        if not agents:
            say("none is installed")
    done = [act(agent, request.agents_dir) for agent in agents]
    return 0 if all(done) else EXIT_FAILED


def _is_named(words: Words) -> bool:
    return len([word for word in words.overrides if "=" not in word]) > 1


def _list(agent: AgentConfig, agents_dir: Path) -> bool:
    found = read_installed(agent, agents_dir)
    say(f"{_about(agent)}  {_state(found)}")
    return True


def _install(agent: AgentConfig, agents_dir: Path) -> bool:
    before = read_installed(agent, agents_dir)
    try:
        found = install(agent, agents_dir=agents_dir, say=say)
    except (InstallError, PreflightError) as error:
        complain(error)
        return False
    spent = "was installed already" if before else f"installed in {found.duration_s:.0f} s"
    size = f"{found.num_bytes / MB:.0f} MB"
    say(f"{agent.name}: {agent.version} {spent}, {size}, {prefix_of(agent, agents_dir)}")
    return True


def _check_one(agent: AgentConfig, agents_dir: Path) -> bool:
    try:
        where = check_program(agent, agents_dir)
    except PreflightError as error:
        complain(error)
        return False
    binary = binary_of(agent, agents_dir)
    told = reported_version(binary, agent=agent, agents_dir=agents_dir) if binary else ""
    if told != agent.version:
        cure = f"Remove {prefix_of(agent, agents_dir)} and install it again"
        complain(InstallError(f"{agent.name}: {binary} tells version '{told}'", cure=cure))
        return False
    say(f"{agent.name}: works, {where}")
    return True


def _about(agent: AgentConfig) -> str:
    assert agent.package is not None
    package = f"{agent.package.registry} {agent.package.name}"
    return f"{agent.name:<12} {agent.version:<10} {package:<32}"


def _state(found: Installed | None) -> str:
    return f"installed, {found.num_bytes / MB:.0f} MB" if found else "not installed"
