"""The known checkpoints that an audit compares submissions with."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rl_bench.checks import check_all
from rl_bench.errors import ConfigError


def check_references(references: Mapping[str, Path]) -> None:
    """Refuses known checkpoints that are not there.

    Raises:
        ConfigError: With the name and the folder.
    """
    check_all(*(partial(_check_folder, name, path) for name, path in references.items()))


def _check_folder(name: str, path: Path) -> None:
    if not path.expanduser().is_dir():
        raise ConfigError(
            f"audit.references.{name}={path} is no folder", cure="Name a checkpoint's folder"
        )
