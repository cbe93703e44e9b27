"""Questions about an invented country, each with its answer and the searches that lead to it.

A question takes one search or two, and its answer is one name or year, or a set of names.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from envs.answer_match import SET_ANSWER, SINGLE_ANSWER
from rl_bench.tasks.deepsearchqa.world import Person, Town, World


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldQuestion:
    """A question with its answer: for a set, the items with commas.

    ``searches`` are the queries that somebody who knows the way would make, in order.
    """

    problem: str
    answer: str
    answer_type: str
    category: str
    searches: tuple[str, ...]


def draw_questions(world: World, *, seed: int) -> list[WorldQuestion]:
    """All questions about ``world`` in an order of ``seed``: sets and single answers in turn."""
    questions = list(_all_questions(world))
    rng = random.Random(f"questions/{seed}")  # noqa: S311  not for secrets
    drawn = rng.sample(questions, len(questions))
    sets = [each for each in drawn if each.answer_type == SET_ANSWER]
    singles = [each for each in drawn if each.answer_type != SET_ANSWER]
    pairs = zip_longest(sets, singles)
    return [each for pair in pairs for each in pair if each is not None]


def _all_questions(world: World) -> Iterator[WorldQuestion]:
    for town in world.towns:
        yield from _about_town(world, town)
    for person in world.people:
        yield from _about_person(person)
    for river in world.rivers():
        yield from _about_river(world, river)
    for region in world.regions():
        yield _set(
            f"Which towns belong to the {region}?",
            world.in_region(region),
            "Geography",
            f"towns of the {region}",
        )


def _about_town(world: World, town: Town) -> Iterator[WorldQuestion]:
    yield _single(
        f"In which year was the town of {town.name} founded?", town.founded, "History", town.name
    )
    yield _single(
        f"Who is the mayor of the town that holds the {town.fair}?",
        town.mayor,
        "Politics",
        town.fair,
    )
    yield _single(
        f"On which river lies the town whose mayor is {town.mayor}?",
        town.river,
        "Geography",
        f"mayor {town.mayor}",
    )
    born = world.born_in(town)
    if len(born) > 1:
        yield _set(
            f"Which people were born in {town.name}?", born, "People", f"{town.name} people born"
        )


def _about_person(person: Person) -> Iterator[WorldQuestion]:
    who, town = f"the {person.job} {person.name}", person.born
    yield _single(f"In which town was {who} born?", town.name, "People", person.name)
    yield _single(
        f"In which year was the town founded in which {who} was born?",
        town.founded,
        "History",
        person.name,
        f"{town.name} founded",
    )
    yield _single(
        f"For which craft is the town known in which {who} was born?",
        town.craft,
        "Crafts",
        person.name,
        f"{town.name} known for",
    )


def _about_river(world: World, river: str) -> Iterator[WorldQuestion]:
    towns = world.on_river(river)
    names = [town.name for town in towns]
    if len(towns) > 1:
        yield _set(
            f"Which towns lie on the river {river}?", names, "Geography", f"towns on river {river}"
        )
    crafts = sorted({town.craft for town in towns})
    if len(crafts) > 1 and len(towns) <= 3:
        yield _set(
            f"For which crafts are the towns on the river {river} known?",
            crafts,
            "Crafts",
            f"towns on river {river}",
            *(f"{name} known for" for name in names),
        )


def _single(problem: str, answer: str | int, category: str, *searches: str) -> WorldQuestion:
    return WorldQuestion(
        problem=problem,
        answer=str(answer),
        answer_type=SINGLE_ANSWER,
        category=category,
        searches=searches,
    )


def _set(problem: str, answer: Sequence[str], category: str, *searches: str) -> WorldQuestion:
    return WorldQuestion(
        problem=problem,
        answer=", ".join(answer),
        answer_type=SET_ANSWER,
        category=category,
        searches=searches,
    )
