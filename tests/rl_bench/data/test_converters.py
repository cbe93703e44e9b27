"""From public files to what tasks read: WebShop's catalogue, ALFWorld's games, Alpaca's rows."""

import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from envs.alfworld_games import collect_games, generate_games
from envs.alfworld_layout import LayoutSettings
from rl_bench.data.alfworld_zip import TRAJECTORIES, unpack_split
from rl_bench.data.alpaca_rows import NUM_ROWS, write_first_rows
from rl_bench.data.catalogue import DataFile, Download, Make
from rl_bench.data.making import make
from rl_bench.data.webshop_catalogue import (
    HUMAN_GOALS,
    INSTRUCTIONS,
    ITEMS,
    product,
    write_human_goals,
    write_products,
)
from rl_bench.errors import DataError

MADE = frozenset(
    {
        "Title",
        "Description",
        "Reviews",
        "Rating",
        "BulletPoints",
        "Price",
        "options",
        "option_to_image",
        "Attributes",
        "MainImage",
        "instructions",
    }
)
"""Keys that the original loader adds."""


def item(asin: str = "B000000001", /, **changes: object) -> dict[str, Any]:
    return {
        "name": "Red Lamp",
        "full_description": "A lamp.",
        "pricing": "$19.99",
        "images": ["first.jpg", "second.jpg"],
        "product_category": "Home › Lamps",
        "small_description": ["bright ", "red "],
        "customization_options": "",
        "asin": asin,
        "category": "garden",
        "query": " Lamps ",
        "brand": "dropped",
        **changes,
    }


def made(**changes: object) -> dict[str, Any]:
    return product(item(**changes), attributes={}, human_goals={})


@pytest.mark.parametrize(
    ("text", "prices", "tag"),
    [
        ("$19.99", [19.99], "$19.99"),
        ("$1,019.50", [1019.5], "$1019.5"),
        ("$16.99 to $26.00", [16.99, 26.0], "$16.99 to $26.0"),
        ("$1.00$2.00$3.00", [1.0, 2.0], "$1.0 to $2.0"),
        ("", [100.0], "$100.0"),
        (None, [100.0], "$100.0"),
    ],
)
def test_prices_are_parsed(text: str | None, prices: list[float], tag: str) -> None:
    shown = made(pricing=text)

    assert (shown["pricing"], shown["Price"]) == (prices, tag)


def test_options_are_lower_case_and_their_slashes_apart() -> None:
    options = {
        "Color": [{"value": " Red/Blue ", "image": "rb.jpg"}, {"value": "GREEN"}],
        "Size": None,
    }

    shown = made(customization_options=options)

    assert shown["options"] == {"color": ["red | blue", "green"]}
    assert shown["option_to_image"] == {"red | blue": "rb.jpg", "green": None}


def test_a_product_has_what_the_original_shows() -> None:
    shown = made(small_description="only one")

    assert shown["BulletPoints"] == ["only one"]
    assert shown["Attributes"] == ["DUMMY_ATTR"]
    assert (shown["query"], shown["MainImage"]) == ("lamps", "first.jpg")
    assert "brand" not in shown


