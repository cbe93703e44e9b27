"""Which conditions lead to each node of a Python file."""

import ast
from collections.abc import Iterator, Sequence

from rl_bench.audit.facts import Guard
from rl_bench.audit.guards import case_guards, guards_of

_Guards = tuple[Guard, ...]
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_EXITS = frozenset({"exit", "_exit", "quit"})
MAX_GUARDS = 12


def guards_by_node(tree: ast.Module) -> dict[int, _Guards]:
    """By a node's id, the conditions within its own function; nodes without any are left out."""
    found: dict[int, _Guards] = {}
    stack: list[tuple[ast.AST, _Guards]] = [(tree, ())]
    while stack:
        node, guards = stack.pop()
        if guards:
            found[id(node)] = guards[-MAX_GUARDS:]
        stack += _children(node, guards)
    return found


def _children(node: ast.AST, guards: _Guards) -> Iterator[tuple[ast.AST, _Guards]]:
    match node:
        case ast.If():
            yield node.test, guards
            yield from _block(node.body, guards + guards_of(node.test))
            yield from _block(node.orelse, guards + guards_of(node.test, negated=True))
        case ast.IfExp():
            yield node.test, guards
            yield node.body, guards + guards_of(node.test)
            yield node.orelse, guards + guards_of(node.test, negated=True)
        case ast.BoolOp(op=ast.And()):
            for value in node.values:
                yield value, guards
                guards = guards + guards_of(value)
        case ast.Dict():
            is_table = all(
                isinstance(v, ast.Name | ast.Attribute | ast.Lambda) for v in node.values
            )
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None:
                    yield key, guards
                yield value, guards + (_chosen_by(key) if is_table else ())
        case ast.Match():
            yield node.subject, guards
            for case in node.cases:
                yield from _block(case.body, guards + case_guards(node.subject, case.pattern))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            for decorator in node.decorator_list:
                yield decorator, guards
            # A function's body is reached through calls of it, not through its definition.
            yield from _block(node.body, guards if isinstance(node, ast.ClassDef) else ())
        case _:
            for _, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield from _block(value, guards)
                elif isinstance(value, list):
                    yield from ((item, guards) for item in value if isinstance(item, ast.AST))
                elif isinstance(value, ast.AST):
                    yield value, guards


def _block(body: Sequence[ast.stmt], guards: _Guards) -> Iterator[tuple[ast.AST, _Guards]]:
    """Statements in order: after ``if x: return`` the rest needs ``not x``."""
    for statement in body:
        yield statement, guards
        if isinstance(statement, ast.If) and not statement.orelse and _ends(statement.body):
            guards = guards + guards_of(statement.test, negated=True)


def _ends(body: Sequence[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        function = last.value.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        return (name or getattr(function, "id", "")) in _EXITS
    return isinstance(last, _ENDS)


def _chosen_by(key: ast.expr | None) -> _Guards:
    """An entry of a table, e.g. of functions by a method's name."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return (Guard(subject="", values=(key.value,), is_option=True),)
    return ()
