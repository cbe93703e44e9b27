"""One generated household: what stands where, what is asked for, and a plan that achieves it.

`sample_layout` draws a layout; a `Layout` turns itself into PDDL and knows its own walkthrough.
Drawing is deterministic under the given `random.Random`. A layout is solvable by construction, and
`Layout.is_solved_by` replays a plan on the symbols as an independent check.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from envs import alfworld_rooms as rooms


class TaskType(StrEnum):
    """The six task types, in the engine's names."""

    PLACE = "pick_and_place_simple"
    LOOK = "look_at_obj_in_light"
    CLEAN = "pick_clean_then_place_in_recep"
    HEAT = "pick_heat_then_place_in_recep"
    COOL = "pick_cool_then_place_in_recep"
    TWO = "pick_two_obj_and_place"


TREATMENTS: Mapping[TaskType, tuple[str, str, frozenset[str]]] = {
    TaskType.CLEAN: ("clean", "SinkBasin", rooms.CLEANABLE),
    TaskType.HEAT: ("heat", "Microwave", rooms.HEATABLE),
    TaskType.COOL: ("cool", "Fridge", rooms.COOLABLE),
}
"""Task type to the verb, the appliance that does it and the objects it can be done to."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A receptacle or an object: its type and its number within the type, from 1."""

    kind: str
    number: int

    @property
    def pddl(self) -> str:
        """The id in the game file; the engine's own naming depends on this pattern."""
        if self.kind == "SinkBasin":
            return f"Sink_bar_{self.number:02d}_bar_SinkBasin"
        return f"{self.kind}_bar_{self.number:02d}"


