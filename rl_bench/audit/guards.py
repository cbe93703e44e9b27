"""Reads conditions of Python statements, as far as a name is compared with texts or is a flag.

Other conditions, e.g. on lengths and step counts, are taken to hold: they lie on every training
script's way.
"""

import ast
from collections.abc import Sequence

from rl_bench.audit.facts import Guard

_OPTION_HOLDERS = frozenset(
    {"args", "opts", "options", "cfg", "config", "conf", "flags", "ns", "hparams", "params", "hp"}
)
_CASTS = frozenset({"int", "bool", "str", "lower", "strip", "upper"})
NEVER = Guard(never=True)


def guards_of(test: ast.expr, *, negated: bool = False) -> tuple[Guard, ...]:
    """What must hold for the branch of ``test``, a conjunction; empty: nothing that can be read."""
    match test:
        case ast.Constant():
            return () if bool(test.value) is not negated else (NEVER,)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return () if negated else (NEVER,)
        case ast.UnaryOp(op=ast.Not()):
            return guards_of(test.operand, negated=not negated)
        case ast.BoolOp():
            return _of_several(test, negated=negated)
        case ast.Compare(ops=[op], comparators=[right]):
            return _of_comparison(test.left, op, right, negated=negated)
    flag = _flag(test)
    return () if flag is None else (flag.model_copy(update={"negated": negated}),)


def case_guards(subject: ast.expr, pattern: ast.pattern) -> tuple[Guard, ...]:
    """The same for a ``case`` of a ``match`` statement."""
    alternatives = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
    values = [
        alternative.value.value
        for alternative in alternatives
        if isinstance(alternative, ast.MatchValue) and isinstance(alternative.value, ast.Constant)
    ]
    texts = tuple(value for value in values if isinstance(value, str))
    name = _flag(subject)
    if name is None or not texts or len(texts) < len(alternatives):
        return ()
    return (name.model_copy(update={"values": texts}),)


def _of_several(test: ast.BoolOp, *, negated: bool) -> tuple[Guard, ...]:
    parts = [guards_of(part, negated=negated) for part in test.values]
    if isinstance(test.op, ast.And) is not negated:
        return tuple(guard for part in parts for guard in part)
    if any(not part for part in parts):
        return ()
    singles = [part[0] for part in parts if len(part) == 1]
    subjects = {(guard.subject, guard.negated) for guard in singles}
    if len(singles) == len(parts) and len(subjects) == 1 and all(g.values for g in singles):
        values = tuple(value for guard in singles for value in guard.values)
        return (singles[0].model_copy(update={"values": values}),)
    return (NEVER,) if all(guard.never for part in parts for guard in part) else ()


def _of_comparison(
    left: ast.expr, op: ast.cmpop, right: ast.expr, *, negated: bool
) -> tuple[Guard, ...]:
    if not isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
        return ()
    values, other = texts_in(right), left
    if not values:
        values, other = texts_in(left), right
    subject = _flag(other)
    if subject is None or not values or subject.subject == "__name__":
        return ()
    opposite = isinstance(op, (ast.NotEq, ast.NotIn))
    return (subject.model_copy(update={"values": values, "negated": negated is not opposite}),)


def texts_in(node: ast.expr) -> tuple[str, ...]:
    """The text constants that ``node`` is, or lists and nothing else; empty otherwise."""
    elements: Sequence[ast.expr] = (
        node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    )
    texts = [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return tuple(texts) if len(texts) == len(elements) else ()


def _flag(node: ast.expr) -> Guard | None:
    """The name that an expression looks at."""
    match node:
        case ast.Name():
            return Guard(subject=node.id)
        case ast.Attribute(value=ast.Name(id=holder)):
            is_option = holder.lower() in _OPTION_HOLDERS
            return Guard(subject=node.attr, is_option=is_option) if is_option else None
        case ast.Attribute(value=ast.Attribute(attr=holder)):
            return Guard(subject=node.attr) if holder in _OPTION_HOLDERS else None
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return Guard(subject=key, is_option=True)
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="sys"), attr="argv")):
            return Guard(subject="argv", is_option=True)
        case ast.Call(
            func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=key), *_]
        ):
            return Guard(subject=str(key), is_option=True)
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _CASTS:
            return _flag(inner)
        case ast.Call(func=ast.Attribute(attr=name, value=inner)) if name in _CASTS:
            return _flag(inner)
    return None
