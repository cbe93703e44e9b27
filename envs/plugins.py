"""What other distributions add to this project, found through their entry points.

A plug-in names what it has in groups that begin with ``rl_bench.``; docs/extending.md lists them.
Finding reads the metadata of installed distributions and imports nothing: a plug-in is imported
when something of it is used, and one that is broken hurts no other. This module knows no group but
those that environments are made of; `rl_bench.plugins` has the others.
"""

import importlib
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import Distribution, distributions
from typing import Any, cast

PREFIX = "rl_bench."
ENVIRONMENTS = "rl_bench.environments"
"""Gymnasium id to ``module:class``."""
PROTOCOLS = "rl_bench.protocols"
"""Name of a prompt protocol to a ``module:callable`` that takes its settings by keyword."""
SEARCH = "rl_bench.search"
"""Name of a search back-end to the ``module:class`` of an `envs.search.http.Service`."""
OWN = "rl_bench"
REINSTALL = "install it again from its source folder: python -m pip install --no-deps FOLDER"
"""Not by its name: an index may have somebody else's package of that name."""
_CURE = "`python -m rl_bench.doctor` lists all plug-ins"


class PluginBroken(Exception):  # noqa: N818  names a state, like `EnvironmentBroken`
    """A plug-in cannot be imported, has not what it names, or names what is taken.

    Args:
        message: Which one, of which distribution, and why.
        cure: What the user can do about it.
    """

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message, cure)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.message}. {self.cure}" if self.cure else self.message


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One thing that a distribution adds: ``value`` is ``module:attribute``, or a module."""

    group: str
    name: str
    value: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.value} of {self.distribution} {self.version}"

    @property
    def module(self) -> str:
        """The module that holds it."""
        return self.value.partition(":")[0].strip()

    def load(self) -> object:
        """Imports it.

        Raises:
            PluginBroken: Its module cannot be imported, or lacks the attribute.
        """
        try:
            found: object = importlib.import_module(self.module)
            for part in filter(None, self.value.partition(":")[2].strip().split(".")):
                found = getattr(found, part)
        except Exception as error:  # code of others raises anything as it is imported
            raise PluginBroken(
                f"{self.group} '{self.name}': {self} cannot be loaded: "
                f"{type(error).__name__}: {error}{_place(error)}",
                f"Mend it, or {REINSTALL}; without it: pip uninstall {self.distribution}. {_CURE}",
            ) from error
        return found


def _place(error: Exception) -> str:
    """The line of somebody's code that an import broke at; empty where none was reached."""
    ours = (__file__, importlib.__file__)
    lines = [
        f" at {frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen importlib")
    ]
    return lines[-1] if lines else ""


@cache
def plugin_entries() -> tuple[PluginEntry, ...]:
    """Everything that is installed beside this project, by distribution; read once a process.

    Of a distribution that is installed twice the first on Python's path counts, as for imports.
    """
    found: dict[str, list[PluginEntry]] = {}
    for each in distributions():
        # Most distributions have none, and parsing every one takes four times as long.
        if f"[{PREFIX}" in (each.read_text("entry_points.txt") or ""):
            found.setdefault(each.metadata["Name"], _entries_of(each))
    return tuple(entry for name in sorted(found) for entry in found[name])


def _entries_of(each: Distribution) -> list[PluginEntry]:
    return [
        PluginEntry(point.group, point.name, point.value, each.metadata["Name"], each.version)
        for point in each.entry_points
        if point.group.startswith(PREFIX)
    ]


def entries_in(group: str) -> dict[str, tuple[PluginEntry, ...]]:
    """The entries of a group by their names; a name that several took has them all."""
    found: dict[str, tuple[PluginEntry, ...]] = {}
    for entry in plugin_entries():
        if entry.group == group:
            found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def find_entry(group: str, name: str, *, own: Collection[str] = ()) -> PluginEntry | None:
    """The plug-in's entry of that name; None where there is none.

    Args:
        group: Of entry points.
        name: Within the group.
        own: Names that this project has itself.

    Raises:
        PluginBroken: The name is taken twice.
    """
    entries = entries_in(group).get(name, ())
    places = [*([OWN] if name in own else []), *map(str, entries)]
    if len(places) > 1 and entries:
        raise PluginBroken(
            f"{group} '{name}' is there twice: {' and '.join(places)}",
            "Uninstall one of them, or have its author rename it",
        )
    return entries[0] if entries else None


def names_in(group: str, own: Collection[str] = ()) -> tuple[str, ...]:
    """This project's own names, and those of plug-ins after them."""
    return tuple(dict.fromkeys((*own, *entries_in(group))))


def load_or_own(group: str, name: str, own: Mapping[str, str]) -> Callable[..., Any] | None:
    """What ``name`` stands for: a plug-in's, or what ``own`` names as ``module:attribute``.

    Returns:
        None where nobody has it.

    Raises:
        PluginBroken: A plug-in's is broken, or its name is taken twice.
    """
    entry = find_entry(group, name, own=own)
    if entry is not None:
        return cast(Callable[..., Any], entry.load())
    if name not in own:
        return None
    module, _, attribute = own[name].partition(":")
    return cast(Callable[..., Any], getattr(importlib.import_module(module), attribute))


def environment_makers(own: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    """What Gymnasium makes each environment of a plug-in with, by id; none is imported."""
    return {
        env_id: partial(_make_environment, env_id, tuple(own))
        for env_id in entries_in(ENVIRONMENTS)
    }


def _make_environment(env_id: str, own: Collection[str], **arguments: object) -> object:
    entry = find_entry(ENVIRONMENTS, env_id, own=own)
    if entry is None:
        raise PluginBroken(f"{ENVIRONMENTS} '{env_id}' is gone", "Install its distribution again")
    return cast(Callable[..., object], entry.load())(**arguments)
