"""The shop's pages as text: what is shown, and what can be clicked.

Every page is the visible strings of the original's page in their order, joined by ``[SEP]``, and
the texts of its buttons, links and options, lower-cased. Rendering is pure. The layout is that of
princeton-nlp/WebShop at 64fa2a5, checked word for word against recorded sessions.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from envs.webshop_catalogue import Product

SEPARATOR: Final = " [SEP] "
SEARCH: Final = "search"
BACK_TO_SEARCH: Final = "back to search"
NEXT: Final = "next >"
PREV: Final = "< prev"
BUY: Final = "buy now"
PAGE_SIZE: Final = 10


class SubPage(StrEnum):
    """A product's pages beside its main one; the value is what is clicked."""

    DESCRIPTION = "description"
    FEATURES = "features"
    REVIEWS = "reviews"


class PageKind(StrEnum):
    """Where the player is."""

    START = "start"
    RESULTS = "results"
    ITEM = "item"
    SUB_PAGE = "sub_page"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page.

    Attributes:
        text: The observation.
        clickables: What can be clicked, in the original's order, each once.
        links: The clickables that lead to a product, with its asin.
        options: The clickables that choose an option, with the option's name.
    """

    kind: PageKind
    text: str
    clickables: tuple[str, ...] = ()
    links: Mapping[str, str]
    options: Mapping[str, str]

    @property
    def has_search_bar(self) -> bool:
        """Whether the page shows a search field; searching works from every page."""
        return self.kind is PageKind.START


_NOTHING: Mapping[str, str] = {}


def start_page(instruction: str) -> Page:
    """The page with the search field."""
    return Page(
        kind=PageKind.START,
        text=_join("WebShop", "Instruction:", instruction, "Search"),
        clickables=(SEARCH,),
        links=_NOTHING,
        options=_NOTHING,
    )


def results_page(
    instruction: str, products: Sequence[Product], *, page: int, num_results: int
) -> Page:
    """Page ``page``, from 1, of search results; ``products`` are those on it."""
    buttons = [PREV, NEXT] if page > 1 else [NEXT]
    shown = [_BUTTON_TEXTS[button] for button in buttons]
    for product in products:
        shown += [product.asin, product.title, product.price_tag]
    links = {product.asin.lower(): product.asin for product in products}
    return Page(
        kind=PageKind.RESULTS,
        text=_below(instruction, f"Page {page} (Total results: {num_results})", *shown),
        clickables=(BACK_TO_SEARCH, *buttons, *links),
        links=links,
        options=_NOTHING,
    )


def item_page(instruction: str, product: Product) -> Page:
    """A product's main page."""
    shown = [_BUTTON_TEXTS[PREV]]
    options: dict[str, str] = {}
    for name, values in product.options.items():
        shown += [name, *values]
        options |= dict.fromkeys(values, name.lower())
    shown += [product.title, f"Price: {product.price_tag}", f"Rating: {product.rating}"]
    shown += [*(sub_page.capitalize() for sub_page in SubPage), "Buy Now"]
    buttons = (BACK_TO_SEARCH, PREV, *SubPage, BUY)
    return Page(
        kind=PageKind.ITEM,
        text=_below(instruction, *shown),
        clickables=tuple(dict.fromkeys((*map(str, buttons), *options))),
        links=_NOTHING,
        options=options,
    )


def sub_page(instruction: str, product: Product, which: SubPage) -> Page:
    """The description, the features or the (absent) reviews of a product."""
    texts = {
        SubPage.DESCRIPTION: (product.description,) if product.description else (),
        SubPage.FEATURES: product.bullets,
        SubPage.REVIEWS: (),
    }
    return Page(
        kind=PageKind.SUB_PAGE,
        text=_below(instruction, _BUTTON_TEXTS[PREV], *texts[which]),
        clickables=(BACK_TO_SEARCH, PREV),
        links=_NOTHING,
        options=_NOTHING,
    )


def end_page(asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The page after the purchase. The original fills in few of its fields, and hides none."""
    target = ("asin", "options", "attrs", "price upper", "instuction text")
    return Page(
        kind=PageKind.END,
        text=_join(
            *("Thank you for shopping with us!", "Your code:", "None"),
            *("(Paste it in your MTurk interface.)", "Purchased", "asin", asin),
            *("options", _as_html_json(options), "attrs", "None", "category", "None"),
            *("query", "None", "product category", "None", "Target", *target),
            *("category", "product category", "query", "Goal", "None"),
            *("Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details", "None"),
        ),
        links=_NOTHING,
        options=_NOTHING,
    )


_BUTTON_TEXTS = {PREV: "< Prev", NEXT: "Next >"}
_HTML_SAFE = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "'": r"\u0027"})


def _as_html_json(options: Mapping[str, str]) -> str:
    """JSON as the original's page template writes it: keys sorted, markup escaped."""
    return json.dumps(options, sort_keys=True).translate(_HTML_SAFE)


def _below(instruction: str, *texts: str) -> str:
    return _join("Instruction:", instruction, "Back to Search", *texts)


def _join(*texts: str) -> str:
    return SEPARATOR.join(text.strip() for text in texts if text != "\n")
