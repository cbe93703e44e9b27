"""A game's text grammar, parsed once and rendered without copies.

The stock engine parses every template and query again at every step, and deep-copies contexts for
every symbol. Here the very same parser runs once a text, its result becomes a small tree, and
rendering walks the tree. The semantics are the engine's: the first rule whose condition matches,
assignments in sorted order, distinct placeholders bound to distinct entities.

A grammar holds Python expressions (such as ``o.name``) which both engines evaluate: load games only
from sources you trust.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, Protocol, TypeAlias

Binding: TypeAlias = dict[tuple[str, str], str]
"""Placeholder as ``(name, type)`` to the id of the entity it stands for."""


class Facts(Protocol):
    """What rendering asks of a game's state."""

    def matches(self, predicate: str, types: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Argument tuples of true facts whose types are ``types`` or below, in engine order."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """One predicate of a query: its name and its placeholders."""

    predicate: str
    placeholders: tuple[tuple[str, str], ...]
    types: tuple[str, ...]


Query: TypeAlias = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """The expansion of another rule."""

    rule: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A Python expression over the bound entities."""

    code: CodeType


@dataclass(frozen=True, slots=True)
class Each:
    """``inner`` for every assignment that satisfies ``query``; once if there is no query."""

    inner: Call | Expression
    query: Query


@dataclass(frozen=True, slots=True)
class Listing:
    """The items of ``each``, joined as an enumeration."""

    each: Each


Node: TypeAlias = Text | Call | Each | Listing


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to expand a symbol, taken when ``condition`` has a match."""

    condition: Query
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ActionTexts:
    """An action's command template and the text that answers it."""

    template: str
    feedback: str


class Grammar:
    """Rules and action templates of one game."""

    def __init__(
        self, rules: Mapping[str, tuple[Rule, ...]], actions: Mapping[str, ActionTexts]
    ) -> None:
        self._rules = rules
        self.actions = actions

    def with_rule(self, name: str, rules: tuple[Rule, ...]) -> "Grammar":
        """A copy in which ``name`` expands by ``rules``."""
        return Grammar({**self._rules, name: rules}, self.actions)

    def render(
        self, text: str, *, facts: Facts, entities: Mapping[str, Any], binding: Binding
    ) -> str:
        """Expands ``text`` completely.

        Args:
            text: A text with ``#rule#``, ``{expression | query}`` and ``[...]`` parts.
            facts: The game's state.
            entities: Entity id to the object that expressions see.
            binding: The action's placeholders.

        Raises:
            KeyError: The text names a rule that the grammar lacks.
        """
        return "".join(self._expand(parse_text(text), facts, entities, binding))

    def predicates(self, text: str) -> frozenset[str]:
        """Every predicate that rendering ``text`` can ask for."""
        found: set[str] = set()
        seen: set[str] = set()
        pending: list[Node | Expression] = list(parse_text(text))
        while pending:
            match pending.pop():
                case Call(rule) if rule not in seen:
                    seen.add(rule)
                    for option in self._rules.get(rule, ()):
                        found.update(c.predicate for c in option.condition)
                        pending.extend(option.nodes)
                case Each(inner, query):
                    found.update(c.predicate for c in query)
                    pending.append(inner)
                case Listing(each):
                    pending.append(each)
                case _:
                    pass
        return frozenset(found)

    def _expand(
        self,
        nodes: Sequence[Node | Expression],
        facts: Facts,
        entities: Mapping[str, Any],
        binding: Binding,
    ) -> Iterator[str]:
        for node in nodes:
            match node:
                case Text(text):
                    yield text
                case Call(rule):
                    yield from self._expand_rule(rule, facts, entities, binding)
                case Each():
                    yield from self._items(node, facts, entities, binding)
                case Listing(each):
                    items = list(self._items(each, facts, entities, binding))
                    yield from self._enumerate(items, facts, entities, binding)
                case Expression(code):
                    yield _evaluate(code, entities, binding)

    def _expand_rule(
        self, name: str, facts: Facts, entities: Mapping[str, Any], binding: Binding
    ) -> Iterator[str]:
        for rule in self._rules[name]:
            if not rule.condition or any(True for _ in assignments(rule.condition, facts, binding)):
                yield from self._expand(rule.nodes, facts, entities, binding)
                return
        raise KeyError(f"no rule of {name!r} applies")

    def _items(
        self, each: Each, facts: Facts, entities: Mapping[str, Any], binding: Binding
    ) -> Iterator[str]:
        if not each.query:
            yield "".join(self._expand((each.inner,), facts, entities, binding))
            return
        for found in list(assignments(each.query, facts, binding)):
            yield "".join(self._expand((each.inner,), facts, entities, {**binding, **found}))

    def _enumerate(
        self, items: Sequence[str], facts: Facts, entities: Mapping[str, Any], binding: Binding
    ) -> Iterator[str]:
        if not items:
            yield from self._expand_rule("list_empty", facts, entities, binding)
            return
        for index, item in enumerate(items):
            if index:
                last = index == len(items) - 1
                rule = "list_last_separator" if last else "list_separator"
                yield from self._expand_rule(rule, facts, entities, binding)
            yield item


def assignments(query: Query, facts: Facts, binding: Binding) -> Iterator[Binding]:
    """Every extension of ``binding`` under which all conditions of ``query`` are facts.

    Distinct placeholders stand for distinct entities, and the order is depth first over sorted
    facts: both show in the texts.
    """
    yield from _extend(query, facts, dict(binding), set(binding.values()))


def _extend(query: Query, facts: Facts, bound: Binding, used: set[str]) -> Iterator[Binding]:
    if not query:
        yield dict(bound)
        return
    condition, rest = query[0], query[1:]
    for arguments in facts.matches(condition.predicate, condition.types):
        added: list[tuple[str, str]] = []
        for placeholder, argument in zip(condition.placeholders, arguments, strict=True):
            existing = bound.get(placeholder)
            if existing is None:
                if argument in used:
                    break
                bound[placeholder] = argument
                used.add(argument)
                added.append(placeholder)
            elif existing != argument:
                break
        else:
            yield from _extend(rest, facts, bound, used)
        for placeholder in added:
            used.discard(bound.pop(placeholder))


def _evaluate(code: CodeType, entities: Mapping[str, Any], binding: Binding) -> str:
    names = {name: entities[entity] for (name, _), entity in binding.items()}
    return str(eval(code, {}, names))  # noqa: S307  the game format is code, see the module


@lru_cache(maxsize=8192)
def parse_text(text: str) -> tuple[Node, ...]:
    """Parses one text with the engine's own parser."""
    from textworld.envs.pddl import textgen

    return tuple(_node(symbol) for symbol in textgen._parse_and_convert(text, rule_name="symbols"))


def _node(symbol: Any) -> Node:  # noqa: ANN401  the engine's untyped symbol classes
    from textworld.envs.pddl import textgen

    match symbol:
        case textgen.ListSymbol():
            return Listing(_each(symbol.symbol))
        case textgen.ConditionalSymbol():
            return _each(symbol)
        case textgen.NonterminalSymbol():
            return Call(str(symbol))
        case textgen.TerminalSymbol():
            return Text(str(symbol))
    raise TypeError(f"unknown symbol in the grammar: {symbol!r}")


def _each(symbol: Any) -> Each:  # noqa: ANN401  likewise
    from textworld.envs.pddl import textgen

    inner = symbol.expression
    if isinstance(inner, textgen.NonterminalSymbol):
        return Each(Call(str(inner)), parse_query(symbol.given or ""))
    code = compile(inner.expression, "<grammar>", "eval")
    return Each(Expression(code), parse_query(symbol.given or ""))


@lru_cache(maxsize=1024)
def parse_query(text: str) -> Query:
    """Parses a conjunctive query; empty text is the empty query, which always holds."""
    if not text:
        return ()
    from textworld.logic import Rule as EngineRule

    conditions = []
    for predicate in EngineRule.parse_conjunctive_query(text).preconditions:
        placeholders = tuple((p.name, p.type) for p in predicate.parameters)
        conditions.append(
            Condition(predicate.name, placeholders, tuple(t for _, t in placeholders))
        )
    return tuple(conditions)


_TASK = re.compile(r'("task":\s*\[\s*\{\s*"rhs":\s*)"([\w ,.:;!?\'-]*)"(\s*\}\s*\])')
"""The one rule in which games of one release differ, when its text is plain."""


def load_grammar(text: str) -> Grammar:
    """Parses a game's grammar.

    Games of one release share all but the sentence that states the task. That sentence is set
    aside, so that the rest is parsed once a process.
    """
    found = _TASK.findall(text)
    if len(found) != 1:
        return _parse_grammar(text)
    task = Rule((), parse_text(found[0][1]) if found[0][1] else ())
    shared = _TASK.sub(r'\1"-"\3', text)
    return _parse_grammar(shared).with_rule("task", (task,))


@lru_cache(maxsize=64)
def _parse_grammar(text: str) -> Grammar:
    from textworld.envs.pddl import logic

    actions, grammar = logic._parse_and_convert(text, rule_name="pddlStart")
    rules = {
        name: tuple(
            Rule(parse_query(rule.condition), tuple(_node(symbol) for symbol in rule.rhs))
            for rule in options
        )
        for name, options in grammar._rules.items()
    }
    texts = {name: ActionTexts(a.template, a.feedback_rule) for name, a in actions.items()}
    return Grammar(rules, texts)
