"""The known checkpoints that an audit compares submissions with."""

from collections.abc import Mapping
from pathlib import Path

from rl_bench.errors import ConfigError


def check_references(references: Mapping[str, Path]) -> None:
    """Refuses known checkpoints that are not there.

    Raises:
        ConfigError: With the name and the folder.
    """
    for name, path in references.items():
        if not path.expanduser().is_dir():
            raise ConfigError(
                f"audit.references.{name}={path} is no folder", cure="Name a checkpoint's folder"
            )
