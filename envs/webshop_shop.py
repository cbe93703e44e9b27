"""A shop: the catalogue with its prices, goals and search engine, shared by all who visit it.

`open_shop` reads a folder once a process; whoever asks for the same folder and settings gets the
same shop, which never changes. Two layouts are read: the public catalogue, whose prices and goals
are drawn from a seed and split (`envs.webshop_goals`), and a folder that a task wrote for an agent
(`write_shop`), which holds train goals and prices only, and nothing to draw.
"""

import bisect
import itertools
import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from envs.bm25 import BM25Index
from envs.errors import EnvironmentBroken
from envs.webshop_catalogue import Product, product_row, products_file, read_products, read_rows
from envs.webshop_goals import Goal, GoalKind, draw_prices, make_goals, split_goals
from envs.webshop_nouns import AUTO, NounTagger, get_tagger

GOALS_FILE: Final = "goals.jsonl"
PRICES_FILE: Final = "prices.json"
NUM_HELD_OUT: Final = 100
Split: TypeAlias = Literal["train", "eval", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopSettings:
    """What decides a shop, beside its folder.

    Attributes:
        split: ``eval``: the first ``num_held_out`` goals; ``train``: those of other products;
            ``all``: every goal in order.
        price_seed: Of prices and price limits.
        goals: Goals made of options, or what people asked for.
        num_held_out: Goals that are evaluated.
        tagger: Finds nouns in titles; see `envs.webshop_nouns.find_tagger`.
    """

    split: Split = "train"
    price_seed: int = 0
    goals: GoalKind = "synthetic"
    num_held_out: int = NUM_HELD_OUT
    tagger: str = AUTO


class Catalogue:
    """Products and their search engine, which is made when first asked.

    Args:
        products: In catalogue order.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        self.products = products
        self.by_asin = {product.asin: product for product in products}

    @cached_property
    def index(self) -> BM25Index:
        """Finds asins."""
        return BM25Index({product.asin: product.search_text for product in self.products})


class Shop:
    """A catalogue with what its products cost and the goals that can be played.

    Args:
        catalogue: The products.
        prices: In dollars, by asin.
        goals: In order.
        tagger: As in `ShopSettings`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        prices: Mapping[str, float],
        goals: Sequence[Goal],
        tagger: str = AUTO,
    ) -> None:
        self.catalogue = catalogue
        self.prices = prices
        self.goals = goals
        self._tagger = tagger
        self._weights = list(itertools.accumulate(goal.weight for goal in goals))

    @property
    def tagger(self) -> NounTagger:
        """Finds nouns in titles.

        Raises:
            EnvironmentBroken: Its model is missing.
        """
        return get_tagger(self._tagger)

    def draw_goal(self, drawn: float) -> Goal:
        """The goal that ``drawn``, uniform in [0, 1), falls on when goals lie side by side."""
        index = bisect.bisect(self._weights, drawn * self._weights[-1])
        return self.goals[min(index, len(self.goals) - 1)]

    def product(self, asin: str) -> Product:
        """The product ``asin``; raises ``KeyError`` if there is none."""
        return self.catalogue.by_asin[asin]

    def search(self, query: str, k: int) -> list[Product]:
        """The best ``k`` products for a query, best first."""
        return [self.product(hit.doc_id) for hit in self.catalogue.index.search(query, k)]


def open_shop(folder: Path, settings: ShopSettings = ShopSettings()) -> Shop:
    """The shop of a folder; the same object for the same folder and settings.

    Raises:
        EnvironmentBroken: The folder holds no catalogue, a broken one, or not the split.
    """
    file = products_file(folder)
    return _open(folder.resolve(), file.stat().st_mtime_ns, settings)


