"""One player's visit to the shop, exactly as the original's simulator has it.

It knows nothing of steps or limits and never ends: after a purchase, clicks do nothing, a search
begins anew, and one can buy again. Any text is an action. What the original answers, it answers; on
what makes the original raise (the attribute search, a category search without a category) it finds
nothing instead.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from envs.webshop_catalogue import Product
from envs.webshop_goals import Goal
from envs.webshop_pages import (
    BACK_TO_SEARCH,
    BUY,
    NEXT,
    PAGE_SIZE,
    PREV,
    SEARCH,
    PageKind,
    SubPage,
    end_page,
    item_page,
    results_page,
    start_page,
    sub_page,
)
from envs.webshop_reward import Reward, reward_of
from envs.webshop_shop import Shop

NUM_HITS: Final = 50
_SUB_PAGES = frozenset(SubPage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """What was bought, and what it earned."""

    asin: str
    options: tuple[tuple[str, str], ...]
    price: float
    reward: Reward


def parse_action(action: str) -> tuple[str, str]:
    """The name and the lower-cased argument of ``name[argument]``; two empty strings if it is none.

    Only the first line counts. The argument ends at its last ``]`` and begins at the last ``[``
    before; found in one pass, so that no text takes long.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    begin = line.rfind("[", 1, max(1, end - 1))
    return (line[:begin], line[begin + 1 : end].lower()) if begin > 0 else ("", "")


class Session:
    """A visit with one goal.

    Attributes:
        page: What the player sees now.
        purchase: The latest purchase.

    Args:
        shop: The shop.
        goal: What the player is asked to buy.
        seed: Of the search for random products, ``<r>``.
    """

    def __init__(self, shop: Shop, goal: Goal, *, seed: int = 0) -> None:
        self._shop = shop
        self.goal = goal
        self._rng = random.Random(seed)  # noqa: S311  no secret
        self.page = start_page(goal.text)
        self.purchase: Purchase | None = None
        self._keywords: list[str] = []
        self._number = 1
        self._asin = ""
        self._options: dict[str, str] = {}

    def act(self, action: str) -> float:
        """Obeys an action, which changes `page`; returns the reward, 0 unless it buys.

        ``search[words]`` works on every page, ``click[text]`` for what is in ``page.clickables``;
        the argument may be in capitals, and text after the last bracket is ignored. Anything else
        does nothing.
        """
        name, argument = parse_action(action)
        if name == "search" and argument:
            self._keywords = argument.split(" ")
            self._show_results(1)
        elif name == "click" and argument != SEARCH and argument in self.page.clickables:
            return self._click(argument)
        return 0.0

    def _click(self, text: str) -> float:
        kind = self.page.kind
        if text == BUY:
            return self._buy()
        if text == BACK_TO_SEARCH:
            self._keywords, self._number, self._asin, self._options = [], 1, "", {}
            self.page = start_page(self.goal.text)
        elif kind is PageKind.RESULTS and text in (NEXT, PREV):
            self._show_results(self._number + (1 if text == NEXT else -1))
        elif kind is PageKind.ITEM and text == PREV:
            self._show_results(self._number)
        elif text in _SUB_PAGES:
            self.page = sub_page(self.goal.text, self._product, SubPage(text))
        else:
            self._show_item(text)
        return 0.0

    def _show_item(self, text: str) -> None:
        """The product's page, by its link, after choosing an option, or back from a sub page."""
        if text in self.page.links:
            self._asin = self.page.links[text]
        elif text in self.page.options:
            self._options[self.page.options[text]] = text
            return
        self.page = item_page(self.goal.text, self._product)

    def _buy(self) -> float:
        product = self._product
        price = self._shop.prices[product.asin]
        reward = reward_of(
            product,
            options=self._options,
            price=price,
            goal=self.goal,
            wanted=self._shop.product(self.goal.asin),
            tagger=self._shop.tagger,
        )
        self.purchase = Purchase(
            asin=product.asin, options=tuple(self._options.items()), price=price, reward=reward
        )
        self.page = end_page(product.asin, self._options, reward.total)
        return reward.total

    def _show_results(self, number: int) -> None:
        """Page ``number`` of the results; those beyond the last are empty."""
        self._number, self._asin, self._options = number, "", {}
        found = self._find()
        shown = found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        self.page = results_page(self.goal.text, shown, page=number, num_results=len(found))

    def _find(self) -> Sequence[Product]:
        products, words = self._shop.catalogue.products, self._keywords
        text = " ".join(words[1:]).strip()
        match words[0]:
            case "<r>":
                return self._rng.sample(products, min(NUM_HITS, len(products)))
            case "<a>":
                return ()
            case "<c>":
                category = words[1].strip() if len(words) > 1 else None
                return [product for product in products if product.category == category]
            case "<q>":
                return [product for product in products if product.query == text]
        return self._shop.search(" ".join(words), NUM_HITS)

    @property
    def _product(self) -> Product:
        return self._shop.product(self._asin)
