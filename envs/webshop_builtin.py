"""A small catalogue of original products, for trying the shop without public data.

`write_catalogue` lays it out like the public one, so that everything behind it is the real code.
Products of a kind differ in their maker, features and prices, and each comes in colours and sizes;
the same seed and number give the same files.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BUILTIN_VERSION: Final = "1"
MAX_PRODUCTS: Final = 200
_MAKERS = ("Alderbrook", "Brightwell", "Castellan", "Dunmore", "Everhart", "Fenwick", "Gladstone")
_COLOURS = ("black", "white", "navy", "olive", "red", "teal", "sand", "plum")
_MAX_COLOURS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of product: what the search for it is, where it stands, and what it can be."""

    query: str
    noun: str
    category: str
    path: str
    features: tuple[str, ...]
    sizes: tuple[str, ...]
    prices: tuple[float, float]


_KINDS = (
    _Kind(
        query="desk lamps",
        noun="Desk Lamp",
        category="garden",
        path="Home & Kitchen › Lighting › Lamps › Desk Lamps",
        features=("easy assemble", "energy saving", "touch control", "space saving"),
        sizes=("12 inch", "16 inch"),
        prices=(18.0, 45.0),
    ),
    _Kind(
        query="wool socks",
        noun="Hiking Socks",
        category="fashion",
        path="Clothing, Shoes & Jewelry › Men › Clothing › Socks",
        features=("machine wash", "moisture wicking", "arch support", "quick drying"),
        sizes=("small", "medium", "large"),
        prices=(8.0, 22.0),
    ),
    _Kind(
        query="green teas",
        noun="Green Tea",
        category="grocery",
        path="Grocery & Gourmet Food › Beverages › Tea › Green",
        features=("caffeine free", "low sugar", "non gmo", "gift set"),
        sizes=("20 bags", "50 bags", "100 bags"),
        prices=(6.0, 25.0),
    ),
    _Kind(
        query="phone stands",
        noun="Phone Stand",
        category="electronics",
        path="Electronics › Accessories › Phone Mounts › Stands",
        features=("aluminum alloy", "non slip", "hands free", "easy carry"),
        sizes=("4 inch", "6 inch"),
        prices=(9.0, 30.0),
    ),
    _Kind(
        query="face creams",
        noun="Face Cream",
        category="beauty",
        path="Beauty & Personal Care › Skin Care › Face › Creams",
        features=("fragrance free", "long lasting", "dry skin", "cruelty free"),
        sizes=("1 ounce", "2 ounce"),
        prices=(12.0, 60.0),
    ),
    _Kind(
        query="throw pillows",
        noun="Throw Pillow",
        category="garden",
        path="Home & Kitchen › Bedding › Decor › Throw Pillows",
        features=("super soft", "double sided", "machine washable", "living room"),
        sizes=("16x16 inch", "18x18 inch", "20x20 inch"),
        prices=(10.0, 38.0),
    ),
)


def write_catalogue(folder: Path, *, num_products: int = 60, seed: int = 0) -> None:
    """Writes ``products.jsonl`` and ``items_ins.json`` into ``folder``.

    Raises:
        ValueError: ``num_products`` is not in 1 to `MAX_PRODUCTS`.
    """
    if not 1 <= num_products <= MAX_PRODUCTS:
        raise ValueError(f"num_products is {num_products}, must be in 1 to {MAX_PRODUCTS}")
    rng = random.Random(seed)  # noqa: S311  no secret
    rows, instructions = [], {}
    for number in range(num_products):
        kind = _KINDS[number % len(_KINDS)]
        row = _make(kind, number, rng)
        rows.append(row)
        instructions[row["asin"]] = _instruct(kind, row["Attributes"], rng)
    with (folder / "products.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "items_ins.json").write_text(json.dumps(instructions), encoding="utf-8")


def _make(kind: _Kind, number: int, rng: random.Random) -> dict[str, Any]:
    features = rng.sample(kind.features, 3)
    colours = rng.sample(_COLOURS, rng.randint(2, _MAX_COLOURS))
    title = f"{rng.choice(_MAKERS)} {kind.noun} {features[0].title()} - Model {number + 100}"
    prices = _prices(kind, rng)
    return {
        "asin": f"RB{number:08d}",
        "Title": title,
        "Description": f"A {kind.noun.lower()} for every day. It comes in {' and '.join(colours)}.",
        "BulletPoints": [feature.capitalize() for feature in features] + ["Made to last."],
        "Price": " to ".join(f"${price}" for price in prices),
        "pricing": prices,
        "options": {"color": colours, "size": list(kind.sizes)},
        "Attributes": features,
        "category": kind.category,
        "query": kind.query,
        "product_category": kind.path,
    }


def _prices(kind: _Kind, rng: random.Random) -> list[float]:
    """One price, or now and then a range."""
    low = round(rng.uniform(*kind.prices), 2)
    return [low] if rng.random() < 0.75 else [low, round(low * rng.uniform(1.1, 1.6), 2)]


def _instruct(kind: _Kind, attributes: list[str], rng: random.Random) -> dict[str, Any]:
    wanted = rng.sample(attributes, 2)
    return {
        "attributes": attributes,
        "instruction": f"Find me {wanted[0]} {kind.query} with {wanted[1]}",
        "instruction_attributes": wanted,
    }