@dataclass(frozen=True)
class Layout:
    """A room, its contents and a goal.

    Attributes:
        receptacles: Every receptacle of the room.
        places: ``(object, receptacle)`` for every object, lamps included.
        task_type: What is asked for.
        object_kind: The object type that the goal names.
        target_kind: The receptacle type to put it in; for ``LOOK`` the lamp type.
    """

    room: str
    receptacles: tuple[Entity, ...]
    places: tuple[tuple[Entity, Entity], ...]
    task_type: TaskType
    object_kind: str
    target_kind: str

    @cached_property
    def room_digest(self) -> str:
        """Names the room's contents, whatever the goal: equal rooms have equal digests.

        Numbers within a type are left out where they carry nothing: a receptacle is described by
        its type and the multiset of its contents, so that renumbered copies are the same room.
        """
        contents = []
        for receptacle in self.receptacles:
            held = sorted(thing.kind for thing, home in self.places if home == receptacle)
            contents.append(f"{receptacle.kind}:{','.join(held)}")
        return hashlib.sha256("\n".join([self.room, *sorted(contents)]).encode()).hexdigest()

    @cached_property
    def digest(self) -> str:
        """Names the game: the room's contents and the goal."""
        goal = f"{self.room_digest}|{self.task_type}|{self.object_kind}|{self.target_kind}"
        return hashlib.sha256(goal.encode()).hexdigest()

    @cached_property
    def names(self) -> Mapping[Entity, str]:
        """Entity to the name that the engine shows for it.

        The engine sorts the ids of all entities of a type and numbers them from the last to the
        first.
        """
        counts: Counter[str] = Counter()
        entities = [*self.receptacles, *(thing for thing, _ in self.places)]
        names = {}
        for entity in sorted(entities, key=lambda e: e.pddl.lower(), reverse=True):
            counts[entity.kind] += 1
            names[entity] = f"{entity.kind.lower()} {counts[entity.kind]}"
        return names

    def walkthrough(self) -> list[str]:
        """A shortest-route plan by one who knows where everything is, as engine commands."""
        if self.task_type is TaskType.LOOK:
            return self._look_plan()
        target = next(r for r in self.receptacles if r.kind == self.target_kind)
        wanted = [place for place in self.places if place[0].kind == self.object_kind]
        num_wanted = 2 if self.task_type is TaskType.TWO else 1
        plan: list[str] = []
        opened: set[Entity] = set()
        for thing, source in wanted[:num_wanted]:
            plan += self._fetch(thing, source, opened)
            plan += self._treat(thing)
            plan += self._approach(target, opened)
            plan.append(f"move {self.names[thing]} to {self.names[target]}")
        return _without_idle_moves(plan)

    def is_solved_by(self, plan: Sequence[str]) -> bool:
        """Whether ``plan`` reaches the goal, replayed here on names, without the engine."""
        where = {self.names[thing]: self.names[home] for thing, home in self.places}
        at, treated, opened, lit = "", set[str](), set[str](), False
        for command in plan:
            match command.split():
                case ["go", "to", *place]:
                    at = " ".join(place)
                case ["open", *place] if " ".join(place) == at:
                    opened.add(at)
                case ["take", kind, number, "from", *place] if (
                    where[f"{kind} {number}"] == at == " ".join(place)
                    and "hand" not in where.values()
                    and self._is_open(at, opened)
                ):
                    where[f"{kind} {number}"] = "hand"
                case ["move", kind, number, "to", *place] if (
                    where[f"{kind} {number}"] == "hand"
                    and at == " ".join(place)
                    and self._is_open(at, opened)
                ):
                    where[f"{kind} {number}"] = at
                case ["use", kind, number] if where[f"{kind} {number}"] == at:
                    lit = True
                case [verb, kind, number, "with", *place] if (
                    self.task_type in TREATMENTS
                    and where[f"{kind} {number}"] == "hand"
                    and at == " ".join(place)
                    and place[0] == TREATMENTS[self.task_type][1].lower()
                    and verb == TREATMENTS[self.task_type][0]
                ):
                    treated.add(f"{kind} {number}")
                case _:
                    return False
        wanted = [n for n in where if n.split()[0] == self.object_kind.lower()]
        if self.task_type is TaskType.LOOK:
            return lit and any(where[name] == "hand" for name in wanted)
        if self.task_type in TREATMENTS:
            wanted = [name for name in wanted if name in treated]
        homes = Counter(where[name] for name in wanted)
        needed = 2 if self.task_type is TaskType.TWO else 1
        return any(
            count >= needed and home.split()[0] == self.target_kind.lower()
            for home, count in homes.items()
        )

    def _is_open(self, name: str, opened: set[str]) -> bool:
        return name in opened or name.split()[0] not in {k.lower() for k in rooms.OPENABLE}

    def _look_plan(self) -> list[str]:
        thing, source = next(p for p in self.places if p[0].kind == self.object_kind)
        lamp, stand = next(p for p in self.places if p[0].kind == self.target_kind)
        plan = self._fetch(thing, source, set())
        if stand != source:
            plan.append(f"go to {self.names[stand]}")
        return [*plan, f"use {self.names[lamp]}"]

    def _fetch(self, thing: Entity, source: Entity, opened: set[Entity]) -> list[str]:
        take = f"take {self.names[thing]} from {self.names[source]}"
        return [*self._approach(source, opened), take]

    def _approach(self, receptacle: Entity, opened: set[Entity]) -> list[str]:
        name = self.names[receptacle]
        if receptacle.kind not in rooms.OPENABLE or receptacle in opened:
            return [f"go to {name}"]
        opened.add(receptacle)
        return [f"go to {name}", f"open {name}"]

    def _treat(self, thing: Entity) -> list[str]:
        if self.task_type not in TREATMENTS:
            return []
        verb, appliance_kind, _ = TREATMENTS[self.task_type]
        appliance = next(r for r in self.receptacles if r.kind == appliance_kind)
        name = self.names[appliance]
        return [f"go to {name}", f"{verb} {self.names[thing]} with {name}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSettings:
    """How large and how hard generated households are.

    Attributes:
        task_types: Types to draw from, with equal shares.
        rooms: Room kinds to draw from, those that fit the task type.
        num_receptacles: Receptacles in a room, at least 3 (with a source, an appliance, a target).
        num_objects: Portable objects in a room, lamps not counted.
        closed: Whether cabinets, drawers, safes, fridges and microwaves take part; ``False``
            leaves them out unless the goal needs one.
    """

    task_types: tuple[TaskType, ...] = tuple(TaskType)
    rooms: tuple[str, ...] = tuple(rooms.ROOMS)
    num_receptacles: int = 6
    num_objects: int = 6
    closed: bool = True

    def __post_init__(self) -> None:
        if not self.task_types:
            raise ValueError("task_types is empty")
        unknown = sorted(set(self.rooms) - set(rooms.ROOMS))
        if unknown or not self.rooms:
            raise ValueError(f"unknown rooms {unknown}; choose from {sorted(rooms.ROOMS)}")
        if self.num_receptacles < 3:
            raise ValueError(f"num_receptacles is {self.num_receptacles}, must be at least 3")
        if self.num_objects < 2:
            raise ValueError(f"num_objects is {self.num_objects}, must be at least 2")


def _without_idle_moves(plan: Sequence[str]) -> list[str]:
    """Drops each ``go to`` that leads to where one stands already."""
    kept: list[str] = []
    at = ""
    for command in plan:
        if command.startswith("go to "):
            if command == at:
                continue
            at = command
        kept.append(command)
    return kept


class _Dead(Exception):  # noqa: N818  control flow inside this module
    """The draw so far cannot be completed."""


def sample_layout(
    rng: random.Random, *, task_type: TaskType, settings: LayoutSettings
) -> Layout | None:
    """Draws one layout, or ``None`` when the draw came to a dead end (draw again)."""
    room = rng.choice(settings.rooms)
    try:
        return _draw(rng, task_type=task_type, room=room, settings=settings)
    except _Dead:
        return None


def _pick(rng: random.Random, options: Sequence[str]) -> str:
    if not options:
        raise _Dead
    return rng.choice(options)


def _draw(
    rng: random.Random, *, task_type: TaskType, room: str, settings: LayoutSettings
) -> Layout:
    available = list(rooms.ROOMS[room])
    chosen: list[str] = []

    def choose(kinds: Sequence[str]) -> str:
        kind = _pick(rng, sorted(kinds))
        chosen.append(kind)
        available.remove(kind)
        return kind

    if task_type is TaskType.LOOK:
        target = choose([k for k in available if k in rooms.LAMP_STANDS])
        object_kind = _pick(rng, sorted(rooms.ROOM_OBJECTS[room]))
    else:
        if task_type in TREATMENTS:
            choose([k for k in available if k == TREATMENTS[task_type][1]])
        suited = TREATMENTS[task_type][2] if task_type in TREATMENTS else None
        target = choose(_open_kinds(available, settings=settings))
        held = rooms.objects_for(room, receptacle=target)
        object_kind = _pick(rng, [k for k in held if suited is None or k in suited])
    sources = [
        k
        for k in _open_kinds(available, settings=settings)
        if object_kind in rooms.objects_for(room, receptacle=k)
        and (task_type is TaskType.LOOK or k != target)
    ]
    choose(sources)
    while len(chosen) < settings.num_receptacles:
        choose(_open_kinds(available, settings=settings))
    receptacles = _numbered(chosen)
    homes = [r for r in receptacles if task_type is TaskType.LOOK or r.kind != target]
    num_wanted = 2 if task_type is TaskType.TWO else 1
    places = _place(
        rng,
        [object_kind] * num_wanted,
        homes=homes,
        receptacles=receptacles,
        room=room,
        num_objects=settings.num_objects,
    )
    lamp = rng.choice(rooms.LAMP_TYPES)
    if task_type is TaskType.LOOK:
        stands = [r for r in receptacles if r.kind == target]
        places.append((Entity(lamp, 1), rng.choice(stands)))
        target = lamp
    return Layout(
        room=room,
        receptacles=tuple(receptacles),
        places=tuple(places),
        task_type=task_type,
        object_kind=object_kind,
        target_kind=target,
    )


def _open_kinds(kinds: Sequence[str], *, settings: LayoutSettings) -> list[str]:
    if settings.closed:
        return list(kinds)
    return [kind for kind in kinds if kind not in rooms.OPENABLE]


def _numbered(kinds: Sequence[str]) -> list[Entity]:
    counts: Counter[str] = Counter()
    entities = []
    for kind in sorted(kinds):
        counts[kind] += 1
        entities.append(Entity(kind, counts[kind]))
    return entities


def _place(
    rng: random.Random,
    wanted: Sequence[str],
    *,
    homes: Sequence[Entity],
    receptacles: Sequence[Entity],
    room: str,
    num_objects: int,
) -> list[tuple[Entity, Entity]]:
    """Puts the wanted objects into ``homes``, and other objects anywhere they belong."""
    kinds = list(wanted)
    suited = [r for r in homes if wanted[0] in rooms.objects_for(room, receptacle=r.kind)]
    if not suited:
        raise _Dead
    places = [rng.choice(suited) for _ in wanted]
    holders = [
        (r, others)
        for r in receptacles
        if (others := [k for k in rooms.objects_for(room, receptacle=r.kind) if k != wanted[0]])
    ]
    while len(kinds) < num_objects and holders:
        receptacle, others = rng.choice(holders)
        kinds.append(rng.choice(others))
        places.append(receptacle)
    order = sorted(range(len(kinds)), key=lambda i: kinds[i])
    return list(zip(_numbered(kinds), (places[i] for i in order), strict=True))
