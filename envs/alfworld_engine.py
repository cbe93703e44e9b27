"""The household engine behind the environment: the stock one, and the same one made fast.

`FastEngine` drives the planner's own state machine (fast-downward, through ``textworld``) and
renders text with the game's own grammar, so it gives the same feedback, the same admissible
commands and the same verdict as `StockEngine`; it only remembers what is a pure function of a text.
It was compared on the versions in `TESTED`; on others `make_engine` says so and takes the stock
engine. ``benchmarks/alfworld_env.py`` repeats the comparison.

Neither engine is thread-safe; several in one thread are fine. Keep one and reuse it: every engine
maps its own copy of a 34 MB library that cannot be unmapped.
"""

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from envs.alfworld_games import GameData, load_game
from envs.alfworld_grammar import Binding, Grammar, load_grammar
from envs.alfworld_translation import Translation, TranslationCache, versions
from envs.errors import EnvironmentBroken

EngineKind = Literal["auto", "fast", "stock"]
TESTED: Final = "textworld=1.7.0 alfworld=0.4.2 fast-downward-textworld=20.6.4"
"""The versions on which both engines were seen to agree."""
NOTHING_HAPPENS: Final = "Nothing happens."
_MEMORY_GAMES = 256


@dataclass(frozen=True, slots=True)
class Observed:
    """What the engine shows after a reset or a step.

    Attributes:
        feedback: The engine's text, unchanged.
        admissible: The commands that do something now, sorted, each once.
        won: Whether the goal holds.
    """

    feedback: str
    admissible: tuple[str, ...]
    won: bool


class Engine(Protocol):
    """One household at a time."""

    def load(self, game: Path) -> None:
        """Takes another game file.

        Raises:
            EnvironmentBroken: The file is missing or broken.
        """
        ...

    def reset(self) -> Observed:
        """Starts the loaded game afresh."""
        ...

    def step(self, command: str) -> Observed:
        """Obeys a command; an unknown one changes nothing and answers `NOTHING_HAPPENS`."""
        ...


def make_engine(kind: EngineKind = "auto", *, cache_dir: Path | None = None) -> Engine:
    """Makes an engine.

    Args:
        kind: ``auto`` takes the fast one on tested versions, else warns and takes the stock one.
        cache_dir: Folder where translations are shared between processes; ``None``: memory only.

    Raises:
        EnvironmentBroken: A package is missing.
    """
    try:
        installed = versions()
    except ImportError as error:
        raise EnvironmentBroken(f"the ALFWorld engine is not installed: {error}") from error
    if kind == "auto" and installed != TESTED:
        warnings.warn(
            f"fast ALFWorld engine not tested with {installed} (tested: {TESTED}); "
            "using the stock engine, which is far slower",
            stacklevel=2,
        )
        kind = "stock"
    return StockEngine() if kind == "stock" else FastEngine(cache_dir=cache_dir)


class StockEngine:
    """``textworld``'s own environment with ALFWorld's naming, as the packages ship it."""

    def __init__(self) -> None:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs import PddlEnv

        infos = EnvInfos(feedback=True, won=True, admissible_commands=True)
        self._env = AlfredDemangler(PddlEnv(infos))

    def load(self, game: Path) -> None:
        """See `Engine.load`."""
        load_game(game)
        self._env.load(str(game))

    def reset(self) -> Observed:
        """See `Engine.reset`."""
        return self._observed(self._env.reset())

    def step(self, command: str) -> Observed:
        """See `Engine.step`."""
        return self._observed(self._env.step(command)[0])

    def _observed(self, state: Any) -> Observed:  # noqa: ANN401  the engine's untyped state
        return Observed(state["feedback"], tuple(state["admissible_commands"]), bool(state["won"]))


@dataclass(frozen=True, slots=True)
class _Operator:
    """One applicable action: what to type, and what its text needs."""

    binding: Binding
    feedback: str
    command: str | None  # None: depends on the state, render it every time
    template: str


@dataclass(slots=True)
class _Game:
    """Everything about a game that does not change while it is played."""

    translation: Translation
    grammar: Grammar
    subtypes: "_Subtypes"
    facts: "_Facts | None" = None
    entities: Mapping[str, Any] = field(default_factory=dict)
    operators: dict[str, _Operator] = field(default_factory=dict)


