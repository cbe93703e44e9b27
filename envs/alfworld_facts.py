"""The facts of a running game, in the order in which the stock engine finds them.

Texts list what queries find, so order matters: argument tuples are sorted, and a query over a type
also covers the types below it, in the order of the engine's own type hierarchy.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache


def parse_atom(text: str) -> tuple[str, tuple[str, ...]]:
    """``Atom p(a, b)`` or ``NegatedAtom p(a, b)`` as predicate and arguments."""
    kind, rest = text.split(" ", 1)
    name, arguments = rest.split("(", 1)
    split = tuple(a for a in arguments[:-1].split(", ") if a)
    return ("not_" + name if kind == "NegatedAtom" else name), split


class Subtypes:
    """For a tuple of types, every tuple of types at or below it, in the engine's order."""

    def __init__(self, types: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        from textworld.logic import Type, TypeHierarchy

        self._hierarchy = TypeHierarchy()
        declared: set[str] = set()
        for name, supertypes in types:
            if name not in declared:  # "object" is both PDDL's root and ALFWorld's: the root wins
                declared.add(name)
                self._hierarchy.add(Type(name, supertypes))
        self._known: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}

    def below(self, types: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """The tuples at or below ``types``."""
        found = self._known.get(types)
        if found is None:
            closure = self._hierarchy.multi_subtypes([self._hierarchy.get(t) for t in types])
            found = tuple(tuple(t.name for t in option) for option in closure)
            self._known[types] = found
        return found


@lru_cache(maxsize=16)
def subtypes(types: tuple[tuple[str, tuple[str, ...]], ...]) -> Subtypes:
    """The same, shared by all games of one domain."""
    return Subtypes(types)


_Signature = tuple[str, tuple[str, ...]]


class Facts:
    """The facts that hold now, by predicate and argument types, sorted when asked for."""

    def __init__(
        self,
        facts: dict[_Signature, set[tuple[str, ...]]],
        types: Mapping[str, str],
        subtypes: Subtypes,
    ) -> None:
        self._facts = facts
        self._types = types
        self._subtypes = subtypes
        self._sorted: dict[_Signature, list[tuple[str, ...]]] = {}

    def copy(self) -> "Facts":
        """An independent copy."""
        facts = {signature: set(known) for signature, known in self._facts.items()}
        copied = Facts(facts, self._types, self._subtypes)
        copied._sorted = dict(self._sorted)
        return copied

    def matches(self, predicate: str, types: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """See `envs.alfworld_grammar.Facts`."""
        for option in self._subtypes.below(types):
            signature = (predicate, option)
            if self._facts.get(signature):
                known = self._sorted.get(signature)
                if known is None:
                    known = self._sorted[signature] = sorted(self._facts[signature])
                yield from known

    def add(self, name: str, arguments: tuple[str, ...]) -> None:
        """Records a fact."""
        signature = self._signature(name, arguments)
        self._facts.setdefault(signature, set()).add(arguments)
        self._sorted.pop(signature, None)

    def make_true(self, name: str, arguments: tuple[str, ...]) -> None:
        """Records an effect: the fact holds, its opposite no longer does."""
        opposite = name.removeprefix("not_") if name.startswith("not_") else "not_" + name
        signature = self._signature(opposite, arguments)
        self._facts.get(signature, set()).discard(arguments)
        self._sorted.pop(signature, None)
        self.add(name, arguments)

    def entities(self) -> set[str]:
        """Every entity that some fact mentions."""
        return {a for known in self._facts.values() for arguments in known for a in arguments}

    def _signature(self, name: str, arguments: tuple[str, ...]) -> _Signature:
        return name, tuple(self._types[a] for a in arguments)
