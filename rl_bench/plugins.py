"""What plug-ins add to the domain: tasks, annotators, sinks, folders of options, agents' programs.

`envs.plugins` finds their entry points; this module knows what the groups mean to a sweep, turns
what is wrong with one into a `ConfigError`, and tells which plug-ins a run is made with. Nothing of
a plug-in is imported before it is used. docs/extending.md walks through a whole one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from envs.plugins import (
    ENVIRONMENTS,
    PROTOCOLS,
    REINSTALL,
    SEARCH,
    PluginBroken,
    PluginEntry,
    entries_in,
    find_entry,
    load_or_own,
    names_in,
    plugin_entries,
)
from rl_bench.checks import Check, Verdict, warning
from rl_bench.errors import ConfigError, PreflightError

if TYPE_CHECKING:
    from rl_bench.config import Options, RunSpec, TaskConfig

TASKS = "rl_bench.tasks"
"""Kind of a task to the ``module:class`` of a `rl_bench.tasks.base.Task`."""
AGENTS = "rl_bench.agents"
"""Any name to the module of an agent's program: shown to agents, never imported here."""
ANNOTATORS = "rl_bench.annotators"
"""``KIND.NAME`` to the ``module:callable`` that makes annotator ``NAME`` of tasks of a kind."""
SINKS = "rl_bench.sinks"
"""Name of a sink to the ``module:class`` of a `rl_bench.sinks.base.Sink`."""
CONF = "rl_bench.conf"
"""Any name to a package that is a folder of options, laid out like ``conf/``."""
WORDS: Mapping[str, str] = {
    TASKS: "task kind",
    ENVIRONMENTS: "environment",
    PROTOCOLS: "protocol",
    SEARCH: "search",
    AGENTS: "agent",
    ANNOTATORS: "annotator",
    SINKS: "sink",
    CONF: "options",
}
FOR_AGENTS = (AGENTS, ENVIRONMENTS, PROTOCOLS)
"""Groups whose modules a confined agent sees; see `rl_bench.sandbox.plugin_files`."""
FOLDERS = (CONF, AGENTS)
"""Groups that name modules to be looked at, not imported."""


class OptionFolder(NamedTuple):
    """A folder of options, and the plug-in that it comes with."""

    path: Path
    entry: PluginEntry


def load_named(group: str, name: str, own: Mapping[str, str], *, what: str) -> Callable[..., Any]:
    """What ``name`` stands for, of this project or of a plug-in.

    Args:
        group: Of entry points.
        name: Within the group.
        own: This project's own, as ``module:attribute``.
        what: Whose name it is, for the error: ``task x: kind``.

    Raises:
        ConfigError: Nobody has it; or the plug-in that does is broken.
    """
    try:
        found = load_or_own(group, name, own)
    except PluginBroken as error:
        raise ConfigError(f"{what} '{name}': {error.message}", cure=error.cure) from error
    if found is None:
        choices = ", ".join(names_in(group, own)) or "none, since no plug-in has any"
        raise ConfigError(f"{what} '{name}' does not exist", cure=f"Choices: {choices}")
    return found


def find_program(module: str) -> str:
    """What an agent's program is a part of, by its module; nothing is imported.

    Raises:
        PreflightError: It is a plug-in's, and not there, or not declared as one for agents to see.
    """
    top = module.partition(".")[0]
    of_plugin = [entry for entry in plugin_entries() if entry.module.partition(".")[0] == top]
    if not of_plugin:
        return "part of rl_bench"
    told = f"{of_plugin[0].distribution} {of_plugin[0].version}"
    if locate(module) is None:
        raise PreflightError(f"{module} is not in {told}", cure="Correct agent.argv")
    declared = [entry.module for group in FOR_AGENTS for entry in _entries(group)]
    if not any(module == name or module.startswith(f"{name}.") for name in declared):
        raise PreflightError(
            f"{module} of {told} is not shown to agents",
            cure=f"Its author must name it in the entry points of {AGENTS}",
        )
    return f"part of {told}"


def load_sink(name: str) -> Callable[..., Any]:
    """The class of a plug-in's sink; called with a folder of its own, ``sweep=`` and ``settings=``.

    Raises:
        ConfigError: No plug-in has it, or the one that does is broken.
    """
    return load_named(SINKS, name, {}, what="sink")


def load_annotator(kind: str, name: str, *, own: Collection[str]) -> Callable[..., Any] | None:
    """What makes annotator ``name`` for tasks of a kind; None where it is one of the task's own.

    Raises:
        ConfigError: Nobody has it, or the plug-in that does is broken.
    """
    mine = tuple(f"{kind}.{each}" for each in own)
    try:
        entry = find_entry(ANNOTATORS, f"{kind}.{name}", own=mine)
        if entry is not None:
            return cast(Callable[..., Any], entry.load())
    except PluginBroken as error:
        raise ConfigError(f"judge annotator '{name}': {error.message}", cure=error.cure) from error
    if name in own:
        return None
    names = [each.removeprefix(f"{kind}.") for each in names_in(ANNOTATORS, mine)]
    raise ConfigError(
        f"judge annotator '{name}' does not exist for {kind}",
        cure=f"Choices: {', '.join(each for each in names if '.' not in each)}",
    )


