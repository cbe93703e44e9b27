"""The reward's rules, by cases worked out by hand; recorded ones are in `test_webshop_recorded`."""

import dataclasses
from typing import Any

import pytest

from envs.webshop_catalogue import Product
from envs.webshop_goals import Goal
from envs.webshop_nouns import WordListTagger
from envs.webshop_reward import Reward, reward_of, score_title, type_factor

WANTED = Product(
    asin="B1",
    title="Oak Coat Rack",
    description="Stands FREELY.",
    bullets=("Solid wood", "For the living room"),
    price_tag="$40.0",
    pricing=(40.0,),
    category="garden",
    query="coat racks",
    product_category="Home › Furniture › Racks",
    attributes=("solid wood", "easy clean"),
)
GOAL = Goal(
    asin="B1",
    text="",
    wording="",
    attributes=("solid wood", "living room"),
    options={"color": "dark brown"},
    price_upper=50.0,
)


def reward(
    *,
    goal: Goal = GOAL,
    options: dict[str, str] | None = None,
    price: float = 40.0,
    **bought: Any,
) -> Reward:
    return reward_of(
        dataclasses.replace(WANTED, **bought),
        options={"color": "dark brown"} if options is None else options,
        price=price,
        goal=goal,
        wanted=WANTED,
        tagger=WordListTagger(),
    )


def test_everything_right_earns_one() -> None:
    earned = reward()
    assert earned.total == 1.0
    assert earned.parts() == {
        "r_type": 1.0,
        "r_att": 1.0,
        "r_price": True,
        "query_match": True,
        "category_match": True,
        "title_score": 1.0,
        "r_option": 1.0,
    }


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({"price": 50.0}, 1.0),
        ({"price": 50.01}, 3 / 4),
        ({"options": {}}, 3 / 4),
        ({"options": {"color": "green"}}, 3 / 4),
        ({"options": {"finish": "dark brown"}}, 1.0),
        ({"attributes": ("wood solid",)}, 1.0),
        ({"attributes": ()}, 1.0),
        ({"attributes": (), "bullets": ("Solid wood",)}, 3 / 4),
        ({"attributes": (), "bullets": (), "description": "SOLID WOOD"}, 3 / 4),
    ],
)
def test_the_reward_is_a_share_of_what_was_wanted(changes: dict[str, Any], total: float) -> None:
    assert reward(**changes).total == total


@pytest.mark.parametrize(
    ("wanted", "chosen", "matches"),
    [
        ({"color": "blue"}, "light blue", True),  # blue, the first colour word by alphabet
        ({"color": "dark gray"}, "gray", True),  # all of its words are wanted
        ({"color": "blue"}, "blue", True),
        ({"color": "gray"}, "dark gray", False),
        (("gray",), "dark gray", False),  # dark is a colour word
        (("sky blue",), "navy blue", True),  # both are blue
        ({"size": "7"}, "size", True),  # the option's name counts
        (("10.5",), "10.5", True),
        (("7",), "8", False),
    ],
)
def test_options_are_compared_with_all_that_is_odd_about_it(
    wanted: dict[str, str] | tuple[str, ...], chosen: str, *, matches: bool
) -> None:
    goal = dataclasses.replace(GOAL, options=wanted)
    assert reward(goal=goal, options={"x": chosen}).num_option_matches == int(matches)


def test_no_wanted_option_is_no_part() -> None:
    earned = reward(goal=dataclasses.replace(GOAL, options={}))
    assert earned.r_option is None
    assert "r_option" not in earned.parts()
    assert earned.total == 1.0


@pytest.mark.parametrize(
    ("title_score", "matches", "factor"),
    [
        (1.0, False, 1.0),
        (0.2, False, 0.5),
        (0.2, True, 1.0),
        (0.1, True, 1.0),
        (0.09, True, 0.1),
        (0.0, True, 0.0),
    ],
)
def test_the_type_decides_a_factor(title_score: float, *, matches: bool, factor: float) -> None:
    assert type_factor(title_score, matches=matches) == factor


def test_titles_compare_distinct_nouns_with_repeated_ones() -> None:
    assert score_title(("lamp", "oak"), wanted=("lamp", "lamp", "rug", "lamp")) == 1 / 4
    assert score_title((), wanted=()) == 0.2
    assert score_title((), wanted=("lamp",)) == 0.0


def test_another_type_of_product_earns_nothing() -> None:
    earned = reward(title="Cheddar Crackers", query="crackers", product_category="Food › Snacks")
    assert (earned.query_match, earned.category_match, earned.total) == (False, False, 0.0)
    assert reward(query="x", product_category="Home › Furniture › Beds").category_match
