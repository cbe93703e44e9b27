"""Catalogue, prices, goals and splits."""

import json
from pathlib import Path
from random import Random

import pytest

from envs.errors import EnvironmentBroken
from envs.webshop_builtin import write_catalogue
from envs.webshop_catalogue import HumanInstruction, Product, product_row, read_products
from envs.webshop_goals import DEFAULT_PRICE, NO_LIMIT, draw_prices, make_goals, split_goals
from envs.webshop_shop import GOALS_FILE, ShopSettings, find_folder, open_shop, write_shop

MUG = Product(
    asin="M1",
    title="Blue Mug",
    description="",
    bullets=("Holds tea.",),
    price_tag="$8.0 to $12.0",
    pricing=(8.0, 12.0),
    category="garden",
    query="mugs",
    product_category="Home › Kitchen",
    options={"size": ("small", "big"), "color": ("blue", "red")},
    attributes=("dishwasher safe",),
    instruction="Find me dishwasher safe mugs",
    instruction_attributes=("dishwasher safe",),
    human_instructions=(
        HumanInstruction(text="a mug, please.", attributes=("dishwasher safe",), options=("blue",)),
        HumanInstruction(text="any mug.", attributes=(), options=()),
    ),
)


def rng(seed: int) -> Random:
    return Random(seed)


def variant(**changes: object) -> Product:
    fields = {name: getattr(MUG, name) for name in Product.__dataclass_fields__}
    return Product(**(fields | changes))


def test_a_range_s_price_is_drawn_and_a_missing_one_is_a_hundred() -> None:
    products = [MUG, variant(asin="M2", pricing=()), variant(asin="M3", pricing=(3.5,))]
    prices = draw_prices(products, rng(4))
    assert 8 <= prices["M1"] <= 12
    assert (prices["M2"], prices["M3"]) == (DEFAULT_PRICE, 3.5)
    assert draw_prices(products, rng(4)) == prices
    assert draw_prices(products, rng(5)) != prices


def test_there_is_a_goal_for_every_combination_of_options() -> None:
    goals = make_goals([MUG], {"M1": 9.0}, rng(0))
    assert len(goals) == 4
    assert {tuple(goal.options) for goal in goals} == {("color", "size")}
    assert len({goal.option_values for goal in goals}) == 4
    [upper] = {goal.price_upper for goal in goals}
    assert upper in {20.0, 30.0, 40.0}
    wanted = next(goal for goal in goals if goal.option_values == ("red", "big"))
    assert wanted.wording == "Find me dishwasher safe mugs with color: red, and size: big"
    assert wanted.text == f"{wanted.wording}, and price lower than {upper:.2f} dollars"
    assert wanted.weight == 1 / 4


def test_a_product_without_options_or_affordable_limit_says_less() -> None:
    dear = variant(options={}, pricing=(985.0,))
    [goal] = make_goals([dear], {"M1": 985.0}, rng(0))
    assert goal.text == "Find me dishwasher safe mugs"
    assert goal.price_upper == NO_LIMIT


def test_people_s_goals_are_lists_of_values() -> None:
    [goal] = make_goals([MUG], {"M1": 9.0}, rng(0), kind="human")
    assert goal.wording == "a mug, please"
    assert goal.text.startswith("a mug, please, and price lower than ")
    assert (goal.options, goal.weight) == (("blue",), 1.0)


def test_train_goals_share_no_product_and_no_wording_with_evaluation(shop_dir: Path) -> None:
    settings = {split: ShopSettings(split=split, num_held_out=30) for split in ("train", "eval")}
    train, held_out = (open_shop(shop_dir, settings[split]).goals for split in ("train", "eval"))
    assert len(held_out) == 30
    assert len(train) > 100
    assert not {goal.asin for goal in train} & {goal.asin for goal in held_out}
    twins = [variant(asin=f"M{i}") for i in range(4)]
    goals = make_goals(twins, dict.fromkeys(("M0", "M1", "M2", "M3"), 9.0), rng(0))
    held_out, train = split_goals(goals, num_held_out=1)
    assert held_out[0].wording not in {goal.wording for goal in train}
    assert len(train) < len([goal for goal in goals if goal.asin != held_out[0].asin])


