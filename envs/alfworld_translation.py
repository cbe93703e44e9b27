"""PDDL to the planner's SAS format, remembered.

The stock engine translates the same domain and problem four times for every load and reset. The
translation is a pure function of the two texts, so it is kept here by their digest: in memory, and
on disk when a folder is given; compressed in both places, since a real game's is about a megabyte
that shrinks to a fifteenth. The disk copy is safe under concurrent processes (written aside, then
renamed) and is never trusted when it does not parse.
"""

import hashlib
import sys
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

FORMAT = "1"
"""Part of every key: changes whenever `Translation` or the translator's options do."""
_MEMORY_ENTRIES = 64


class Translation(BaseModel):
    """What the engine keeps of a translated game.

    Attributes:
        sas: The planning task in SAS format, complete: nothing is pruned.
        types: ``(name, supertypes)``.
        objects: Object name to type name, in the translator's order.
        parameters: Action name to its ``(parameter, type)`` list.
        facts: ``(predicate, arguments)`` true at the start and written in the problem.
        changing: Predicates that some action adds or deletes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sas: str
    types: tuple[tuple[str, tuple[str, ...]], ...]
    objects: Mapping[str, str]
    parameters: Mapping[str, tuple[tuple[str, str], ...]]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    changing: frozenset[str]


class TranslationCache:
    """Translations by content, in memory and, when ``folder`` is given, on disk."""

    def __init__(self, folder: Path | None = None, *, max_entries: int = _MEMORY_ENTRIES) -> None:
        self.folder = folder
        self._max_entries = max_entries
        self._memory: OrderedDict[str, bytes] = OrderedDict()

    def get(self, *, domain: str, problem: str, versions: str) -> Translation:
        """The translation of ``problem`` under ``domain``.

        Args:
            domain: Text of the PDDL domain.
            problem: Text of the PDDL problem.
            versions: Names the installed translator; part of the key on disk.
        """
        key = hashlib.sha256("\0".join((FORMAT, versions, domain, problem)).encode()).hexdigest()
        if key in self._memory:
            self._memory.move_to_end(key)
            return _unpacked(self._memory[key])
        packed = self._read(key)
        if packed is None:
            packed = _packed(translate(domain=domain, problem=problem))
            self._write(key, packed)
        self._memory[key] = packed
        while len(self._memory) > self._max_entries:
            self._memory.popitem(last=False)
        return _unpacked(packed)

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / key[:2] / f"{key}.json.z"

    def _read(self, key: str) -> bytes | None:
        """The packed translation on disk, if it is there and whole."""
        path = self._path(key)
        if path is None:
            return None
        try:
            packed = path.read_bytes()
            _unpacked(packed)
            return packed
        except (OSError, zlib.error, ValidationError):
            return None

    def _write(self, key: str, packed: bytes) -> None:
        """Best effort: a full or read-only disk costs speed, never an episode."""
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(packed)
            Path(file.name).replace(path)
        except OSError:
            return


def _packed(translation: Translation) -> bytes:
    return zlib.compress(translation.model_dump_json().encode())


def _unpacked(packed: bytes) -> Translation:
    return Translation.model_validate_json(zlib.decompress(packed))


def translate(*, domain: str, problem: str) -> Translation:
    """Translates without a cache. Everything the translator prints is dropped."""
    import fast_downward
    from fast_downward.translate.pddl import conditions, f_expression

    with _argv_restored():
        task, sas = fast_downward.pddl2sas(domain, problem)
    facts: list[tuple[str, tuple[str, ...]]] = []
    for item in task.init:
        if isinstance(item, conditions.Atom) and item.predicate != "=":
            facts.append((item.predicate, tuple(item.args)))
        elif isinstance(item, f_expression.Assign) and item.fluent.symbol != "total-cost":
            name = str(item.expression.value)
            if not name.isdigit():  # distances are numbers and play no part in the text
                facts.append((name, tuple(item.fluent.args)))
    return Translation(
        sas=sas,
        types=tuple((t.name, tuple(t.supertype_names)) for t in task.types),
        objects={o.name: o.type_name for o in task.objects},
        parameters={
            a.name: tuple((p.name.strip("?"), p.type_name) for p in a.parameters)
            for a in task.actions
        },
        facts=tuple(facts),
        changing=frozenset(e.literal.predicate for a in task.actions for e in a.effects),
    )


@contextmanager
def _argv_restored() -> Iterator[None]:
    """The translator sets ``sys.argv`` for its own option parser and leaves it so."""
    argv = sys.argv
    try:
        yield
    finally:
        sys.argv = argv


def versions() -> str:
    """The installed packages that a translation depends on, as one string."""
    from importlib.metadata import version

    names = ("textworld", "alfworld", "fast-downward-textworld")
    return " ".join(f"{name}={version(name)}" for name in names)
