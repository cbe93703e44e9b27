"""Names of one Python file: what imports call them, and what functions assign to them."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from rl_bench.audit.facts import MODULE

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_ADDING = frozenset({"append", "extend", "add", "insert"})


@dataclass(slots=True)
class Scope:
    """One function, or the module's own statements.

    Attributes:
        assigned: Expressions that a name was given, all of them, in order.
        returns: What the function returns.
    """

    name: str
    node: ast.AST
    parent: "Scope | None" = None
    assigned: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    returns: list[ast.expr] = field(default_factory=list)
    nodes: list[ast.AST] = field(default_factory=list)

    def values_of(self, name: str) -> list[ast.expr]:
        """What ``name`` was given here or, if nothing, in what surrounds this."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.assigned:
                return scope.assigned[name]
            scope = scope.parent
        return []


@dataclass(slots=True)
class Names:
    """The names of a file.

    Attributes:
        imported: Local name to full name.
        starred: Modules of ``from x import *``.
        scopes: By unit's name, ``f``, ``Class.f`` or `MODULE`; nested functions by their own name.
        bases: Class to the full names of its bases.
    """

    imported: dict[str, str] = field(default_factory=dict)
    starred: list[str] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: ast.Module) -> "Names":
        """Reads a parsed file."""
        names = cls()
        for node in ast.walk(tree):
            names._take_import(node)
        names._enter(Scope(MODULE, tree), tree.body, owner="")
        return names

    def dotted(self, node: ast.expr) -> str:
        """The full name of ``a.b.c``, imports resolved; empty when it is no name."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id) or self._from_star(node.id) or node.id
        if isinstance(node, ast.Attribute):
            head = self.dotted(node.value)
            return f"{head}.{node.attr}" if head else ""
        if isinstance(node, ast.Call):  # getattr(trl, "GRPOTrainer"), import_module("trl")
            name = self.dotted(node.func)
            given = [a.value if isinstance(a, ast.Constant) else None for a in node.args]
            if name == "getattr" and len(given) >= 2 and isinstance(given[1], str):
                return f"{self.dotted(node.args[0])}.{given[1]}"
            loads = name in {"__import__", "importlib.import_module", "import_module"}
            if loads and given and isinstance(given[0], str):
                return given[0]
        return ""

    def _from_star(self, name: str) -> str:
        if name in self.scopes or name in self.bases or not name[:1].isupper():
            return ""
        return f"{self.starred[0]}.{name}" if self.starred else ""

    def _take_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                self.imported[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    self.starred.append(module)
                else:
                    joined = f"{module}{alias.name}" if module.endswith(".") else ""
                    self.imported[alias.asname or alias.name] = joined or f"{module}.{alias.name}"

    def _enter(self, scope: Scope, body: list[ast.stmt], *, owner: str) -> None:
        # Two functions of one name are read as one: either may be meant.
        known = self.scopes.setdefault(scope.name, scope)
        if known is not scope:
            scope.assigned, scope.nodes, scope.returns = known.assigned, known.nodes, known.returns
        for node in own_nodes(body):
            scope.nodes.append(node)
            _take_assignments(scope, node)
            if isinstance(node, FunctionNode):
                self._enter_function(scope, node, owner=owner)
            elif isinstance(node, ast.ClassDef):
                self.bases[node.name] = [self.dotted(base) for base in node.bases]
                inner = Scope(f"{node.name}.{MODULE}", node, parent=scope)
                self._enter(inner, node.body, owner=node.name)

    def _enter_function(self, scope: Scope, node: FunctionNode, *, owner: str) -> None:
        name = f"{owner}.{node.name}" if owner else node.name
        inner = Scope(name, node, parent=scope)
        arguments = node.args
        defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
        scope.nodes += [child for value in defaults for child in ast.walk(value)]
        self._enter(inner, node.body, owner="")


def own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes below ``body`` in order, functions and classes included, what is in them not."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, FunctionNode):
            stack += reversed(node.decorator_list)
        elif not isinstance(node, ast.ClassDef):
            stack += reversed(list(ast.iter_child_nodes(node)))


def _take_assignments(scope: Scope, node: ast.AST) -> None:
    match node:
        case ast.Assign():
            for target in node.targets:
                _give(scope, target, node.value)
        case ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=ast.expr() as value):
            _give(scope, node.target, value)
        case ast.NamedExpr():
            _give(scope, node.target, node.value)
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            _give_elements(scope, node.target, node.iter)
        case ast.With() | ast.AsyncWith():
            for item in node.items:
                if item.optional_vars is not None:
                    _give(scope, item.optional_vars, item.context_expr)
        case ast.Call(func=ast.Attribute(attr=verb, value=ast.Name() as owner), args=args):
            if verb in _ADDING:
                for value in args:
                    scope.assigned[owner.id].append(value)
        case ast.Return(value=ast.expr() as value):
            scope.returns.append(value)


def _give(scope: Scope, target: ast.expr, value: ast.expr) -> None:
    match target, value:
        case ast.Name(), _:
            scope.assigned[target.id].append(value)
        case ast.Attribute(), _:
            scope.assigned[ast.unparse(target)].append(value)
        case ast.Subscript(), _:
            _give(scope, target.value, value)
        case ast.Starred(), _:
            _give(scope, target.value, value)
        case ((ast.Tuple() | ast.List()), (ast.Tuple() | ast.List())):
            if len(target.elts) == len(value.elts):
                for one, given in zip(target.elts, value.elts, strict=True):
                    _give(scope, one, given)
        case ((ast.Tuple() | ast.List()), _):
            for one in target.elts:
                _give(scope, one, value)


def _give_elements(scope: Scope, target: ast.expr, values: ast.expr) -> None:
    """A loop's variable gets what it runs over, element by element where that is a ``zip``."""
    if isinstance(values, ast.Call) and isinstance(values.func, ast.Name):
        name, args = values.func.id, values.args
        if isinstance(target, ast.Tuple):
            if name == "zip" and len(args) == len(target.elts):
                for one, each in zip(target.elts, args, strict=True):
                    _give_elements(scope, one, each)
                return
            if name == "enumerate" and len(target.elts) == 2 and args:
                _give_elements(scope, target.elts[1], args[0])
                return
    _give(scope, target, values)
