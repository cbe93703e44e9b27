"""A visit to the shop: what actions do, and what pages show."""

from pathlib import Path
from typing import Any

import pytest

from envs.webshop_catalogue import Product
from envs.webshop_goals import Goal
from envs.webshop_pages import PageKind, SubPage, item_page, results_page, sub_page
from envs.webshop_session import Session, parse_action
from envs.webshop_shop import Catalogue, Shop, ShopSettings, open_shop


def product(asin: str, **changes: Any) -> Product:
    fields: dict[str, Any] = {
        "asin": asin,
        "title": f"Red Lamp {asin}",
        "description": "It shines.",
        "bullets": ("Bright", ""),
        "price_tag": "$5.0",
        "pricing": (5.0,),
        "category": "garden",
        "query": "lamps",
        "product_category": "Home › Lamps",
        "options": {"Color": ("a1\xa0wine", "black"), "style": ("black", "buy now & go")},
        "attributes": ("energy saving",),
    }
    return Product(**(fields | changes))


GOAL = Goal(
    asin="B1",
    text="a red lamp",
    wording="a red lamp",
    attributes=("energy saving",),
    options={"color": "black"},
    price_upper=10.0,
)


@pytest.fixture
def session() -> Session:
    products = [product(f"B{number}") for number in range(1, 13)]
    prices = {each.asin: 5.0 for each in products}
    return Session(Shop(Catalogue(products), prices=prices, goals=[GOAL], tagger="word_list"), GOAL)


@pytest.mark.parametrize(
    ("action", "parsed"),
    [
        ("click[Buy Now]", ("click", "buy now")),
        ("click[Buy Now] thanks", ("click", "buy now")),
        ("I will click[buy now]", ("I will click", "buy now")),
        ("search[a]b]", ("search", "a]b")),
        ("search[a[b]", ("search[a", "b")),
        ("search[[b]]", ("search[", "b]")),
        ("search[a]\n]", ("search", "a")),
        ("search[]", ("", "")),
        ("[x]", ("", "")),
        ("search", ("", "")),
        ("]search[", ("", "")),
        ("", ("", "")),
        ("[" * 50_000, ("", "")),
    ],
)
def test_actions_are_read_as_the_original_reads_them(action: str, parsed: tuple[str, str]) -> None:
    assert parse_action(action) == parsed


def test_a_visit_from_search_to_purchase(session: Session) -> None:
    assert session.page.text == "WebShop [SEP] Instruction: [SEP] a red lamp [SEP] Search"
    assert session.act("search[Lamps]") == 0
    assert session.page.clickables[:3] == ("back to search", "next >", "b1")
    assert session.page.text.startswith(
        "Instruction: [SEP] a red lamp [SEP] Back to Search [SEP] Page 1 (Total results: 12) "
        "[SEP] Next > [SEP] B1 [SEP] Red Lamp B1 [SEP] $5.0 [SEP] B10"
    )
    session.act("click[B1]")
    assert session.page.text == (
        "Instruction: [SEP] a red lamp [SEP] Back to Search [SEP] < Prev [SEP] Color [SEP] "
        "a1\xa0wine [SEP] black [SEP] style [SEP] black [SEP] buy now & go [SEP] Red Lamp B1 "
        "[SEP] Price: $5.0 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews "
        "[SEP] Buy Now"
    )
    session.act("click[a1\xa0wine]")
    session.act("click[buy now & go]")
    assert session.act("click[Buy Now]") == pytest.approx(2 / 3)
    assert session.purchase is not None
    assert session.purchase.options == (("color", "a1\xa0wine"), ("style", "buy now & go"))
    assert (
        '[SEP] options [SEP] {"color": "a1\\u00a0wine", "style": "buy now \\u0026 go"} [SEP] attrs'
        in session.page.text
    )
    assert session.page.text.endswith("[SEP] 0.6666666666666666 [SEP] Reward Details [SEP] None")


def test_a_value_of_two_options_belongs_to_the_later_one(session: Session) -> None:
    for action in ("search[lamp]", "click[b1]", "click[black]", "click[buy now]"):
        session.act(action)
    assert session.purchase is not None
    assert session.purchase.options == (("style", "black"),)
    assert session.purchase.reward.total == 1.0


