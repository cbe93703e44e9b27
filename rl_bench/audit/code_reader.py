"""Reads one Python file into facts: calls, conditions, trainers, loops, command lines, texts.

Runs in the reader's child process (`rl_bench.audit.reader_process`), since a hostile file can make
the parser itself fail. Nothing is imported or executed.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rl_bench.audit.facts import (
    Command,
    Guard,
    ModuleFacts,
    Reference,
    Sign,
    Text,
    Unit,
)
from rl_bench.audit.frameworks import TRAIN_VERBS, Family, Method, trainer_method
from rl_bench.audit.guarded import guards_by_node
from rl_bench.audit.losses import LOSS_METHODS, Losses
from rl_bench.audit.scopes import Names, Scope
from rl_bench.audit.values import command_words, known_values

MAX_LISTED = 400
"""Texts and calls that are kept of one file."""


class _Made(NamedTuple):
    """A trainer that a function makes."""

    method: Method
    node: ast.Call
    scope: str


def read_module(path: str, source: str) -> ModuleFacts:
    """The facts of a file; what cannot be parsed has a ``problem`` and no facts."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return ModuleFacts(path=path, problem=f"{type(error).__name__}: {error}"[:200])
    return _Reader(path, source, tree).facts()


class _Reader:
    def __init__(self, path: str, source: str, tree: ast.Module) -> None:
        self._path = path
        self._lines = source.splitlines()
        self._names = Names.of(tree)
        self._losses = Losses(self._names)
        self._guards = guards_by_node(tree)
        self._tree = tree
        self._own_losses = self._overridden_losses()
        self._factories: dict[str, Method] = {}
        self._find_factories()

    def facts(self) -> ModuleFacts:
        scopes = self._names.scopes.values()
        return ModuleFacts(
            path=self._path,
            imports=tuple(self._imports()),
            units=tuple(self._unit(scope) for scope in scopes),
            bases=tuple((c, b) for c, bases in self._names.bases.items() for b in bases),
            values=tuple(known_values(self._tree)),
            commands=tuple(c for scope in scopes for c in self._commands(scope)),
            texts=tuple(self._texts())[:MAX_LISTED],
            calls=tuple(self._foreign_calls())[:MAX_LISTED],
        )

    def _unit(self, scope: Scope) -> Unit:
        return Unit(
            name=scope.name,
            references=tuple(self._references(scope)),
            signs=tuple(self._signs(scope)),
        )

    def _imports(self) -> Iterator[Reference]:
        modules: set[str] = set()
        for full in [*self._names.imported.values(), *self._names.starred]:
            # ``from a.b import c`` may name a module or something in it: both are looked for.
            modules |= {full, full.rpartition(".")[0] or full}
        yield from (Reference(name=name) for name in sorted(modules) if name.strip("."))

    def _references(self, scope: Scope) -> Iterator[Reference]:
        seen: set[tuple[str, tuple[Guard, ...]]] = set()
        for node in scope.nodes:
            name = ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                name = self._names.imported.get(node.id, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                name = self._names.dotted(node) or f".{node.attr}"
            key = (name, self._at(node))
            if name and key not in seen:
                seen.add(key)
                yield Reference(name=name, guards=key[1])
        # What a class or function has inside it is entered through its name, see `reach`.

    def _signs(self, scope: Scope) -> Iterator[Sign]:
        trained: set[int] = set()
        for node in scope.nodes:
            if isinstance(node, ast.Call):
                made = self._trains(node, scope)
                if made is not None:
                    trained.add(id(made.node))
                    yield self._sign("train", made.method, node, shown=made.node)
        for made in self._made(scope):
            if id(made.node) not in trained and not self._is_returned(made, scope):
                yield self._sign("construct", made.method, made.node)
        if scope.name.rpartition(".")[2] not in LOSS_METHODS:
            for update in self._losses.updates(scope):
                yield self._sign("train", update.method, update.node)
        for call in self._losses.samples(scope):
            yield self._sign("generate", Method("generate", Family.UNCLEAR, online=True), call)

    def _sign(
        self, kind: str, method: Method, node: ast.AST, *, shown: ast.AST | None = None
    ) -> Sign:
        """A sign at ``node``; people are shown where the trainer is made."""
        line = getattr(shown or node, "lineno", 1)
        quote = self._lines[line - 1] if line <= len(self._lines) else ""
        return Sign.model_validate(
            {
                "kind": kind,
                "method": method.name,
                "family": method.family,
                "online": method.online,
                "line": line,
                "quote": quote.strip()[:200],
                "guards": self._at(node),
            }
        )

    def _at(self, node: ast.AST) -> tuple[Guard, ...]:
        return self._guards.get(id(node), ())

    # Trainers

    def _method_of_class(self, dotted: str, depth: int = 0) -> Method | None:
        method = trainer_method(dotted)
        if method is not None or depth > 8:
            return method
        for base in self._names.bases.get(dotted, ()):
            method = self._method_of_class(base, depth + 1)
            if method is not None:
                own = self._own_losses.get(dotted)
                return own if own is not None and method.family is Family.SFT else method
        return None

    def _overridden_losses(self) -> dict[str, Method]:
        """What the trainers of the file's own minimise, by class."""
        found: dict[str, Method] = {}
        for scope in self._names.scopes.values():
            owner, _, name = scope.name.rpartition(".")
            if owner and name in LOSS_METHODS:
                methods = [self._losses.method_of(value, scope) for value in scope.returns]
                families = [m for m in methods if m.family is not Family.UNCLEAR]
                if families:
                    found[owner] = next((m for m in families if m.family is Family.RL), families[0])
        return found

    def _maker(self, node: ast.expr) -> Method | None:
        """The method of the trainer that a call makes, directly or through a function."""
        if not isinstance(node, ast.Call):
            return None
        dotted = self._names.dotted(node.func)
        if dotted in {"trlx.train"}:
            return None
        return self._method_of_class(dotted) or self._factories.get(dotted)

    def _find_factories(self) -> None:
        """Functions of the file that return a trainer."""
        for scope in self._names.scopes.values():
            for value in scope.returns:
                for candidate in [value, *self._given(value, scope)]:
                    method = self._maker(candidate)
                    if method is not None:
                        self._factories[scope.name] = method

    def _given(self, node: ast.expr, scope: Scope) -> Sequence[ast.expr]:
        return scope.values_of(ast.unparse(node)) if _is_name(node) else ()

    def _made(self, scope: Scope) -> Iterator[_Made]:
        for node in scope.nodes:
            method = self._maker(node) if isinstance(node, ast.Call) else None
            if method is not None and isinstance(node, ast.Call):
                yield _Made(method, node, scope.name)

    def _trains(self, node: ast.Call, scope: Scope) -> _Made | None:
        """The trainer whose weights a call updates."""
        if self._names.dotted(node.func) == "trlx.train":
            return _Made(_trlx_method(node), node, scope.name)
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in TRAIN_VERBS:
            return None
        owner = node.func.value
        candidates = [owner, *reversed(list(self._given(owner, scope)))]
        if _is_name(owner):
            candidates += self._from_other_methods(owner, scope)
        before = [c for c in candidates if getattr(c, "lineno", 0) <= node.lineno]
        for candidate in [*before, *candidates]:
            method = self._maker(candidate)
            if method is not None and isinstance(candidate, ast.Call):
                return _Made(method, candidate, scope.name)
        return None

    def _from_other_methods(self, owner: ast.expr, scope: Scope) -> list[ast.expr]:
        """What ``self.trainer`` was given anywhere in the class."""
        if not isinstance(owner, ast.Attribute):
            return []
        prefix, name = scope.name.rpartition(".")[0], ast.unparse(owner)
        others = self._names.scopes.items()
        same = [s for key, s in others if key.rpartition(".")[0] == prefix]
        return [value for s in same for value in s.assigned.get(name, [])]

    def _is_returned(self, made: _Made, scope: Scope) -> bool:
        return made.scope in self._factories and any(
            made.node is value or made.node in self._given(value, scope) for value in scope.returns
        )

    # Everything else

    def _commands(self, scope: Scope) -> Iterator[Command]:
        for node in scope.nodes:
            if isinstance(node, ast.Call):
                words = command_words(node, self._names.dotted(node.func), scope)
                if words:
                    yield Command(
                        words=words, unit=scope.name, line=node.lineno, guards=self._at(node)
                    )

    def _texts(self) -> Iterator[Text]:
        docs = {
            id(node.value)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        owners: dict[int, str] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                name = self._names.dotted(node.func)
                for given in [*node.args, *(k.value for k in node.keywords)]:
                    owners.setdefault(id(given), name)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if id(node) not in docs and 3 < len(text) <= 1000:
                    yield Text(value=text, line=node.lineno, call=owners.get(id(node), ""))

    def _foreign_calls(self) -> Iterator[tuple[str, int]]:
        imported = {name.partition(".")[0] for name in self._names.imported.values()}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                name = self._names.dotted(node.func)
                if name.partition(".")[0] in imported:
                    yield name, node.lineno


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )


def _trlx_method(node: ast.Call) -> Method:
    """Trlx trains by what it is given: a reward function, rewards of samples, or samples."""
    given = {keyword.arg for keyword in node.keywords}
    if "reward_fn" in given:
        return Method("ppo", Family.RL, online=True)
    return Method("ilql", Family.RL) if "rewards" in given else Method("sft", Family.SFT)
