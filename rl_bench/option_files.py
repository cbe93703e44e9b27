"""The files of options, as they lie in `conf/`, in ``--config-dir`` folders and in plug-ins.

Nothing is composed, so that ``--help`` and errors name choices without Hydra: an option that takes
a key from another one's file does not tell it here.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from rl_bench.errors import ConfigError
from rl_bench.lines import printable
from rl_bench.plugins import option_folders

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"
OPTIONAL_GROUPS = ("experiment", "debug")
"""The groups of which none is taken when the command line names none."""

MAX_COMMENT_BYTES = 64 * 1024
"""Of a file, from its beginning: so far its first comment is looked for."""


def option_values(
    group: str, *, config_dirs: Sequence[Path] | None = None
) -> dict[str, Mapping[str, object]]:
    """The keys of each option's file in a group, by the option's name; sorted in each folder.

    Args:
        group: Its name.
        config_dirs: More folders beside `conf/` and plug-ins'; None: `conf/` alone.

    Raises:
        ConfigError: As `places`.
    """
    folders = [CONF_DIR] if config_dirs is None else places(config_dirs).values()
    found: dict[str, Mapping[str, object]] = {}
    for path in (path for folder in folders for path in _option_files(folder / group)):
        try:
            raw: object = yaml.safe_load(path.read_bytes())
        except (OSError, yaml.YAMLError):
            continue
        if isinstance(raw, dict):
            found.setdefault(path.stem, raw)
    return found


def places(config_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """The folders of options in the order in which they are searched, each as it is told of.

    Args:
        config_dirs: More folders with config groups, searched after `conf/` and before plug-ins'.

    Raises:
        ConfigError: One of them is no folder.
    """
    for folder in config_dirs:
        if not folder.is_dir():
            raise ConfigError(
                f"--config-dir {folder}: no such folder", cure="Name a folder of config groups"
            )
    if not CONF_DIR.is_dir():
        raise ConfigError(
            f"the folder {CONF_DIR} is missing", cure="Restore conf/ beside rl_bench/"
        )
    plugins = {
        f"{path} ({entry.distribution} {entry.version})": path for path, entry in option_folders()
    }
    return {str(folder): folder for folder in (CONF_DIR, *config_dirs)} | plugins


def default_options() -> dict[str, str]:
    """The option of each group that is taken when the command line names none."""
    root = yaml.safe_load((CONF_DIR / "config.yaml").read_bytes())
    return {
        str(group): str(option)
        for entry in root["defaults"]
        if isinstance(entry, dict)
        for group, option in entry.items()
    }


def groups(*, config_dirs: Sequence[Path] = ()) -> dict[str, list[str]]:
    """Every config group with the names of its options.

    Raises:
        ConfigError: As `places`.
    """
    folders = places(config_dirs).values()
    return {
        group: sorted({path.stem for folder in folders for path in _option_files(folder / group)})
        for group in (*default_options(), *OPTIONAL_GROUPS)
    }


def first_comments(group: str, *, config_dirs: Sequence[Path] = ()) -> dict[str, str]:
    """The first comment line of each option's file in a group, for a terminal.

    It is empty where a file has none or cannot be read.

    Raises:
        ConfigError: As `places`.
    """
    found: dict[str, str] = {}
    for folder in places(config_dirs).values():
        for path in _option_files(folder / group):
            found.setdefault(path.stem, _first_comment(path))
    return found


def _option_files(folder: Path) -> Iterator[Path]:
    """The files of a group in a folder that can be named and that Hydra finds, by their names."""
    for path in sorted(folder.glob("*.yaml")):
        try:
            is_option = path.is_file() and path.stem.isprintable()
        except OSError:
            continue
        if is_option:
            yield path


def _first_comment(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_COMMENT_BYTES).decode(errors="replace")
    except OSError:
        return ""
    comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    said = [comment for comment in comments if not comment.startswith("@package")]
    return printable(_whole_sentences(said[0])) if said else ""


def _whole_sentences(line: str) -> str:
    """A comment's first line, less a sentence that goes on in its second."""
    if line.endswith((".", ":")):
        return line.rstrip(":")
    end = line.rfind(". ")
    return line[: end + 1] if end >= 0 else f"{line} ..."
