"""What may stand on the command line: the config groups, and the overrides of their keys.

Spares the user Hydra's plus signs, and refuses an override that would silently change nothing.
"""

import re
from collections.abc import Mapping, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser

from rl_bench.config import AgentConfig, DriverConfig, Frozen, ModeConfig, ModelConfig, TaskConfig
from rl_bench.errors import ConfigError

AXES: Mapping[str, type[Frozen]] = {
    "agent": AgentConfig,
    "driver": DriverConfig,
    "mode": ModeConfig,
    "task": TaskConfig,
    "model": ModelConfig,
}
"""The groups that a sweep's blocks vary; each block list is named by the plural."""
CONDITIONS = ("budget", "sandbox", "grader", "sink", "cluster", "paths")
"""The groups that hold for the whole sweep."""
OPTIONAL_GROUPS = ("experiment", "debug")
ROOT_KEYS = {*AXES, *CONDITIONS, "sweep", "dry_run", "hydra", "options"}
_LIST_INDEX = re.compile(r"\.\d+(\.|$)")


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
                cure=f"The sweep's blocks name {', '.join(used[group])}; choose one of these by "
                f"{group}=NAME, or change sweep.blocks",
            )