class FastEngine:
    """The stock engine's observations at a fraction of its cost."""

    def __init__(self, *, cache_dir: Path | None = None) -> None:
        import fast_downward

        self._downward = fast_downward
        self._lib = fast_downward.load_lib()
        self._translations = TranslationCache(cache_dir)
        self._versions = versions()
        self._games: OrderedDict[Path, tuple[GameData, _Game]] = OrderedDict()
        self._game: _Game | None = None
        self._facts = _Facts({}, {}, _Subtypes(()))
        self._commands: list[str] = []
        self._applicable: list[tuple[int, int, _Operator]] = []

    def load(self, game: Path) -> None:
        """See `Engine.load`. The file is read again, so a changed game is seen."""
        data = load_game(game)
        known = self._games.get(game)
        if known is None or known[0] != data:
            known = (data, self._prepare(game, data))
        self._games[game] = known
        self._games.move_to_end(game)
        while len(self._games) > _MEMORY_GAMES:
            self._games.popitem(last=False)
        self._game = known[1]

    def _prepare(self, game: Path, data: GameData) -> _Game:
        try:
            translation = self._translations.get(
                domain=data["pddl_domain"], problem=data["pddl_problem"], versions=self._versions
            )
            grammar = load_grammar(data["grammar"])
        except Exception as error:
            raise EnvironmentBroken(
                f"game file {game} cannot be translated: {type(error).__name__}: {error}"
            ) from error
        return _Game(translation, grammar, _subtypes(translation.types))

    def reset(self) -> Observed:
        """See `Engine.reset`."""
        game = self._loaded()
        self._lib.load_sas(game.translation.sas.encode())
        if game.facts is None:
            game.facts = self._first_facts(game)
            game.entities = _entities(game.facts, game.translation.objects)
        self._facts = game.facts.copy()
        return self._observe(self._render("#intro#", {}))

    def step(self, command: str) -> Observed:
        """See `Engine.step`."""
        try:
            index = self._commands.index(command.strip())
        except ValueError:
            return self._observe(NOTHING_HAPPENS)
        identifier, num_effects, operator = self._applicable[index]
        effects = (self._downward.Atom * num_effects)()
        self._lib.apply_operator(identifier, effects)
        for effect in effects:
            self._facts.make_true(*_parse_atom(effect.name))
        return self._observe(self._render(operator.feedback, operator.binding))

    def _loaded(self) -> _Game:
        if self._game is None:
            raise EnvironmentBroken("no game is loaded")
        return self._game

    def _first_facts(self, game: _Game) -> "_Facts":
        facts = _Facts({}, game.translation.objects, game.subtypes)
        for name, arguments in game.translation.facts:
            facts.add(name, arguments)
        atoms = (self._downward.Atom * self._lib.get_state_size())()
        self._lib.get_state(atoms)
        for atom in atoms:
            name, arguments = _parse_atom(atom.name)
            if not name.startswith("not_"):
                facts.add(name, arguments)
        return facts

    def _observe(self, feedback: str) -> Observed:
        self._applicable = list(self._list_applicable())
        self._commands = [self._command(operator) for _, _, operator in self._applicable]
        admissible = tuple(sorted(set(self._commands)))
        return Observed(feedback, admissible, bool(self._lib.check_goal()))

    def _list_applicable(self) -> Iterator[tuple[int, int, _Operator]]:
        """Operator id, number of effects and texts of every applicable action, each once."""
        operators = (self._downward.Operator * self._lib.get_applicable_operators_count())()
        self._lib.get_applicable_operators(operators)
        known = self._loaded().operators
        seen: set[str] = set()
        for operator in operators:
            name = operator.name
            if name in seen:
                continue
            seen.add(name)
            if name not in known:
                known[name] = self._describe(name)
            yield operator.id, operator.nb_effect_atoms, known[name]

    def _describe(self, name: str) -> _Operator:
        game = self._loaded()
        action, *arguments = name.split()
        binding: Binding = dict(zip(game.translation.parameters[action], arguments, strict=False))
        texts = game.grammar.actions[action]
        asked = {p.removeprefix("not_") for p in game.grammar.predicates(texts.template)}
        fixed = not (asked & game.translation.changing)
        command = self._fill(texts.template, binding) if fixed else None
        return _Operator(binding, texts.feedback, command, texts.template)

    def _command(self, operator: _Operator) -> str:
        if operator.command is not None:
            return operator.command
        return self._fill(operator.template, operator.binding)

    def _fill(self, template: str, binding: Binding) -> str:
        return self._render(template, binding)

    def _render(self, text: str, binding: Binding) -> str:
        game = self._loaded()
        return game.grammar.render(text, facts=self._facts, entities=game.entities, binding=binding)


def _parse_atom(text: str) -> tuple[str, tuple[str, ...]]:
    """``Atom p(a, b)`` or ``NegatedAtom p(a, b)`` as predicate and arguments."""
    kind, rest = text.split(" ", 1)
    name, arguments = rest.split("(", 1)
    split = tuple(a for a in arguments[:-1].split(", ") if a)
    return ("not_" + name if kind == "NegatedAtom" else name), split


class _Subtypes:
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
def _subtypes(types: tuple[tuple[str, tuple[str, ...]], ...]) -> _Subtypes:
    return _Subtypes(types)


_Signature = tuple[str, tuple[str, ...]]


class _Facts:
    """The facts that hold now, by predicate and argument types, sorted when asked for."""

    def __init__(
        self,
        facts: dict[_Signature, set[tuple[str, ...]]],
        types: Mapping[str, str],
        subtypes: _Subtypes,
    ) -> None:
        self._facts = facts
        self._types = types
        self._subtypes = subtypes
        self._sorted: dict[_Signature, list[tuple[str, ...]]] = {}

    def copy(self) -> "_Facts":
        """An independent copy."""
        facts = {signature: set(known) for signature, known in self._facts.items()}
        copied = _Facts(facts, self._types, self._subtypes)
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


def _entities(facts: _Facts, types: Mapping[str, str]) -> Mapping[str, Any]:
    """Entity id to what grammar expressions see, named as ALFWorld names it."""
    from alfworld.agents.utils.misc import Demangler
    from textworld.generator.game import EntityInfo

    infos = {name: EntityInfo(name, types[name]) for name in sorted(facts.entities())}
    demangler = Demangler(game_infos=infos, shuffle=False)
    for info in infos.values():
        info.name = demangler.demangle_alfred_name(info.id)
        info.definite = "the"
        info.indefinite = "a"
    return infos
