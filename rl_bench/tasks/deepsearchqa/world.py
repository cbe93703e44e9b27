"""An invented country and its encyclopaedia: something to search in on a machine without data.

Towns lie in regions and on rivers, were founded, have mayors, fairs and crafts; people were born in
them. Each has a short article. Nothing in it is true, so without a search nobody can know. The
countries of the two splits share no names. Pure functions of the seed; questions are
`rl_bench.tasks.deepsearchqa.generated`'.
"""

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
Split = Literal["train", "eval"]
WORLD_VERSION = 1
NUM_RIVERS = 10
NUM_REGIONS = 5
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
_RIVER_HEADS = ("Ar", "Bel", "Cor", "Do", "Es", "Fal", "Gra", "Hen", "Is", "Jo", "Kel", "Lu")
_RIVER_TAILS = ("n", "va", "rin", "ve", "sel", "low")
_REGION_HEADS = ("Upper", "Salt", "Iron", "Lake", "Low", "Green", "Far", "White")
_REGION_TAILS = ("Marches", "Coast", "Vale", "Hills", "Country", "Plain")
_CRAFTS = (
    "bell founding", "glass blowing", "rope making", "clock making", "paper making",
    "cheese making", "boat building", "weaving", "pottery", "saddlery", "bookbinding",
    "lens grinding",
)  # fmt: skip
_FAIRS = (
    "Lantern", "Apple", "Horse", "Wool", "Honey", "Harvest", "Kite", "Salt", "Candle", "Plum",
    "Ribbon", "Cider", "Basket", "Goose", "Spice", "Button", "Rope", "Pear", "Drum", "Feather",
)  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_JOBS = ("painter", "composer", "botanist", "architect", "poet", "engineer", "sculptor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """A page of the encyclopaedia."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """A town, all that there is to know about it."""

    name: str
    region: str
    river: str
    founded: int
    mayor: str
    fair: str
    craft: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person, born in a town."""

    name: str
    job: str
    born: Town
    year: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A country; `make_world` draws one."""

    towns: tuple[Town, ...]
    people: tuple[Person, ...]

    def articles(self) -> list[Article]:
        """The whole encyclopaedia, in a fixed order."""
        return [
            *(self._town_article(town) for town in self.towns),
            *(_person_article(person) for person in self.people),
            *(self._river_article(river) for river in self.rivers()),
            *(self._region_article(region) for region in self.regions()),
        ]

    def rivers(self) -> list[str]:
        """The rivers that have towns."""
        return _distinct(town.river for town in self.towns)

    def regions(self) -> list[str]:
        """The regions."""
        return _distinct(town.region for town in self.towns)

    def born_in(self, town: Town) -> list[str]:
        """Names of people, sorted."""
        return sorted(person.name for person in self.people if person.born == town)

    def on_river(self, river: str) -> list[Town]:
        """The river's towns, by name."""
        return sorted((t for t in self.towns if t.river == river), key=lambda t: t.name)

    def _town_article(self, town: Town) -> Article:
        born = self.born_in(town)
        people = f" Born here were {_listed(born)}." if born else ""
        return _article(
            town.name,
            f"{town.name} is a town in the {town.region}, on the river {town.river}. It was "
            f"founded in {town.founded}. Its mayor is {town.mayor}. {town.name} is known for "
            f"{town.craft}, and holds the {town.fair} every year.{people}",
        )

    def in_region(self, region: str) -> list[str]:
        """Names of the region's towns, sorted."""
        return sorted(town.name for town in self.towns if town.region == region)

    def _river_article(self, river: str) -> Article:
        towns = [town.name for town in self.on_river(river)]
        return _article(
            f"{river} (river)",
            f"The {river} is a river. The towns on the river {river} are {_listed(towns)}.",
        )

    def _region_article(self, region: str) -> Article:
        towns = self.in_region(region)
        return _article(
            region,
            f"The {region} is a region of the country. The towns of the {region} are "
            f"{_listed(towns)}.",
        )


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
    names = _drawn(rng, split, _joined(_HEADS, _TAILS))
    people = _drawn(rng, split, _joined(_FIRST, _LAST, sep=" "))
    fairs = _drawn(rng, split, _joined(_FAIRS, _MONTHS, sep=" Fair of "))
    rivers = _drawn(rng, split, _joined(_RIVER_HEADS, _RIVER_TAILS))[:NUM_RIVERS]
    regions = _drawn(rng, split, _joined(_REGION_HEADS, _REGION_TAILS, sep=" "))
    years = rng.sample(range(1104, 1790), num_towns)
    towns = tuple(
        Town(
            name=names[i],
            region=regions[i % min(NUM_REGIONS, num_towns // 3)],
            river=rng.choice(rivers),
            founded=years[i],
            mayor=people.pop(),
            fair=fairs[i],
            craft=rng.choice(_CRAFTS),
        )
        for i in range(num_towns)
    )
    born = [
        Person(name=people.pop(), job=rng.choice(_JOBS), born=rng.choice(towns), year=1800 + i)
        for i in range(num_towns * 3 // 2)
    ]
    return World(towns=towns, people=tuple(born))


def _joined(heads: Sequence[str], tails: Sequence[str], *, sep: str = "") -> list[str]:
    return [f"{head}{sep}{tail}" for head in heads for tail in tails]


def _drawn(rng: random.Random, split: Split, names: Sequence[str]) -> list[str]:
    return _shuffled(rng, [name for name in names if _split_of(name) == split])


def _split_of(name: str) -> Split:
    return "eval" if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else "train"


def _shuffled(rng: random.Random, values: Sequence[T]) -> list[T]:
    return rng.sample(values, len(values))


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _article(title: str, text: str) -> Article:
    return Article(title=title, url=f"world:{title.replace(' ', '_')}", text=text)


def _person_article(person: Person) -> Article:
    return _article(
        person.name,
        f"{person.name} (born {person.year}), {person.job}. {person.name} was born in "
        f"{person.born.name}.",
    )
