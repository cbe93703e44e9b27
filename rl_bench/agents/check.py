"""Whether an agent could be started, as far as its config and this machine tell."""

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rl_bench.agents.launch import PLACEHOLDERS, is_replay
from rl_bench.agents.program import check_program, reported_version
from rl_bench.checks import Check, Verdict, attempt, failed, warning
from rl_bench.config import AgentConfig
from rl_bench.nearest import nearest
from rl_bench.plugins import find_program

INTERPRETERS = ("bash", "sh", "dash", "zsh", "python", "{python}")
VERSION_LIMIT_S = 5.0
"""For a program that is no package: it may not know ``--version`` and wait for ever."""
CLOSE = 0.8
_BRACED = re.compile(r"(?<!\$)\{\s*([A-Za-z][A-Za-z_-]*)\s*\}")


def check_agent(agent: AgentConfig, agents_dir: Path, *, results: Path) -> Iterator[Check]:
    """Checks its config, its program and that program's version.

    Args:
        agent: The agent.
        agents_dir: The folder of all published CLIs.
        results: The sweep's folder, which no agent may see.
    """
    name = f"agent {agent.name}"
    problems = list(_config_problems(agent, results=results))
    if problems:
        yield failed(name, "; ".join(problems), cure="Correct the agent's config")
    found = (
        _own_program(agent, name, agents_dir)
        if agent.package is None
        else attempt(name, partial(check_program, agent, agents_dir))
    )
    # Nothing is fine about an agent whose config is not.
    yield from (each for each in found if not problems or each.verdict is not Verdict.OK)
    misspelt = near_misses(agent)
    if misspelt:
        yield warning(
            f"{name}, placeholders",
            "; ".join(misspelt),
            cure=f"Choices: {', '.join(PLACEHOLDERS)}; what is meant as it stands may stay",
        )


def near_misses(agent: AgentConfig) -> list[str]:
    """Words in braces that are all but a placeholder, each with the one that is likely meant."""
    texts = (*agent.argv, *agent.resume_argv, *agent.env.values(), *agent.files.values())
    found = []
    for braced, word in dict.fromkeys((m[0], m[1]) for t in texts for m in _BRACED.finditer(t)):
        if braced in {f"{{{known}}}" for known in PLACEHOLDERS}:
            continue
        plain = word.lower().replace("-", "_")
        meant = nearest(plain, PLACEHOLDERS, close=CLOSE)
        if meant:
            found.append(f"{braced} is no placeholder: did you mean {{{meant}}}?")
    return found


def _own_program(agent: AgentConfig, name: str, agents_dir: Path) -> list[Check]:
    """Of an agent that no registry has."""
    script = _script(agent.argv)
    if script is not None and not script.exists():
        return [failed(name, f"{script} does not exist", cure="Correct agent.argv")]
    command = agent.binary or agent.argv[0]
    if command.startswith(("{python}", "{workspace}")):
        return attempt(name, partial(find_program, _module(agent.argv)))
    place = shutil.which(command)
    if place is None:
        cure = f"Install {agent.name}, or add its folder to PATH"
        return [failed(name, f"'{command}' is not on PATH", cure=cure)]
    return [_version_check(agent, name, place, agents_dir=agents_dir)]


def _version_check(agent: AgentConfig, name: str, place: str, *, agents_dir: Path) -> Check:
    if not (agent.binary and agent.version):
        return Check(name=name, verdict=Verdict.OK, detail=place)
    told = reported_version(
        Path(place), agent=agent, agents_dir=agents_dir, limit_s=VERSION_LIMIT_S
    )
    if told == agent.version:
        return Check(name=name, verdict=Verdict.OK, detail=f"{told}, {place}")
    said = f"is version {told}" if told else "tells no version"
    return warning(
        name,
        f"{place} {said}, and runs will be recorded as {agent.version}",
        cure=f"Set agent.version={told}" if told else "Make sure that agent.version is right",
    )


def _module(argv: Sequence[str]) -> str:
    """The module that ``python -m`` is to run; empty where it is told to run something else."""
    return argv[2] if argv[1:2] == ("-m",) and len(argv) > 2 else ""


def _config_problems(agent: AgentConfig, *, results: Path) -> Iterator[str]:
    """What no run of the agent would get over; a replay's recording has a check of its own."""
    asked = (*agent.argv, *agent.resume_argv, *agent.env.values(), *agent.files.values())
    if not agent.apis and any("{driver_url}" in t or "{driver_key}" in t for t in asked):
        yield "it asks for a driver, and names no API in agent.apis"
    for folder in () if is_replay(agent) else agent.read_only:
        where = f"agent.read_only: {folder}"
        if not folder.is_absolute():
            yield f"{where} is no absolute path"
        elif not folder.exists():
            yield f"{where} is not there"
        elif results.resolve().is_relative_to(folder.resolve()):
            yield f"{where} holds {results}: it would show other runs"


def _script(argv: Sequence[str]) -> Path | None:
    """The file that an interpreter is told to run, when it has an absolute path."""
    program, *words = argv
    if not Path(program).name.startswith(INTERPRETERS):
        return None
    for word in words:
        if word in {"-c", "-m"}:
            return None
        if not word.startswith("-"):
            return Path(word) if word.startswith("/") else None
    return None
