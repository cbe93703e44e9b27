"""What may stand on the command line: the config groups, and the overrides of their keys.

Spares the user Hydra's plus signs, and refuses an override that would silently change nothing.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString

from rl_bench.config import AgentConfig, DriverConfig, Frozen, ModeConfig, ModelConfig, TaskConfig
from rl_bench.errors import ConfigError
from rl_bench.option_files import OPTIONAL_GROUPS, groups

AXES: Mapping[str, type[Frozen]] = {
    "agent": AgentConfig,
    "driver": DriverConfig,
    "mode": ModeConfig,
    "task": TaskConfig,
    "model": ModelConfig,
}
"""The groups that a sweep's blocks vary; each block list is named by the plural."""
CONDITIONS = ("budget", "sandbox", "grader", "sink", "audit", "cluster", "paths")
"""The groups that hold for the whole sweep."""
ROOT_KEYS = {*AXES, *CONDITIONS, "sweep", "dry_run", "hydra", "options"}
MAX_OVERRIDE_CHARS = 10_000
MAX_EXCLUDED = 3
"""How many exclusions a cure writes out."""
_LIST_INDEX = re.compile(r"\.\d+(\.|$)")


def check_have_values(overrides: Sequence[str], *, config_dirs: Sequence[Path] = ()) -> None:
    """Refuses a word without a value, which may be an option whose group was not named.

    Raises:
        ConfigError: With what was likely meant.
    """
    for word in overrides:
        key = word.lstrip("+")
        if "=" in word or key.startswith("~") or not key.strip():
            continue
        options = groups(config_dirs=config_dirs)
        homes = [f"{group}={key}" for group, names in options.items() if key in names]
        meant = homes or [f"{key}={'true' if key == 'dry_run' else 'VALUE'}"]
        raise ConfigError(f"'{word[:60]}' has no value", cure=f"Write {' or '.join(meant)}")


def normalised(overrides: Sequence[str]) -> list[str]:
    """Spares the user Hydra's plus signs.

    ``experiment=x`` means ``+experiment=x``, since that group has no default to override, and
    ``model.path=x`` may add a key that the option's file leaves out: the typed classes, not the
    files, say which keys exist.
    """
    words = []
    for word in overrides:
        key = word.partition("=")[0]
        head, dot, _ = key.partition(".")
        if len(word) > MAX_OVERRIDE_CHARS:
            raise ConfigError(
                f"override '{word[:60]}…' has {len(word)} characters",
                cure=f"Write what is longer than {MAX_OVERRIDE_CHARS} into a file of --config-dir",
            )
        if not key.strip("+~ "):
            raise ConfigError(f"override '{word}' names no key", cure="Write key=value")
        if key in OPTIONAL_GROUPS:
            words.append(f"+{word}")
        elif dot and head in ROOT_KEYS - {"hydra"} and not _LIST_INDEX.search(key):
            words.append(f"++{word}")
        else:
            words.append(word)
    return words


def check_used(
    words: Sequence[str], *, choices: Mapping[str, str], used: Mapping[str, Sequence[str]]
) -> None:
    """Refuses an override of an option that no block uses, e.g. since blocks name their own.

    Args:
        words: Overrides as `normalised` gives them.
        choices: The option that each axis chose.
        used: The options of each axis that the blocks name.

    Raises:
        ConfigError: With the override and the options that it could have meant.
    """
    for override in OverridesParser.create().parse_overrides(list(words)):
        parts = override.key_or_group.split(".")
        if parts[0] == "options":
            if len(parts) < 3:
                raise ConfigError(
                    f"override '{str(override.input_line).lstrip('+')}' names no option",
                    cure="Write options.GROUP.NAME.KEY=VALUE",
                )
            group, name = (*parts[1:3], "", "")[:2]
            if group in AXES and name == choices[group]:
                raise ConfigError(
                    f"override 'options.{group}.{name}': {name} is the chosen {group}",
                    cure=f"Write {group}.KEY=VALUE",
                )
        else:
            group, name = parts[0], choices.get(parts[0], "")
        if group in AXES and name not in used[group]:
            raise ConfigError(
                f"override '{str(override.input_line).lstrip('+')}' changes {group} '{name}', "
                "which no run of this sweep uses",
                cure=f"The sweep's blocks name {', '.join(used[group])}; "
                + (
                    f"write options.{group}.NAME.KEY=VALUE, or change sweep.blocks"
                    if len(parts) > 1
                    else f"name every list anew: sweep.blocks=[{{{group}s: [{name}], ...}}]"
                ),
            )


def check_choices(
    words: Sequence[str], *, used: Mapping[str, Sequence[str]], fixed: Collection[str]
) -> None:
    """Refuses a choice that looks like a filter of the sweep's blocks, which it is not.

    Args:
        words: Overrides as `normalised` gives them.
        used: The options of each axis that the blocks name.
        fixed: The axes that every block names itself.

    Raises:
        ConfigError: With the options that the blocks name, and how to leave some out.
    """
    for override in OverridesParser.create().parse_overrides(list(words)):
        group, name = override.key_or_group, str(override.value())
        if group not in fixed or override.is_delete():
            continue
        others = [other for other in used[group] if other != name]
        if others:
            listed = ", ".join(f'"{group}={other}"' for other in others)
            excluded = f"Leave some out with 'sweep.exclude=[{listed}]', or name"
            start = excluded if len(others) <= MAX_EXCLUDED else "Name"
            raise ConfigError(
                f"'{group}={name}' changes nothing: the sweep's blocks name their own {group}s "
                f"({', '.join(used[group])})",
                cure=f"{start} every list anew: sweep.blocks=[{{{group}s: [{name}], ...}}]",
            )


def check_lists(words: Sequence[str]) -> None:
    """Refuses ``group=a,b``, which Hydra takes for a sweep of its own, and ``group=null``.

    Raises:
        ConfigError: With the sweep's own way to write it.
    """
    for override in OverridesParser.create().parse_overrides(list(words)):
        if not override.is_sweep_override():
            _check_choice(override.key_or_group, override.value(), is_delete=override.is_delete())
            continue
        line = str(override.input_line).lstrip("+")
        group, value = override.key_or_group, line.partition("=")[2]
        if group in AXES:
            cure = f"To run several, set {_blocks_cure(group, value)}"
        elif group in {*CONDITIONS, *OPTIONAL_GROUPS}:
            cure = f"One sweep has one {group}: start a sweep for each"
        else:
            cure = f"Write a list as {group}=[...], and text with commas in quotes"
        raise ConfigError(f"override '{line}' gives several values", cure=cure)


def _check_choice(group: str, value: object, *, is_delete: bool) -> None:
    """Refuses what names no option of a group; several are refused once all is composed."""
    is_group = group in AXES or group in CONDITIONS or group in OPTIONAL_GROUPS
    if is_group and not is_delete and not isinstance(value, str | QuotedString | list):
        raise ConfigError(f"'{group}={value}' names no option", cure=f"Write {group}=NAME")


def _blocks_cure(group: str, names: str) -> str:
    listed = ", ".join(name.strip() for name in names.split(","))
    return f"'sweep.blocks=[{{{group}s: [{listed}]}}]'"