def test_shops_of_one_folder_share_their_products(tmp_path: Path) -> None:
    write_catalogue(tmp_path, num_products=6)
    first = open_shop(tmp_path, ShopSettings(split="all"))
    assert open_shop(tmp_path, ShopSettings(split="all")) is first
    other = open_shop(tmp_path, ShopSettings(split="all", price_seed=1))
    assert other.catalogue is first.catalogue
    assert other.prices != first.prices


def test_an_agent_s_folder_holds_its_goals_and_nothing_to_make_others_of(
    shop_dir: Path, tmp_path: Path
) -> None:
    settings = ShopSettings(num_held_out=30)
    train = open_shop(shop_dir, settings)
    held_out = open_shop(shop_dir, ShopSettings(split="eval", num_held_out=30))
    write_shop(tmp_path, train, train.goals[:40])
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    assert not any(goal.wording in written for goal in held_out.goals)
    assert all(product.instruction is None for product in read_products(tmp_path))
    given = open_shop(tmp_path)
    assert list(given.goals) == list(train.goals[:40])
    assert given.prices == train.prices
    query = train.goals[0].wording
    assert [p.asin for p in given.search(query, 9)] == [p.asin for p in train.search(query, 9)]
    with pytest.raises(EnvironmentBroken, match="train goals only"):
        open_shop(tmp_path, ShopSettings(split="eval"))


def test_a_product_survives_its_row(tmp_path: Path) -> None:
    (tmp_path / "products.jsonl").write_text(json.dumps(product_row(MUG)) + "\n\n")
    [read] = read_products(tmp_path)
    plain = variant(instruction=None, instruction_attributes=(), human_instructions=())
    assert product_row(read) == product_row(plain)
    assert read.search_text == "blue mug  holds tea. size: small, big, and color: blue, red"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no products"),
        ({"products.jsonl": ""}, "no products in"),
        ({"products.jsonl": "{"}, "cannot be read"),
        ({"products.jsonl": "[" * 100_000}, "nested too deeply"),
        ({"products.jsonl": '{"asin": "A"}'}, "KeyError"),
        ({"products_1000.jsonl.xz": "no xz"}, "cannot be read"),
    ],
)
def test_a_broken_catalogue_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(EnvironmentBroken, match=message):
        open_shop(tmp_path)


def test_broken_goals_are_named(shop_dir: Path, tmp_path: Path) -> None:
    shop = open_shop(shop_dir, ShopSettings(num_held_out=30))
    write_shop(tmp_path, shop, shop.goals[:2])
    (tmp_path / GOALS_FILE).write_text("{}\n")
    with pytest.raises(EnvironmentBroken, match="goals in"):
        open_shop(tmp_path)


def test_goals_about_unknown_products_are_an_error(shop_dir: Path, tmp_path: Path) -> None:
    shop = open_shop(shop_dir, ShopSettings(num_held_out=30))
    write_shop(tmp_path, shop, shop.goals[:2])
    text = (tmp_path / GOALS_FILE).read_text().replace("RB00", "XX00")
    (tmp_path / GOALS_FILE).write_text(text)
    with pytest.raises(EnvironmentBroken, match="unknown products"):
        open_shop(tmp_path)


def test_a_folder_below_the_agent_s_data_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATA_PATH", raising=False)
    with pytest.raises(EnvironmentBroken, match="DATA_PATH"):
        find_folder(None)
    with pytest.raises(EnvironmentBroken, match="no folder"):
        find_folder(str(tmp_path / "none"))
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    assert find_folder(None) == tmp_path
    (tmp_path / "webshop").mkdir()
    (tmp_path / "webshop" / GOALS_FILE).touch()
    assert find_folder(None) == tmp_path / "webshop"
    assert find_folder(str(tmp_path)) == tmp_path


def test_the_built_in_catalogue_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    write_catalogue(tmp_path / "a", num_products=12, seed=1)
    write_catalogue(tmp_path / "b", num_products=12, seed=1)
    write_catalogue(tmp_path / "c", num_products=12, seed=2)
    texts = [(tmp_path / name / "products.jsonl").read_text() for name in ("a", "b", "c")]
    assert texts[0] == texts[1] != texts[2]
    with pytest.raises(ValueError, match="num_products"):
        write_catalogue(tmp_path, num_products=0)
