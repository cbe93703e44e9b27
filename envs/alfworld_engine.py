"""The household engine behind the environment: the stock one, and the same one made fast.

`FastEngine` drives the planner's own state machine (fast-downward, through ``textworld``) and
renders text with the game's own grammar, so it gives the same feedback, the same admissible
commands and the same verdict as `StockEngine`; it only remembers what is a pure function of a text.
It was compared on the versions in `TESTED`; on others `make_engine` says so and takes the stock
engine. ``benchmarks/alfworld_env.py`` repeats the comparison.

Neither engine is thread-safe; several in one thread are fine. Keep one and reuse it: every engine
maps its own copy of a 34 MB library that cannot be unmapped.
"""

import hashlib
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from envs.alfworld_dialect import Dialect, dialect_of
from envs.alfworld_facts import Facts, Subtypes, parse_atom, subtypes
from envs.alfworld_games import load_game, parse_game, read_game
from envs.alfworld_grammar import Binding, Grammar, load_grammar
from envs.alfworld_translation import Translation, TranslationCache, versions
from envs.errors import EnvironmentBroken

EngineKind = Literal["auto", "fast", "stock"]
TESTED: Final = "textworld=1.7.0 alfworld=0.4.2 fast-downward-textworld=20.6.4"
"""The versions on which both engines were seen to agree."""
NOTHING_HAPPENS: Final = "Nothing happens."
_MEMORY_GAMES = 160
"""Games kept ready: an evaluation's 134 and some. To make a real one ready again takes 13 ms, and
its commands as much again; kept, it takes a third of a megabyte."""


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

    def load(self, game: Path) -> Dialect:
        """Takes another game file and tells the dialect that its grammar accepts.

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
    return StockEngine() if kind == "stock" else FastEngine(game_store(cache_dir))


class StockEngine:
    """``textworld``'s own environment with ALFWorld's naming, as the packages ship it."""

    def __init__(self) -> None:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs import PddlEnv

        infos = EnvInfos(feedback=True, won=True, admissible_commands=True)
        self._env = AlfredDemangler(PddlEnv(infos))

    def load(self, game: Path) -> Dialect:
        """See `Engine.load`."""
        dialect = dialect_of(load_game(game)["grammar"], name=str(game))
        self._env.load(str(game))
        return dialect

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
class PreparedGame:
    """Everything about a game that does not change while it is played.

    The planning task is kept compressed: it is by far the largest part, and only resets need it.
    """

    sas: bytes
    translation: Translation
    grammar: Grammar
    subtypes: Subtypes
    dialect: Dialect
    facts: Facts | None = None
    entities: Mapping[str, Any] = field(default_factory=dict)
    operators: dict[str, _Operator] = field(default_factory=dict)


class GameStore:
    """Games made ready to play, by content; shared by all engines of a process.

    Args:
        cache_dir: Folder for translations, shared between processes; ``None``: memory only.
    """

    def __init__(self, cache_dir: Path | None = None) -> None:
        self._translations = TranslationCache(cache_dir)
        self._versions = versions()
        self._games: OrderedDict[str, PreparedGame] = OrderedDict()

    def get(self, game: Path) -> PreparedGame:
        """Reads the file again, so that a changed file is another game.

        Raises:
            EnvironmentBroken: The file is missing or broken.
        """
        raw = read_game(game)
        key = hashlib.sha256(raw).hexdigest()
        if key not in self._games:
            self._games[key] = self._prepare(game, raw)
        self._games.move_to_end(key)
        while len(self._games) > _MEMORY_GAMES:
            self._games.popitem(last=False)
        return self._games[key]

    def _prepare(self, game: Path, raw: bytes) -> PreparedGame:
        data = parse_game(raw, name=str(game))
        try:
            translation = self._translations.get(
                domain=data["pddl_domain"], problem=data["pddl_problem"], versions=self._versions
            )
            grammar = load_grammar(data["grammar"])
            dialect = dialect_of(data["grammar"])
        except Exception as error:
            raise EnvironmentBroken(
                f"game file {game} cannot be translated: {type(error).__name__}: {error}"
            ) from error
        return PreparedGame(
            sas=zlib.compress(translation.sas.encode(), level=1),
            translation=translation.model_copy(update={"sas": ""}),
            grammar=grammar,
            subtypes=subtypes(translation.types),
            dialect=dialect,
        )


@lru_cache(maxsize=8)
def game_store(cache_dir: Path | None) -> GameStore:
    """The process's store for that cache folder."""
    return GameStore(cache_dir)


class FastEngine:
    """The stock engine's observations at a fraction of its cost."""

    def __init__(self, store: GameStore) -> None:
        import fast_downward

        self._downward = fast_downward
        self._lib = fast_downward.load_lib()
        self._store = store
        self._game: PreparedGame | None = None
        self._facts = Facts({}, {}, Subtypes(()))
        self._seen = Observed("", (), won=False)
        self._commands: list[str] = []
        self._applicable: list[tuple[int, int, _Operator]] = []

    def load(self, game: Path) -> Dialect:
        """See `Engine.load`."""
        self._game = self._store.get(game)
        return self._game.dialect

    def reset(self) -> Observed:
        """See `Engine.reset`."""
        game = self._loaded()
        self._lib.load_sas(zlib.decompress(game.sas))
        if game.facts is None:
            game.facts = self._first_facts(game)
            game.entities = _entities(game.facts, game.translation.objects)
        self._facts = game.facts.copy()
        return self._observe(self._render("#intro#", {}))

    def step(self, command: str) -> Observed:
        """See `Engine.step`."""
        try:
            index = self._commands.index(command.strip())
        except ValueError:  # nothing changed, so neither did what can be done
            return replace(self._seen, feedback=NOTHING_HAPPENS)
        identifier, num_effects, operator = self._applicable[index]
        effects = (self._downward.Atom * num_effects)()
        self._lib.apply_operator(identifier, effects)
        for effect in effects:
            self._facts.make_true(*parse_atom(effect.name))
        return self._observe(self._render(operator.feedback, operator.binding))

    def _loaded(self) -> PreparedGame:
        if self._game is None:
            raise EnvironmentBroken("no game is loaded")
        return self._game

    def _first_facts(self, game: PreparedGame) -> Facts:
        facts = Facts({}, game.translation.objects, game.subtypes)
        for name, arguments in game.translation.facts:
            facts.add(name, arguments)
        atoms = (self._downward.Atom * self._lib.get_state_size())()
        self._lib.get_state(atoms)
        for atom in atoms:
            name, arguments = parse_atom(atom.name)
            if not name.startswith("not_"):
                facts.add(name, arguments)
        return facts

    def _observe(self, feedback: str) -> Observed:
        self._applicable = list(self._list_applicable())
        self._commands = [self._command(operator) for _, _, operator in self._applicable]
        admissible = tuple(sorted(set(self._commands)))
        self._seen = Observed(feedback, admissible, bool(self._lib.check_goal()))
        return self._seen

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
        command = self._render(texts.template, binding) if fixed else None
        return _Operator(binding, texts.feedback, command, texts.template)

    def _command(self, operator: _Operator) -> str:
        if operator.command is not None:
            return operator.command
        return self._render(operator.template, operator.binding)

    def _render(self, text: str, binding: Binding) -> str:
        game = self._loaded()
        return game.grammar.render(text, facts=self._facts, entities=game.entities, binding=binding)


def _entities(facts: Facts, types: Mapping[str, str]) -> Mapping[str, Any]:
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
