"""Constants of a Python file: what names may hold, and the words of commands that it starts."""

import ast
import shlex
from collections.abc import Iterator, Sequence

from rl_bench.audit.scopes import Scope

UNKNOWN = "?"
"""A value, or a word of a command, that is no constant."""
EACH = "each:"
"""Before a value that a loop gives a name among others."""
_STARTERS = frozenset(
    {"run", "Popen", "call", "check_call", "check_output", "system", "popen", "execvp", "execv"}
    | {"create_subprocess_exec", "create_subprocess_shell", "getoutput", "getstatusoutput"}
)
_OWNERS = frozenset({"subprocess", "os", "asyncio", "sp"})
_MAX_WORDS = 200


def known_values(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs of a name and a value that it may have, as text; `UNKNOWN` where one is computed."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield from _valued(name, node.value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield from _valued(name, value)
            case ast.For(target=ast.Name(id=name), iter=ast.List() | ast.Tuple() as listed):
                values = [_constant(e) for e in listed.elts]
                yield from ((name, EACH + v) for v in values if v is not None)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                arguments = node.args.args[len(node.args.args) - len(node.args.defaults) :]
                for argument, default in zip(arguments, node.args.defaults, strict=True):
                    yield from _valued(argument.arg, default, computed=False)
            case ast.Call(func=ast.Attribute(attr="add_argument")):
                yield from _option(node)
            case ast.Call():
                for keyword in node.keywords:
                    if keyword.arg:
                        yield from _valued(keyword.arg, keyword.value, computed=False)


def _valued(name: str, node: ast.expr, *, computed: bool = True) -> Iterator[tuple[str, str]]:
    value = _constant(node)
    if value is not None:
        yield name, value
    elif computed and not _is_option_of(node, name):
        yield name, UNKNOWN


def _is_option_of(node: ast.expr, name: str) -> bool:
    """``method = args.method``: the option says it all."""
    return isinstance(node, ast.Attribute) and node.attr == name


def _constant(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | int | None):
        return str(node.value)
    return None


def _option(node: ast.Call) -> Iterator[tuple[str, str]]:
    flags = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    names = [flag.lstrip("-").replace("-", "_") for flag in flags if flag.startswith("--")]
    names = names or [flag for flag in flags if not flag.startswith("-")]
    action = given.get("action")
    for name in names:
        if "default" in given:
            yield from _valued(name, given["default"])
        elif isinstance(action, ast.Constant) and action.value == "store_true":
            yield name, "False"
        elif isinstance(action, ast.Constant) and action.value == "store_false":
            yield name, "True"


def command_words(node: ast.Call, dotted: str, scope: Scope) -> tuple[str, ...]:
    """The command that a call starts, a shell's as ``sh -c TEXT``; empty when it starts none."""
    owner, _, name = dotted.rpartition(".")
    if dotted in {"runpy.run_path", "runpy.run_module"} and node.args:
        target = _word(node.args[0])
        return ("python", target) if name == "run_path" else ("python", "-m", target)
    if name not in _STARTERS or owner.rpartition(".")[2] not in _OWNERS or not node.args:
        return ()
    if name == "create_subprocess_exec":
        return _words(node.args)
    first = node.args[1] if name.startswith("execv") and len(node.args) > 1 else node.args[0]
    for candidate in [first, *_named(first, scope)]:
        if isinstance(candidate, ast.List | ast.Tuple):
            return _words(candidate.elts)
        if isinstance(candidate, ast.BinOp):  # [...] + extra
            parts = [candidate.left, candidate.right]
            lists = [p for p in parts if isinstance(p, ast.List | ast.Tuple)]
            if lists:
                return _words([e for p in lists for e in p.elts])
        text = _word(candidate)
        if text != UNKNOWN:
            return ("sh", "-c", text)
    return ()


def _named(node: ast.expr, scope: Scope) -> Sequence[ast.expr]:
    return scope.values_of(node.id)[-1:] if isinstance(node, ast.Name) else ()


def _words(nodes: Sequence[ast.expr]) -> tuple[str, ...]:
    return tuple(_word(node) for node in nodes[:_MAX_WORDS])


def _word(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(p.value) if isinstance(p, ast.Constant) else UNKNOWN for p in parts)
        case ast.Attribute(attr="executable"):
            return "python"
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return _word(inner)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="shlex"), attr="split"), args=[inner]):
            return shlex.quote(_word(inner))
    return UNKNOWN
