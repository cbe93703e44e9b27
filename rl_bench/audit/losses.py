"""What a training loop of somebody's own minimises, read from the data flow of its loss.

From ``loss.backward()`` (or the value of a trainer's ``compute_loss``) the expressions that the
loss is made of are followed through assignments and functions of the same file. What is multiplied
with what decides: log-probabilities times rewards or advantages are reinforcement learning, a
log-sigmoid of differences is a preference loss, a divergence from another model is distillation,
and cross-entropy alone is supervised. Names count only where they stand in that flow.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rl_bench.audit.facts import MODULE
from rl_bench.audit.frameworks import (
    DISTILL,
    EVOLUTION,
    MERGE,
    OFFLINE_RL,
    POLICY_GRADIENT,
    PREFERENCE,
    REWARD_MODEL,
    SFT,
    UNCLEAR,
    Method,
)
from rl_bench.audit.scopes import Names, Scope

MAX_EXPRESSIONS = 4000
"""Followed from one loss."""
MAX_PRODUCTS = 300
LOSS_METHODS = frozenset({"compute_loss", "_compute_loss", "training_step"})

_LOG_PROBABILITY_CALLS = frozenset(
    {"log_softmax", "log_prob", "selective_log_softmax", "cross_entropy", "nll_loss"}
    | {"CrossEntropyLoss", "NLLLoss", "logsumexp"}
)
_CROSS_ENTROPY_CALLS = frozenset({"cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"})
_DIVERGENCES = frozenset({"kl_div", "KLDivLoss"})
_LOG_SIGMOID = frozenset({"logsigmoid", "LogSigmoid"})
_NOISE = frozenset({"randn", "randn_like", "normal", "normal_", "standard_normal"})
_WEIGHTS = frozenset({"from_pretrained", "load_file", "state_dict", "get_tensor"})
_GENERATES = frozenset({"generate", "chat", "rollout", "rollouts", "multinomial", "sample"})
_TO_TENSORS = frozenset({"tok", "apply_chat_template", "pad", "dataloader", "from_list", "dataset"})
_REWARD = frozenset(
    {"reward", "rewards", "rew", "rews", "adv", "advs", "advantage", "advantages", "returns"}
    | {"score", "scores", "earned", "payoff", "correctness", "fitness"}
)
_LOG_PROBABILITY = frozenset(
    {"logp", "logps", "logprob", "logprobs", "lp", "lps", "nll", "ratio", "ratios"}
)
_PREFERRED, _REJECTED = {"chosen", "win", "winner", "preferred"}, {"rejected", "lose", "loser"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


class Update(NamedTuple):
    """A place where weights are changed."""

    node: ast.AST
    method: Method


@dataclass(slots=True)
class _Flow:
    """The expressions that a value is made of: calls, words of names, products."""

    calls: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    products: list[tuple[ast.expr, ast.expr, Scope]] = field(default_factory=list)
    subtracts: bool = False
    labelled: bool = False

    @property
    def has_log_probability(self) -> bool:
        named = self.words & _LOG_PROBABILITY or {"log", "prob"} <= self.words
        return bool(self.calls & _LOG_PROBABILITY_CALLS or named or {"log", "probs"} <= self.words)

    @property
    def has_reward(self) -> bool:
        return bool(self.words & _REWARD)


class Losses:
    """Finds the updates of one file.

    Args:
        names: The file's names.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._flows: dict[tuple[str | int, int], _Flow] = {}

    def updates(self, scope: Scope) -> Iterator[Update]:
        """The updates that a function makes itself."""
        for node in scope.nodes:
            if isinstance(node, ast.Call):
                for loss in _losses_of(node):
                    yield Update(node, self.method_of(loss, scope))
        if scope.name.rpartition(".")[2] in LOSS_METHODS:
            for value in scope.returns:
                yield Update(value, self.method_of(value, scope))
        yield from self._perturbations(scope)
        yield from self._averages(scope)

    def samples(self, scope: Scope) -> Iterator[ast.Call]:
        """Where a function draws samples of a model."""
        for node in scope.nodes:
            if isinstance(node, ast.Call) and _last_name(node.func) in _GENERATES:
                yield node

    def method_of(self, loss: ast.expr, scope: Scope) -> Method:
        """What minimising ``loss`` is called."""
        flow = self._flow(loss, scope)
        if self._is_preference(flow):
            return PREFERENCE if flow.has_log_probability else REWARD_MODEL
        if any(self._weighs(*product) for product in flow.products[:MAX_PRODUCTS]):
            return POLICY_GRADIENT if self._samples_anywhere() else OFFLINE_RL
        if flow.calls & _DIVERGENCES or ("teacher" in flow.words and "softmax" in flow.words):
            return DISTILL
        if flow.labelled or flow.calls & _CROSS_ENTROPY_CALLS:
            return SFT
        if flow.has_log_probability and not flow.has_reward:
            return SFT
        return UNCLEAR

    def _is_preference(self, flow: _Flow) -> bool:
        paired = bool(flow.words & _PREFERRED and flow.words & _REJECTED)
        squashed = bool(flow.calls & _LOG_SIGMOID) or {"log", "sigmoid"} <= flow.calls
        squashed = squashed or "softplus" in flow.calls
        return (squashed and flow.subtracts) or (
            paired and flow.subtracts and flow.has_log_probability
        )

    def _weighs(self, left: ast.expr, right: ast.expr, scope: Scope) -> bool:
        """Whether one factor is a log-probability and the other a reward."""
        one, other = self._flow(left, scope), self._flow(right, scope)
        return (one.has_log_probability and other.has_reward) or (
            other.has_log_probability and one.has_reward
        )

    def _samples_anywhere(self) -> bool:
        return any(True for s in self._names.scopes.values() for _ in self.samples(s))

    def _flow(self, expression: ast.expr, scope: Scope) -> _Flow:
        # A name means the same wherever it stands in a function.
        what = expression.id if isinstance(expression, ast.Name) else id(expression)
        key = (what, id(scope))
        if key not in self._flows:
            self._flows[key] = _Flow()  # for a value that depends on itself
            self._flows[key] = self._follow(expression, scope)
        return self._flows[key]

    def _follow(self, expression: ast.expr, scope: Scope) -> _Flow:
        flow = _Flow()
        seen: set[tuple[int, int]] = set()
        named: set[tuple[str, int]] = set()
        stack: list[tuple[ast.AST, Scope]] = [(expression, scope)]
        while stack and len(seen) < MAX_EXPRESSIONS:
            node, where = stack.pop()
            if (id(node), id(where)) in seen:
                continue
            seen.add((id(node), id(where)))
            self._take(flow, node, where)
            if not _is_cut(node):
                stack += [(child, where) for child in _parts(node)]
                stack += self._sources(node, where, named)
        return flow

    def _sources(
        self, node: ast.AST, scope: Scope, named: set[tuple[str, int]]
    ) -> list[tuple[ast.AST, Scope]]:
        """What a name was given, or a function of the file returns; each name once."""
        if isinstance(node, ast.Call):
            return [(value, called) for called in self._called(node) for value in called.returns]
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
        else:
            return []
        if (name, id(scope)) in named:
            return []
        named.add((name, id(scope)))
        return [(value, scope) for value in scope.values_of(name)]

    def _called(self, node: ast.Call) -> Iterable[Scope]:
        name = _last_name(node.func)
        if isinstance(node.func, ast.Name):
            found = self._names.scopes.get(name)
            return [found] if found is not None and name != MODULE else []
        return [s for key, s in self._names.scopes.items() if key.endswith(f".{name}")][:4]

    def _take(self, flow: _Flow, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Name():
                flow.words |= words_of(node.id)
            case ast.Attribute():
                flow.words |= words_of(node.attr)
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                flow.words |= words_of(key)
            case ast.BinOp(op=ast.Mult()):
                flow.products.append((node.left, node.right, scope))
            case ast.BinOp(op=ast.Sub()):
                flow.subtracts = True
            case ast.Call():
                flow.calls.add(_last_name(node.func))
                flow.labelled = flow.labelled or any(k.arg == "labels" for k in node.keywords)
                if _last_name(node.func) in {"mul", "dot", "einsum"}:
                    values = [a for a in node.args if not isinstance(a, ast.Constant)]
                    if isinstance(node.func, ast.Attribute) and len(values) == 1:
                        values = [node.func.value, *values]
                    flow.products += [(a, b, scope) for a, b in pairwise(values)]

    def _perturbations(self, scope: Scope) -> Iterator[Update]:
        """Weights moved by noise that rewards weigh: evolution strategies, without gradients."""
        for node in scope.nodes:
            match node:
                case ast.Call(func=ast.Attribute(attr="add_" | "copy_" | "sub_"), args=[value, *_]):
                    pass
                case ast.AugAssign(target=ast.Attribute(attr="data"), value=value):
                    pass
                case _:
                    continue
            flow = self._flow(value, scope)
            if flow.calls & _NOISE and flow.has_reward and flow.products:
                yield Update(node, EVOLUTION)

    def _averages(self, scope: Scope) -> Iterator[Update]:
        """Weights computed from those of two or more loaded models, and saved."""
        calls = [_last_name(n.func) for n in scope.nodes if isinstance(n, ast.Call)]
        loads = sum(name in {"from_pretrained", "load_file", "safe_open"} for name in calls)
        saves = any(name in {"save_pretrained", "save_file", "load_state_dict"} for name in calls)
        if loads < 2 or not saves or "backward" in calls:
            return
        for node in scope.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                flows = (self._flow(node.left, scope), self._flow(node.right, scope))
                both = [flow.calls & _WEIGHTS for flow in flows]
                if all(both):
                    yield Update(node, MERGE)
                    return


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What a value is made of; what it is merely chosen by is left out."""
    match node:
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.comprehension():
            yield node.iter
        case _:
            yield from ast.iter_child_nodes(node)


def _is_cut(node: ast.AST) -> bool:
    """Where a flow ends: at comparisons, masks, fields of a batch, and where text becomes tokens.

    Beyond them lies how samples were chosen, which makes filtered imitation, not weighting.
    """
    match node:
        case ast.Compare() | ast.Subscript(slice=ast.Constant(value=str())):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return "mask" in name.lower()
        case ast.Call():
            name = _last_name(node.func).lower()
            return name in _TO_TENSORS or "token" in name or "encode" in name or "collate" in name
    return False


def words_of(identifier: str) -> set[str]:
    """The words of ``new_logProbs``: new, log, probs, and the parts between underscores whole."""
    parts = [part for part in identifier.lower().split("_") if part]
    return {word.lower() for word in _WORD.findall(identifier)} | set(parts)


def _losses_of(node: ast.Call) -> Sequence[ast.expr]:
    """What a call of ``backward`` is given, or is a method of."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in {"backward", "manual_backward"}:
        owner = node.func.value
        if node.args:
            return node.args[:1]
        if isinstance(owner, ast.Call) and _last_name(owner.func) == "scale" and owner.args:
            return owner.args[:1]
        return [owner]
    if _last_name(node.func) == "grad" and node.args and isinstance(node.func, ast.Attribute):
        return node.args[:1]
    return []


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