@lru_cache(maxsize=8)
def _open(folder: Path, changed_ns: int, settings: ShopSettings) -> Shop:
    catalogue = _read_catalogue(folder, changed_ns)
    if (folder / GOALS_FILE).is_file():
        if settings.split != "train":
            raise EnvironmentBroken(f"{folder} holds train goals only, not split {settings.split}")
        goals, prices = _read_goals(folder)
    else:
        goals, prices = draw_goals(catalogue.products, settings)
    unknown = [goal.asin for goal in goals if goal.asin not in catalogue.by_asin]
    if not goals or unknown:
        what = f"goals for unknown products, e.g. {unknown[0]}" if unknown else "no goals"
        raise EnvironmentBroken(f"{what} in {folder}, split {settings.split}")
    return Shop(catalogue, prices=prices, goals=goals, tagger=settings.tagger)


@lru_cache(maxsize=4)
def _read_catalogue(folder: Path, changed_ns: int) -> Catalogue:
    """``changed_ns`` is part of the key, so that a changed file is read again."""
    return Catalogue(read_products(folder))


def draw_goals(
    products: Sequence[Product], settings: ShopSettings
) -> tuple[tuple[Goal, ...], dict[str, float]]:
    """The goals of a split, and all prices, as the settings' seed draws them."""
    rng = random.Random(settings.price_seed)  # noqa: S311  no secret
    prices = draw_prices(products, rng)
    goals = make_goals(products, prices, rng, kind=settings.goals)
    held_out, train = split_goals(goals, num_held_out=settings.num_held_out)
    return {"train": train, "eval": held_out, "all": goals}[settings.split], prices


def write_shop(folder: Path, shop: Shop, goals: Sequence[Goal]) -> None:
    """Writes a shop with these goals for an agent: products without instructions, prices, goals."""
    rows = map(product_row, shop.catalogue.products)
    _write_rows(folder / "products.jsonl", rows)
    _write_rows(folder / GOALS_FILE, map(goal_row, goals))
    (folder / PRICES_FILE).write_text(json.dumps(shop.prices), encoding="utf-8")


def goal_row(goal: Goal) -> dict[str, Any]:
    """A goal as a line of ``goals.jsonl``."""
    options = goal.options
    return {
        "asin": goal.asin,
        "text": goal.text,
        "wording": goal.wording,
        "attributes": list(goal.attributes),
        "options": dict(options) if isinstance(options, Mapping) else list(options),
        "price_upper": goal.price_upper,
        "weight": goal.weight,
    }


def _write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _read_goals(folder: Path) -> tuple[tuple[Goal, ...], dict[str, float]]:
    try:
        goals = tuple(map(_goal, read_rows(folder / GOALS_FILE)))
        prices = dict(json.loads((folder / PRICES_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentBroken(
            f"the goals in {folder} cannot be read: {type(error).__name__}: {error}"
        ) from error
    return goals, prices


def _goal(row: Mapping[str, Any]) -> Goal:
    options = row["options"]
    return Goal(
        asin=row["asin"],
        text=row["text"],
        wording=row["wording"],
        attributes=tuple(row["attributes"]),
        options=dict(options) if isinstance(options, Mapping) else tuple(options),
        price_upper=float(row["price_upper"]),
        weight=float(row["weight"]),
    )


def find_folder(data_dir: str | None) -> Path:
    """The catalogue's folder: ``data_dir``, else the agent's data folder, ``DATA_PATH``.

    In a workspace with several tasks the one folder below ``DATA_PATH`` that holds goals is taken.

    Raises:
        EnvironmentBroken: Neither is given, or there is no such folder.
    """
    given = data_dir or os.environ.get("DATA_PATH")
    if not given:
        raise EnvironmentBroken("no catalogue: make with data_dir, or set DATA_PATH to its folder")
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise EnvironmentBroken(f"no folder {folder}: name one that holds products*.jsonl")
    if data_dir is None and not (folder / GOALS_FILE).is_file():
        below = sorted(file.parent for file in folder.glob(f"*/{GOALS_FILE}"))
        return below[0] if len(below) == 1 else folder
    return folder