@pytest.mark.parametrize(
    "action",
    ["click[search]", "click[b1]", "click[]", "Click[search]", "search[]", "think: hm", "", "\x00"],
)
def test_what_is_not_available_changes_nothing(session: Session, action: str) -> None:
    before = session.page
    assert session.act(action) == 0
    assert session.page is before


def test_pages_turn_back_and_forth_without_end(session: Session) -> None:
    session.act("search[lamp]")
    first = session.page
    session.act("click[next >]")
    assert len(session.page.links) == 2
    assert session.page.clickables[:3] == ("back to search", "< prev", "next >")
    session.act("click[Next >]")
    assert session.page.text.endswith("Page 3 (Total results: 12) [SEP] < Prev [SEP] Next >")
    session.act("click[< Prev]")
    session.act("click[< prev]")
    assert session.page == first


def test_sub_pages_lead_back_to_the_product(session: Session) -> None:
    session.act("search[lamp]")
    session.act("click[b2]")
    item = session.page
    for name, ending in (
        ("Description", "< Prev [SEP] It shines."),
        ("Features", "< Prev [SEP] Bright [SEP] "),
        ("Reviews", "< Prev"),
    ):
        session.act(f"click[{name}]")
        assert session.page.text.endswith(ending)
        assert session.page.clickables == ("back to search", "< prev")
        session.act("click[< prev]")
        assert session.page == item


@pytest.mark.parametrize("way", ["click[< prev]", "click[back to search]", "search[lamp]"])
def test_leaving_a_product_forgets_its_options(session: Session, way: str) -> None:
    for action in ("search[lamp]", "click[b1]", "click[black]", way):
        session.act(action)
    for action in ("search[lamp]", "click[b1]", "click[buy now]"):
        session.act(action)
    assert session.purchase is not None
    assert session.purchase.options == ()


def test_after_a_purchase_only_a_search_does_something(session: Session) -> None:
    for action in ("search[lamp]", "click[b1]", "click[buy now]"):
        session.act(action)
    end = session.page
    assert end.clickables == ()
    assert session.act("click[buy now]") == 0
    assert session.page is end
    session.act("search[lamp]")
    session.act("click[b1]")
    session.act("click[black]")
    assert session.act("click[buy now]") == 1.0


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("<q> lamps", 12),
        ("<q> none", 0),
        ("<c> garden", 12),
        ("<c> Garden", 12),
        ("<c>", 0),
        ("<a> energy saving", 0),
        ("<r>", 12),
        (" <c> garden", 0),
        ("the of and", 0),
        (" ", 0),
        ("lamp " * 1000, 12),
    ],
)
def test_special_searches_and_those_that_made_the_original_raise(
    session: Session, query: str, number: int
) -> None:
    session.act(f"search[{query}]")
    assert session.page.kind is PageKind.RESULTS
    assert f"(Total results: {number})" in session.page.text


def test_a_category_shows_more_than_a_search_does() -> None:
    products = [product(f"B{number:02d}") for number in range(60)]
    shop = Shop(Catalogue(products), prices={}, goals=[GOAL])
    session = Session(shop, GOAL)
    session.act("search[lamp]")
    assert "(Total results: 50)" in session.page.text
    session.act("search[<c> garden]")
    assert "(Total results: 60)" in session.page.text


def test_an_empty_description_shows_nothing() -> None:
    bare = product("B1", description="", bullets=())
    for which in SubPage:
        assert sub_page("x", bare, which).text.endswith("Back to Search [SEP] < Prev")
    assert "Total results: 0" in results_page("x", (), page=1, num_results=0).text
    assert item_page("x", product("B1", options={})).options == {}


def test_the_expert_s_plan_buys_every_goal_s_product(shop_dir: Path) -> None:
    from envs.webshop_expert import expert_actions

    shop = open_shop(shop_dir, ShopSettings(split="all", tagger="word_list"))
    for goal in shop.goals[::20]:
        session = Session(shop, goal)
        rewards = [session.act(action) for action in expert_actions(shop, goal)]
        assert rewards[-1] == 1.0
        assert set(rewards[:-1]) == {0.0}
