"""An invented country, its encyclopaedia, and questions about it: DeepSearchQA without any data.

Towns lie in regions and on rivers, were founded, have mayors, fairs and crafts; people were born in
them. Each has a short article; a question takes one or two searches, and its answer is one name or
year, or a set. Nothing in it is true, so without a search nobody can know. The country of the train
questions and that of the evaluation share no town and no person. Pure functions of the seed.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, TypeVar

from envs.answer_match import SET_ANSWER, SINGLE_ANSWER

T = TypeVar("T")
Split = Literal["train", "eval"]
WORLD_VERSION = 1
_HEADS = (
    "Alder", "Bram", "Cald", "Dren", "Elm", "Fenn", "Garth", "Hol", "Ister", "Jarl", "Kess",
    "Lorn", "Mar", "Nether", "Orm", "Pell", "Quill", "Rav", "Sel", "Thorn", "Ulver", "Vann",
    "Wether", "Yar",
)  # fmt: skip
_TAILS = ("wick", "ford", "mere", "holt", "stead", "combe", "gate", "haven", "moor", "den", "by")
_FIRST = (
    "Ada", "Bruno", "Clara", "Dario", "Edda", "Felix", "Greta", "Hugo", "Ilse", "Jonas", "Karin",
    "Lukas", "Mona", "Nils", "Olga", "Pavel", "Rosa", "Stefan", "Tilda", "Viktor",
)  # fmt: skip
_LAST = (
    "Abelin", "Brokaw", "Corvin", "Dahlke", "Ebner", "Falck", "Grauber", "Hessel", "Ivarsen",
    "Jolin", "Kestner", "Lindauer", "Morvay", "Norrell", "Ostrom", "Prager", "Quist", "Rasko",
    "Sorley", "Tamberg", "Ulrik", "Voss", "Wennick", "Zabel",
)  # fmt: skip
_RIVERS = ("Arn", "Belva", "Corrin", "Dove", "Esk", "Fallow", "Gray", "Hend", "Issel", "Jory")
_REGIONS = ("Upper Marches", "Salt Coast", "Lowland Vale", "Iron Hills", "Lake Country")
_CRAFTS = (
    "bell founding", "glass blowing", "rope making", "clock making", "paper making",
    "cheese making", "boat building", "weaving", "pottery", "saddlery", "bookbinding",
    "lens grinding",
)  # fmt: skip
_FAIRS = ("Lantern", "Apple", "Horse", "Wool", "Honey", "Harvest", "Kite", "Salt", "Candle", "Plum")
_MONTHS = ("March", "April", "May", "June", "July", "August", "September", "October")
_JOBS = ("painter", "composer", "botanist", "architect", "poet", "engineer", "sculptor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """A page of the encyclopaedia."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldQuestion:
    """A question with its answer: for a set, the items in alphabetical order with commas."""

    problem: str
    answer: str
    answer_type: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Town:
    name: str
    region: str
    river: str
    founded: int
    mayor: str
    fair: str
    craft: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Person:
    name: str
    job: str
    born: _Town
    year: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A country; `make_world` draws one."""

    towns: tuple[_Town, ...]
    people: tuple[_Person, ...]

    def articles(self) -> list[Article]:
        """The whole encyclopaedia, in a fixed order."""
        return [
            *(self._town_article(town) for town in self.towns),
            *(_person_article(person) for person in self.people),
            *(self._river_article(river) for river in _distinct(t.river for t in self.towns)),
            *(self._region_article(region) for region in _distinct(t.region for t in self.towns)),
        ]

    def questions(self) -> list[WorldQuestion]:
        """Every question there is about the country, in a fixed order."""
        return [
            *(question for town in self.towns for question in self._about_town(town)),
            *(question for person in self.people for question in _about_person(person)),
            *(
                question
                for river in _distinct(t.river for t in self.towns)
                for question in self._about_river(river)
            ),
            *(self._about_region(region) for region in _distinct(t.region for t in self.towns)),
        ]

    def _born_in(self, town: _Town) -> list[str]:
        return sorted(person.name for person in self.people if person.born == town)

    def _on(self, river: str) -> list[_Town]:
        return sorted((t for t in self.towns if t.river == river), key=lambda t: t.name)

    def _town_article(self, town: _Town) -> Article:
        born = self._born_in(town)
        people = f" Born here were {_listed(born)}." if born else ""
        return _article(
            town.name,
            f"{town.name} is a town in the {town.region}, on the river {town.river}. It was "
            f"founded in {town.founded}. Its mayor is {town.mayor}. {town.name} is known for "
            f"{town.craft}, and holds the {town.fair} every year.{people}",
        )

    def _river_article(self, river: str) -> Article:
        towns = [town.name for town in self._on(river)]
        return _article(
            f"{river} (river)",
            f"The {river} is a river. The towns on the river {river} are {_listed(towns)}.",
        )

    def _region_article(self, region: str) -> Article:
        towns = sorted(town.name for town in self.towns if town.region == region)
        return _article(
            region,
            f"The {region} is a region of the country. The towns of the {region} are "
            f"{_listed(towns)}.",
        )

    def _about_town(self, town: _Town) -> Iterator[WorldQuestion]:
        yield _single(
            f"In which year was the town of {town.name} founded?", town.founded, "History"
        )
        yield _single(
            f"Who is the mayor of the town that holds the {town.fair}?", town.mayor, "Politics"
        )
        yield _single(
            f"On which river lies the town whose mayor is {town.mayor}?", town.river, "Geography"
        )
        born = self._born_in(town)
        if len(born) > 1:
            yield _set(f"Which people were born in {town.name}?", born, "People")

    def _about_river(self, river: str) -> Iterator[WorldQuestion]:
        towns = self._on(river)
        if len(towns) > 1:
            names = [town.name for town in towns]
            yield _set(f"Which towns lie on the river {river}?", names, "Geography")
        crafts = _distinct(sorted(town.craft for town in towns))
        if len(crafts) > 1 and len(towns) <= 4:
            yield _set(
                f"For which crafts are the towns on the river {river} known?", crafts, "Crafts"
            )

    def _about_region(self, region: str) -> WorldQuestion:
        towns = sorted(town.name for town in self.towns if town.region == region)
        return _set(f"Which towns belong to the {region}?", towns, "Geography")


def make_world(split: Split, *, seed: int, num_towns: int) -> World:
    """Draws a country; its names are those whose digest belongs to ``split``.

    Args:
        split: Whose questions it is for.
        seed: Another seed, another country.
        num_towns: Up to 80; there are one and a half times as many people.

    Raises:
        ValueError: Too many or too few towns.
    """
    if not 4 <= num_towns <= 80:
        raise ValueError(f"a country has 4 to 80 towns, not {num_towns}")
    rng = random.Random(f"search-world/{split}/{seed}")  # noqa: S311  not for secrets
    names = _drawn(rng, split, [head + tail for head in _HEADS for tail in _TAILS])
    people = _drawn(rng, split, [f"{first} {last}" for first in _FIRST for last in _LAST])
    fairs = _shuffled(rng, [f"{kind} Fair of {month}" for month in _MONTHS for kind in _FAIRS])
    years = rng.sample(range(1104, 1790), num_towns)
    towns = tuple(
        _Town(
            name=names[i],
            region=_REGIONS[i % min(len(_REGIONS), num_towns // 3)],
            river=rng.choice(_RIVERS),
            founded=years[i],
            mayor=people.pop(),
            fair=fairs[i],
            craft=rng.choice(_CRAFTS),
        )
        for i in range(num_towns)
    )
    born = [
        _Person(name=people.pop(), job=rng.choice(_JOBS), born=rng.choice(towns), year=1800 + i)
        for i in range(num_towns * 3 // 2)
    ]
    return World(towns=towns, people=tuple(born))


def draw_questions(world: World, *, seed: int) -> list[WorldQuestion]:
    """All questions of ``world`` in an order of ``seed``: sets and single answers in turn."""
    drawn = _shuffled(random.Random(f"questions/{seed}"), world.questions())  # noqa: S311
    sets = [each for each in drawn if each.answer_type == SET_ANSWER]
    singles = [each for each in drawn if each.answer_type != SET_ANSWER]
    pairs = zip_longest(sets, singles)
    return [each for pair in pairs for each in pair if each is not None]


def _drawn(rng: random.Random, split: Split, names: Sequence[str]) -> list[str]:
    return _shuffled(rng, [name for name in names if _split_of(name) == split])


def _split_of(name: str) -> Split:
    return "eval" if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else "train"


def _shuffled(rng: random.Random, values: Sequence[T]) -> list[T]:
    return rng.sample(values, len(values))


def _distinct(values: Iterator[str] | Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _article(title: str, text: str) -> Article:
    return Article(title=title, url=f"world:{title.replace(' ', '_')}", text=text)


def _person_article(person: _Person) -> Article:
    return _article(
        person.name,
        f"{person.name} (born {person.year}), {person.job}. {person.name} was born in "
        f"{person.born.name}.",
    )


def _about_person(person: _Person) -> Iterator[WorldQuestion]:
    who = f"the {person.job} {person.name}"
    town = person.born
    yield _single(f"In which town was {who} born?", town.name, "People")
    yield _single(
        f"In which year was the town founded in which {who} was born?", town.founded, "History"
    )
    yield _single(
        f"For which craft is the town known in which {who} was born?", town.craft, "Crafts"
    )


def _single(problem: str, answer: str | int, category: str) -> WorldQuestion:
    return WorldQuestion(
        problem=problem, answer=str(answer), answer_type=SINGLE_ANSWER, category=category
    )


def _set(problem: str, answer: Sequence[str], category: str) -> WorldQuestion:
    return WorldQuestion(
        problem=problem, answer=", ".join(answer), answer_type=SET_ANSWER, category=category
    )