def webshop_files(folder: Path) -> dict[str, Path]:
    items = [item(), item(), item("nan"), item("B0000000012"), item("B000000002")]
    contents: dict[str, object] = {
        ITEMS: items,
        INSTRUCTIONS: {"B000000001": {"attributes": ["bright"]}, "B000000002": {}},
        HUMAN_GOALS: {"B000000002": [{"instruction": "a lamp"}], "B999999999": []},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return {name: folder / name for name in contents}


def test_the_catalogue_leaves_out_what_the_original_leaves_out(tmp_path: Path) -> None:
    write_products(webshop_files(tmp_path), tmp_path / "products.jsonl")

    rows = [json.loads(line) for line in (tmp_path / "products.jsonl").read_text().splitlines()]
    assert [row["asin"] for row in rows] == ["B000000001", "B000000002"]
    assert [row["Attributes"] for row in rows] == [["bright"], ["DUMMY_ATTR"]]
    assert ["instructions" in row for row in rows] == [False, True]


def test_only_goals_of_the_catalogue_are_kept(tmp_path: Path) -> None:
    write_human_goals(webshop_files(tmp_path), tmp_path / "goals.json")

    assert json.loads((tmp_path / "goals.json").read_text()) == {
        "B000000002": [{"instruction": "a lamp"}]
    }


def test_the_real_catalogue_is_reproduced_byte_for_byte(real_data: Path) -> None:
    """From itself, less what the original adds, and with prices as they were written."""
    folder = real_data / "webshop"
    lines = lzma.decompress((folder / "products_1000.jsonl.xz").read_bytes()).decode().splitlines()
    attributes = json.loads((folder / "items_ins_v2_1000.json").read_text())
    human = json.loads((folder / "human_instructions_1000subset.json").read_text())

    for line in lines:
        whole = json.loads(line)
        raw = {key: value for key, value in whole.items() if key not in MADE}
        raw["pricing"] = " to ".join(f"${price:,.2f}" for price in whole["pricing"])
        assert json.dumps(product(raw, attributes=attributes, human_goals=human)) == line


@pytest.fixture
def archives(tmp_path: Path) -> dict[str, Path]:
    """Generated games in the public archives' form, with what they have and tasks do not read."""
    layout = LayoutSettings(num_receptacles=4, num_objects=2)
    root = tmp_path / "json_2.1.1"
    generate_games(root, split="train", num_games=3, seed=0, settings=layout)
    generate_games(root, split="valid_unseen", num_games=2, seed=0, settings=layout)
    found = {"games.zip": tmp_path / "games.zip", TRAJECTORIES: tmp_path / TRAJECTORIES}
    with (
        zipfile.ZipFile(found["games.zip"], "w") as games,
        zipfile.ZipFile(found[TRAJECTORIES], "w") as trajectories,
    ):
        for game in sorted(root.rglob("game.tw-pddl")):
            place = game.relative_to(tmp_path).parent.as_posix()
            games.write(game, f"{place}/game.tw-pddl")
            told = json.loads((game.parent / "traj_data.json").read_text())
            full = told | {
                "scene": {"floor_plan": "FloorPlan1", "scene_num": 1, "object_poses": [1]},
                "turk_annotations": {"anns": [{"task_desc": "Do it.", "high_descs": ["a"]}]},
                "plan": {"low_actions": [1]},
            }
            trajectories.writestr(f"{place}/traj_data.json", json.dumps(full))
        games.writestr("json_2.1.1/train/no_trajectory/trial/game.tw-pddl", "{}")
        games.writestr("../train/a/b/game.tw-pddl", "{}")
        games.writestr("json_2.1.1/train/../b/game.tw-pddl", "{}")
    return found


@pytest.mark.parametrize(("split", "num_games"), [("train", 3), ("valid_unseen", 2)])
def test_archives_become_games_that_the_task_finds(
    archives: dict[str, Path], tmp_path: Path, split: str, num_games: int
) -> None:
    root = tmp_path / "out" / "json_2.1.1"

    unpack_split(archives, root / split, min_games=num_games)

    assert len(collect_games(root, "train" if split == "train" else "valid_unseen")) == num_games
    assert len(list((tmp_path / "out").rglob("*.tw-pddl"))) == num_games
    told = json.loads(next(root.rglob("traj_data.json")).read_text())
    assert told["turk_annotations"] == {"anns": [{"task_desc": "Do it."}]}
    assert "plan" not in told


def data_file(how: Make) -> DataFile:
    download = Download(name="x", url="https://public.example/x")
    return DataFile(path="train", content="games", downloads=(download,), make=how)


def test_an_archive_with_too_few_games_makes_nothing(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / "out" / "train"

    with pytest.raises(DataError, match="3 games of train found, 3553 wanted"):
        make(data_file(unpack_split), archives, target)

    assert list(target.parent.iterdir()) == []


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    broken = {name: tmp_path / name for name in ("games.zip", TRAJECTORIES)}
    for path in broken.values():
        path.write_bytes(b"PK no zip")

    with pytest.raises(DataError, match="BadZipFile") as caught:
        make(data_file(unpack_split), broken, tmp_path / "train")

    assert "get them again" in caught.value.cure


def alpaca(path: Path, num_rows: int) -> dict[str, Path]:
    names = ("instruction", "input", "output", "text")
    pq.write_table(
        pa.table({name: [f"{name} {i}" for i in range(num_rows)] for name in names}), path
    )
    return {"train.parquet": path}


def test_the_first_rows_of_alpaca(tmp_path: Path) -> None:
    write_first_rows(alpaca(tmp_path / "a.parquet", NUM_ROWS + 5), tmp_path / "train.jsonl")

    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(rows) == NUM_ROWS
    assert rows[7] == {"instruction": "instruction 7", "input": "input 7", "output": "output 7"}


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_another_file_than_alpaca_makes_nothing(tmp_path: Path, content: bytes | None) -> None:
    files = alpaca(tmp_path / "a.parquet", 10)
    if content is not None:
        files["train.parquet"].write_bytes(content)

    with pytest.raises(DataError, match="cannot be made from"):
        make(data_file(write_first_rows), files, tmp_path / "out" / "train.jsonl")

    assert list((tmp_path / "out").iterdir()) == []
