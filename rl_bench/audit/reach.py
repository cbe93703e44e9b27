"""What of an agent's code a program reaches.

From the file that was started it goes through imports and calls, as far as the program's words let.

Reaching is over-approximated where Python is dynamic (a method of a class that is made, called by
its name) and marked uncertain where a condition cannot be decided.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from rl_bench.audit.commands import Program
from rl_bench.audit.conditions import Conditions, Truth, gathered
from rl_bench.audit.facts import MODULE, Command, ModuleFacts, Reference, Sign, Unit

MAX_VISITS = 20_000
_KEPT = 1_024
"""Answers about paths that are kept: agents' programs have the same names again and again."""
_ENTERED = ("__init__", "__call__", "forward", "__post_init__", MODULE)


class Reached(NamedTuple):
    """A sign that a program comes to; not ``certain``: under a condition nobody can decide."""

    path: str
    sign: Sign
    certain: bool


@dataclass(slots=True)
class Reach:
    """What one program reaches.

    Attributes:
        paths: Files that it reads.
        signs: What trains there.
        commands: Command lines that it starts, with whether that is certain.
        problems: Files that could not be read.
    """

    paths: set[str] = field(default_factory=set)
    signs: list[Reached] = field(default_factory=list)
    commands: list[tuple[str, Command, bool]] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def reach(entry: str, modules: Mapping[str, ModuleFacts], program: Program) -> Reach:
    """Follows a program from the file ``entry``.

    Args:
        entry: A key of ``modules``.
        modules: The files that were there, by path.
        program: Its words and variables.
    """
    return _Walk(modules, program, entry).walk()


class _Walk:
    def __init__(self, modules: Mapping[str, ModuleFacts], program: Program, entry: str) -> None:
        self._modules = modules
        self._program = program
        self._entry = entry
        self._units = {p: {u.name: u for u in m.units} for p, m in modules.items()}
        self._found = Reach()
        self._visited: dict[tuple[str, str], bool] = {}
        self._classes: dict[tuple[str, str], bool] = {}
        self._attributes: dict[str, bool] = {}
        self._todo: list[tuple[str, str, bool]] = []
        self._conditions = Conditions(program.args, program.env, {})
        self._files: dict[tuple[str, str], tuple[str, ...]] = {}

    def walk(self) -> Reach:
        self._enter_modules()
        for _ in range(MAX_VISITS):
            if not self._todo:
                break
            self._visit(*self._todo.pop())
        self._collect()
        return self._found

    def _enter_modules(self) -> None:
        """Every file that is imported, anywhere in a file, counts as read."""
        todo = [self._entry]
        while todo:
            path = todo.pop()
            if path in self._found.paths:
                continue
            self._found.paths.add(path)
            facts = self._modules[path]
            if facts.problem:
                self._found.problems[path] = facts.problem
            self._todo.append((path, MODULE, True))
            todo += [f for each in facts.imports for f in self._files_of(each.name, near=path)]
        pairs = (pair for path in self._found.paths for pair in self._modules[path].values)
        self._conditions = Conditions(self._program.args, self._program.env, gathered(pairs))

    def _files_of(self, module: str, *, near: str) -> tuple[str, ...]:
        """The file of the program that a module's name means, if it is one of it."""
        if (module, near) not in self._files:
            places = _places(module, near, self._entry)
            found = next((place for place in places if place in self._modules), None)
            self._files[module, near] = () if found is None else (found,)
        return self._files[module, near]

    def _visit(self, path: str, name: str, certain: bool) -> None:
        unit = self._units[path].get(name)
        if (
            unit is None
            or self._visited.get((path, name), False)
            or (not certain and (path, name) in self._visited)
        ):
            return
        self._visited[path, name] = certain
        for reference in unit.references:
            truth = self._conditions.all_of(reference.guards)
            if truth is not Truth.NO:
                self._follow(path, unit, reference, certain and truth is Truth.YES)

    def _follow(self, path: str, unit: Unit, reference: Reference, certain: bool) -> None:
        name = reference.name
        if name in self._units[path] and name != unit.name:
            self._todo.append((path, name, certain))
        self._make_class(path, name, certain)
        head, _, last = name.rpartition(".")
        if head:
            for found in self._files_of(head, near=path):
                self._todo.append((found, last, certain))
                self._make_class(found, last, certain)
            self._call_method(last, certain)

    def _make_class(self, path: str, name: str, certain: bool) -> None:
        """A class that is named may be made: its first steps run, others when they are called."""
        units = self._units[path]
        if f"{name}.{MODULE}" not in units or self._classes.get((path, name), False):
            return
        self._classes[path, name] = certain
        self._todo += [(path, f"{name}.{step}", certain) for step in _ENTERED]
        self._todo += [
            (path, f"{name}.{method}", certain and sure)
            for method, sure in self._attributes.items()
        ]
        for owner, base in self._modules[path].bases:
            if owner == name:
                self._make_class(path, base, certain)
                head, _, last = base.rpartition(".")
                for found in self._files_of(head, near=path) if head else ():
                    self._make_class(found, last, certain)

    def _call_method(self, name: str, certain: bool) -> None:
        if self._attributes.get(name, False) or (not certain and name in self._attributes):
            return
        self._attributes[name] = certain
        self._todo += [
            (path, f"{owner}.{name}", certain and sure)
            for (path, owner), sure in self._classes.items()
        ]

    def _collect(self) -> None:
        for (path, name), certain in self._visited.items():
            for sign in self._units[path][name].signs:
                truth = self._conditions.all_of(sign.guards)
                if truth is not Truth.NO:
                    sure = certain and truth is Truth.YES
                    self._found.signs.append(Reached(path, sign, sure))
            for command in self._modules[path].commands:
                truth = self._conditions.all_of(command.guards)
                if command.unit == name and truth is not Truth.NO:
                    sure = certain and truth is Truth.YES
                    self._found.commands.append((path, command, sure))


@lru_cache(maxsize=_KEPT)
def _places(module: str, near: str, entry: str) -> tuple[str, ...]:
    """Where the file of a module may lie that a file ``near`` imports, the likeliest first."""
    parts = module.lstrip(".").replace(".", "/")
    folders = [PurePosixPath(near).parent, PurePosixPath(entry).parent]
    folders += [*PurePosixPath(near).parent.parents, PurePosixPath("code")]
    names = (f"{parts}.py", f"{parts}/__init__.py")
    return tuple(str(folder / name) for folder in folders for name in names)


def find_file(target: str, paths: Iterable[str], *, folder: str, root: str) -> list[str]:
    """The files that a command's word may mean.

    Args:
        target: As it was typed.
        paths: Relative to the workspace.
        folder: Where the command was started, relative or absolute; empty: not known.
        root: The workspace.

    Returns:
        One path where it is clear, several where the last parts fit several, else none.
    """
    known = set(paths)
    typed = target if target.startswith("/") else f"{folder}/{target}" if folder else target
    relative = _normal(typed.removeprefix(f"{root}/"))
    for candidate in (relative, f"code/{relative}"):
        if candidate in known:
            return [candidate]
    tail = _parts(_normal(target))
    while tail and tail[0] in ("/", "..", "$WORKSPACE"):
        tail = tail[1:]
    return sorted(p for p in known if tail and _parts(p)[-len(tail) :] == tail)


@lru_cache(maxsize=_KEPT)
def _parts(path: str) -> tuple[str, ...]:
    return PurePosixPath(path).parts


@lru_cache(maxsize=_KEPT)
def _normal(path: str) -> str:
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return str(PurePosixPath(*parts)) if parts else "."
