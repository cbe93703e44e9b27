"""WebShop's products: the types, and reading a catalogue's folder.

A folder holds ``products*.jsonl`` (or ``.jsonl.xz``), one product a line, with prices parsed and
options lower-cased, in the order that prices are drawn in. Beside it lie the instructions,
``items_ins*.json``, and, for human goals, ``human_instructions*.json``; either may be missing. A
folder made for an agent holds ``goals.jsonl`` instead; see `envs.webshop_shop`. Source of the data
and of what a product is: Yao et al. 2022 (WebShop), princeton-nlp/WebShop. Its small catalogue has
no reviews, so a product has none.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from envs.errors import EnvironmentBroken

Options: TypeAlias = Mapping[str, tuple[str, ...]]
"""Option names to the values on offer, in the page's order."""
PRODUCTS_GLOB: Final = "products*.jsonl*"
_INSTRUCTIONS_GLOB: Final = "items_ins*.json*"
_HUMAN_GLOB: Final = "human_instructions*.json*"
_CURE = "name the folder of the public catalogue, or one that a task wrote for its agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanInstruction:
    """What a person asked for, with the attributes and option values that it implies."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product. ``query`` is the search that found it, ``category`` its department.

    Attributes:
        product_category: Path of categories, separated by ``›``.
        price_tag: The price as shown, e.g. ``$8.99 to $12.0``.
        pricing: The prices of the tag, in dollars: none, one, or the two ends of a range.
        bullets: The features page, one string a line.
        attributes: What the reward compares with a goal's attributes.
        instruction: The synthetic goals' first words; ``None``: no goal is made of this product.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    price_tag: str
    pricing: tuple[float, ...]
    category: str
    query: str
    product_category: str
    rating: str = "N.A."
    options: Options = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()
    human_instructions: tuple[HumanInstruction, ...] = ()

    @property
    def search_text(self) -> str:
        """What the search engine indexes of the product."""
        options = ", and ".join(f"{name}: {', '.join(of)}" for name, of in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join([self.title, self.description, first, options]).lower()


def products_file(folder: Path) -> Path:
    """The products' file of a catalogue.

    Raises:
        EnvironmentBroken: There is none.
    """
    found = sorted(folder.glob(PRODUCTS_GLOB))
    if not found:
        raise EnvironmentBroken(f"no products*.jsonl in {folder}: {_CURE}")
    return found[0]


def read_products(folder: Path) -> tuple[Product, ...]:
    """The products of a folder, in file order.

    Raises:
        EnvironmentBroken: A file is missing or broken; names it.
    """
    file = products_file(folder)
    try:
        instructions = _read_mapping(folder, _INSTRUCTIONS_GLOB)
        human = _read_mapping(folder, _HUMAN_GLOB)
        products = tuple(
            _product(row, instructions.get(row["asin"], {}), human.get(row["asin"], []))
            for row in read_rows(file)
        )
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentBroken(
            f"catalogue {folder} cannot be read: {type(error).__name__}: {error}"
        ) from error
    if not products:
        raise EnvironmentBroken(f"no products in {file}")
    return products


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a ``.jsonl`` or ``.jsonl.xz`` file."""
    data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
    for line in data.split(b"\n"):
        if line.strip():
            yield _parse(line)


def product_row(product: Product) -> dict[str, Any]:
    """A product as a line of ``products.jsonl``, without its instructions."""
    return {
        "asin": product.asin,
        "name": product.title,
        "Title": product.title,
        "Description": product.description,
        "BulletPoints": list(product.bullets),
        "Price": product.price_tag,
        "pricing": list(product.pricing),
        "Rating": product.rating,
        "options": {name: list(values) for name, values in product.options.items()},
        "Attributes": list(product.attributes),
        "category": product.category,
        "query": product.query,
        "product_category": product.product_category,
    }


def _read_mapping(folder: Path, pattern: str) -> dict[str, Any]:
    found = sorted(folder.glob(pattern))
    if not found:
        return {}
    data = found[0].read_bytes()
    text = lzma.decompress(data) if found[0].suffix == ".xz" else data
    return dict(_parse(text))


def _parse(content: bytes) -> Any:  # noqa: ANN401  any JSON
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error


def _product(
    row: Mapping[str, Any], instructions: Mapping[str, Any], human: list[Mapping[str, Any]]
) -> Product:
    options = {str(name): tuple(map(str, values)) for name, values in row["options"].items()}
    return Product(
        asin=row["asin"],
        title=row["Title"],
        description=row["Description"],
        bullets=tuple(row["BulletPoints"]),
        price_tag=row["Price"],
        pricing=tuple(map(float, row["pricing"])),
        rating=str(row.get("Rating", "N.A.")),
        options=MappingProxyType(options),
        attributes=tuple(row["Attributes"]),
        category=row["category"],
        query=row["query"],
        product_category=row["product_category"],
        instruction=instructions.get("instruction"),
        instruction_attributes=tuple(instructions.get("instruction_attributes") or ()),
        human_instructions=tuple(map(_human_instruction, human)),
    )


def _human_instruction(row: Mapping[str, Any]) -> HumanInstruction:
    return HumanInstruction(
        text=row["instruction"],
        attributes=tuple(row["instruction_attributes"]),
        options=tuple(row["instruction_options"]),
    )
