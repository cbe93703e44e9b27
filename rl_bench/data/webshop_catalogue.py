"""WebShop's small catalogue, from the files of its public home to what the task reads.

Rules of the original loader (princeton-nlp/WebShop, MIT): prices are parsed from "$a to $b",
absent ones are 100; option names and values are lower-cased, a value's "/" becomes " | "; a
product without attributes has the one attribute DUMMY_ATTR; products with an identifier that is
taken, too long or ``nan`` are left out. One product is a JSON object on a line.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ITEMS = "items_shuffle_1000.json"
INSTRUCTIONS = "items_ins_v2_1000.json"
HUMAN_GOALS = "items_human_ins.json"
_NO_PRICE = 100.0
_MAX_ASIN_CHARS = 10
_NO_ATTRIBUTE = "DUMMY_ATTR"
_DROPPED = frozenset(
    {
        "product_information",
        "brand",
        "brand_url",
        "list_price",
        "availability_quantity",
        "availability_status",
        "total_reviews",
        "total_answered_questions",
        "seller_id",
        "seller_name",
        "fulfilled_by_amazon",
        "fast_track_message",
        "aplus_present",
        "small_description_old",
    }
)
"""Keys that the original drops."""
_NOT_PRICE = re.compile(r"[^\d.]")
Item = Mapping[str, Any]  # what a shop's page held: its keys and their types are not ours


def write_products(downloads: Mapping[str, Path], target: Path) -> None:
    """Writes the products, one a line, in the catalogue's order.

    Raises:
        KeyError, TypeError, ValueError: The files are not those of WebShop.
    """
    attributes = _read(downloads[INSTRUCTIONS])
    human_goals = _read(downloads[HUMAN_GOALS])
    with target.open("w", encoding="utf-8") as out:
        for item in _kept(_read(downloads[ITEMS])):
            made = product(item, attributes=attributes, human_goals=human_goals)
            out.write(json.dumps(made) + "\n")


def write_human_goals(downloads: Mapping[str, Path], target: Path) -> None:
    """Writes the instructions by people that are about products of the catalogue, by product."""
    human_goals = _read(downloads[HUMAN_GOALS])
    asins = [item["asin"] for item in _kept(_read(downloads[ITEMS]))]
    goals = {asin: human_goals[asin] for asin in asins if asin in human_goals}
    target.write_text(json.dumps(goals, indent=1), encoding="utf-8")


def product(item: Item, *, attributes: Item, human_goals: Item) -> dict[str, Any]:
    """One product as the task reads it.

    Args:
        item: As in the catalogue's file.
        attributes: Attributes by product.
        human_goals: Instructions by people, by product.
    """
    asin, features = item["asin"], item["small_description"]
    prices, tag = _prices(item.get("pricing"))
    options, images = _options(item["customization_options"] or {})
    made = {key: value for key, value in item.items() if key not in _DROPPED} | {
        "pricing": prices,
        "query": item["query"].lower().strip(),
        "Title": item["name"],
        "Description": item["full_description"],
        "Reviews": [],
        "Rating": "N.A.",
        "BulletPoints": features if isinstance(features, list) else [features],
        "Price": tag,
        "options": options,
        "option_to_image": images,
        "Attributes": attributes.get(asin, {}).get("attributes", [_NO_ATTRIBUTE]),
    }
    if asin in human_goals:
        made["instructions"] = human_goals[asin]
    return made | {"MainImage": item["images"][0]}


def _read(path: Path) -> Any:  # noqa: ANN401  JSON of another's making
    return json.loads(path.read_text(encoding="utf-8"))


def _kept(items: list[Item]) -> Iterator[Item]:
    seen: set[str] = set()
    for item in items:
        asin = item["asin"]
        if asin != "nan" and len(asin) <= _MAX_ASIN_CHARS and asin not in seen:
            seen.add(asin)
            yield item


def _prices(text: str | None) -> tuple[list[float], str]:
    """The one or two prices of "$a" or "$a to $b", and the tag that shows them."""
    if not text:
        return [_NO_PRICE], f"${_NO_PRICE}"
    prices = [float(_NOT_PRICE.sub("", part)) for part in text.split("$")[1:]][:2]
    return prices, " to ".join(f"${price}" for price in prices)


def _options(
    given: Mapping[str, list[Item] | None],
) -> tuple[dict[str, list[str]], dict[str, str | None]]:
    """Option names to values, and values to pictures."""
    options: dict[str, list[str]] = {}
    images: dict[str, str | None] = {}
    for name, choices in given.items():
        if choices is None:
            continue
        values = [choice["value"].strip().replace("/", " | ").lower() for choice in choices]
        options[name.lower()] = values
        images |= dict(zip(values, (choice.get("image") for choice in choices), strict=True))
    return options, images
