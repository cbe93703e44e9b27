"""Generated games, two of each type, and a shop, shared by the tests of the environments."""

from pathlib import Path

import pytest

from envs.alfworld_games import collect_games, generate_games
from envs.webshop_builtin import write_catalogue


@pytest.fixture(scope="session")
def games_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in the public layout with twelve train games."""
    folder = tmp_path_factory.mktemp("alfworld") / "json_2.1.1"
    generate_games(folder, split="train", num_games=12, seed=5)
    return folder


@pytest.fixture(scope="session")
def games(games_dir: Path) -> list[Path]:
    """The twelve games, sorted."""
    return collect_games(games_dir, "train")


@pytest.fixture(scope="session")
def shop_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in catalogue of WebShop, in the public layout."""
    folder = tmp_path_factory.mktemp("webshop")
    write_catalogue(folder)
    return folder