def option_folders() -> tuple[OptionFolder, ...]:
    """The folders of options that plug-ins bring; one that is not there is left out."""
    found = ((locate(entry.module), entry) for entry in _entries(CONF))
    return tuple(OptionFolder(path, entry) for path, entry in found if path and path.is_dir())


def missing_folders() -> tuple[PluginEntry, ...]:
    """The entries of plug-ins whose folder of options is not where they say."""
    there = {folder.entry for folder in option_folders()}
    return tuple(entry for entry in _entries(CONF) if entry not in there)


def locate(module: str) -> Path | None:
    """The folder of a package or the file of a module; nothing of it is imported.

    Returns:
        None where there is no such thing.
    """
    top, *inner = module.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    roots = [Path(place) for place in spec.submodule_search_locations or ()]
    if not inner:
        return roots[0] if roots else Path(spec.origin or "")
    for root in roots:
        path = root.joinpath(*inner)
        for found in (path, path.with_name(f"{path.name}.py")):
            if found.exists():
                return found
    return None


def plugins_of(spec: "RunSpec", options: "Options") -> dict[str, str]:
    """The plug-ins that a run is made with, name to version: code and options alike.

    Args:
        spec: The run.
        options: Those of the sweep, by the names of their files.
    """
    used = [*_of_options(spec, options), *(e for task in spec.tasks for e in _of_task(task))]
    return {
        entry.distribution: entry.version for entry in sorted(used, key=lambda e: e.distribution)
    }


def stamp(evaluator_version: str, task: "TaskConfig") -> str:
    """An evaluator's version, with those of the plug-ins that take part in the task's scores."""
    parts = dict.fromkeys(f"{entry.distribution} {entry.version}" for entry in _of_task(task))
    return f"{evaluator_version} ({', '.join(parts)})" if parts else evaluator_version


def _of_options(spec: "RunSpec", options: "Options") -> Iterator[PluginEntry]:
    chosen: Mapping[str, tuple[object, ...]] = {
        "agent": (spec.agent,),
        "driver": (spec.driver,),
        "mode": (spec.mode,),
        "task": spec.tasks,
        "model": (spec.model,),
    }
    for folder in option_folders():
        for group, used in chosen.items():
            for name, option in getattr(options, f"{group}s").items():
                if option in used and (folder.path / group / f"{name}.yaml").is_file():
                    yield folder.entry


def _of_task(task: "TaskConfig") -> Iterator[PluginEntry]:
    names = [
        (TASKS, task.kind),
        (PROTOCOLS, task.protocol.partition(":")[0]),
        (SEARCH, str(task.settings.get("search", ""))),
    ]
    if task.judge is not None:
        names.append((ANNOTATORS, f"{task.kind}.{task.judge.annotator}"))
    for group, name in names:
        yield from entries_in(group).get(name, ())


def _entries(group: str) -> Iterator[PluginEntry]:
    for entries in entries_in(group).values():
        yield from entries


def plugin_checks() -> Iterator[Check]:
    """A row a plug-in: its version, what it adds, and whether that can be loaded."""
    by_name: dict[str, list[PluginEntry]] = {}
    for entry in plugin_entries():
        by_name.setdefault(entry.distribution, []).append(entry)
    for name, entries in by_name.items():
        problems = [problem for entry in entries if (problem := _problem(entry))]
        added: dict[str, list[str]] = {}
        for entry in entries:
            added.setdefault(WORDS.get(entry.group, entry.group), []).append(entry.name)
        told = "; ".join(f"{word} {', '.join(names)}" for word, names in added.items())
        found = f"{entries[0].version}: {told}"
        if problems:
            message, cure = problems[0]
            yield warning(f"plug-in {name}", f"{found}; {message}", cure=cure)
        else:
            yield Check(name=f"plug-in {name}", verdict=Verdict.OK, detail=found)


def _problem(entry: PluginEntry) -> tuple[str, str] | None:
    """What is wrong with an entry, and the cure; it is loaded to find out."""
    if entry.group not in WORDS:
        known = ", ".join(WORDS)
        return f"{entry.group} is no group of this project", f"Groups: {known}"
    if entry.group in FOLDERS:
        if locate(entry.module) is not None:
            return None
        return (
            f"{entry.group} '{entry.name}': {entry} is not there",
            f"Its author must ship it; if it does, {REINSTALL}",
        )
    try:
        find_entry(entry.group, entry.name)
        entry.load()
    except PluginBroken as error:
        return error.message, error.cure
    return None
