"""Turns what Hydra, OmegaConf and pydantic say about a bad config into one clear line each.

Each line names the key, what is wrong with it, and the choices or the cure. Nothing here decides
what is valid: it only translates.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar, get_args

from hydra import compose as hydra_compose
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rl_bench.compose_overrides import AXES, CONDITIONS, ROOT_KEYS
from rl_bench.config import Experiment, Frozen
from rl_bench.errors import ConfigError
from rl_bench.nearest import did_you_mean, nearest
from rl_bench.option_files import OPTIONAL_GROUPS
from rl_bench.plugins import missing_folders

C = TypeVar("C", bound=Frozen)
_COULD_NOT_OVERRIDE = re.compile(r"Could not (?:override|append|delete)[^']*'([^']+)'")
_TWICE = re.compile(r"Multiple values for (\w+)\.")


def check_places(options: Sequence[tuple[str, str]], places: Mapping[str, Path]) -> None:
    """Refuses an option that two folders have, since one of them would be passed over in silence.

    Args:
        options: Group and name of each.
        places: The folders, by how they are told of.

    Raises:
        ConfigError: With both places.
    """
    for group, name in options:
        found = [told for told, path in places.items() if (path / group / f"{name}.yaml").is_file()]
        if len(found) > 1:
            raise ConfigError(
                f"{group} '{name}' is there twice: in {' and in '.join(found)}",
                cure="Rename one of the two files, or uninstall the plug-in that has it",
            )


def validate(cls: type[C], raw: object, *, where: str) -> C:
    """Builds ``cls`` from plain data.

    Raises:
        ConfigError: One line for each wrong key, each with its full path under ``where``.
    """
    try:
        return cls.model_validate(raw)
    except ValidationError as error:
        details = error.errors()
        shown = [detail for detail in details if not _follows_from_another(detail, details)]
        lines = [_validation_line(cls, detail, where=where) for detail in shown]
        raise ConfigError("\n".join(lines)) from error


def as_config_error(error: Exception, *, overrides: Sequence[str]) -> ConfigError:
    """The `ConfigError` that says what ``error`` means; called inside an initialised Hydra."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _unknown_option(error)
    if isinstance(error, OverrideParseException):
        return ConfigError(
            f"override '{str(error.override).lstrip('+')}' cannot be read",
            cure="Write key=value, and quote values with special characters: 'key=\"a,b\"'",
        )
    key = _COULD_NOT_OVERRIDE.match(str(error))
    if key:
        return _unknown_key(key.group(1), str(error), overrides=overrides)
    twice = _TWICE.match(str(error))
    if twice:
        return ConfigError(f"{twice[1]} is given twice", cure=f"One sweep has one {twice[1]}")
    if isinstance(error, OmegaConfBaseException):
        return _misspelt(overrides) or _omegaconf_line(error)
    text = _one_line(str(error)) or _one_line(str(error.__cause__ or "")) or type(error).__name__
    given = ", ".join(f"'{word.lstrip('+')[:80]}'" for word in overrides)
    return ConfigError(
        f"the config does not compose: {text[:500]}", cure=f"Check what you gave: {given}"
    )


def _unknown_option(error: MissingConfigException) -> ConfigError:
    group, _, option = str(error.missing_cfg_file).rpartition("/")
    choices = [str(choice) for choice in error.options or ()]
    cure = did_you_mean(option, choices)
    for entry in missing_folders():
        cure += f". The options of {entry.distribution} {entry.version} are missing: {entry.value}"
    return ConfigError(f"{group} '{option}' does not exist", cure=cure)


def _unknown_key(key: str, message: str, *, overrides: Sequence[str]) -> ConfigError:
    if message.startswith("Could not append"):
        return ConfigError(
            f"'+{key}' adds a key that is there already", cure=f"Write {key}=... without the plus"
        )
    choices = [word for word in overrides if "." not in word.partition("=")[0] and "=" in word]
    node: object = _compose_quietly(choices)
    at: list[str] = []
    for part in key.split("."):
        if not isinstance(node, DictConfig) or part not in node:
            break
        node = OmegaConf.to_container(node, resolve=False) and node._get_node(part)
        at.append(part)
    rest = key.split(".")[len(at) :]
    known = sorted(str(name) for name in node) if isinstance(node, DictConfig) else []
    where = ".".join(at)
    if not where:
        return unknown_root_key(key)
    return ConfigError(
        f"unknown key '{key}'" + (f": {where} has no '{rest[0]}'" if rest else ""),
        cure=_key_cure(rest[0] if rest else key, known),
    )


def unknown_root_key(key: str) -> ConfigError:
    """Says that no group or key has this name; what lies in a group may be meant."""
    known = sorted({*ROOT_KEYS, *OPTIONAL_GROUPS} - {"hydra", "options"})
    inside = _keys_by_name()
    spelled = (
        inside | {dotted: dotted for dotted in inside.values()} | {name: name for name in known}
    )
    meant = nearest(key, spelled)
    return ConfigError(
        f"unknown key '{key}'", cure=did_you_mean(key, known, meant=spelled[meant] if meant else "")
    )


def key_in_a_group(name: str) -> str | None:
    """A key of this name that a group has, with its group."""
    return _keys_by_name().get(name)


def _key_cure(word: str, known: Sequence[str]) -> str:
    """The keys beside an unknown one; one of its name in another group is meant where none fits."""
    elsewhere = None if nearest(word, known) else key_in_a_group(word)
    return did_you_mean(word, known, meant=elsewhere)


def _keys_by_name() -> dict[str, str]:
    """The keys right below groups, by their own names; of several the sweep's, then by order."""
    found: dict[str, str] = {}
    for group in ("sweep", *CONDITIONS, *AXES):
        for name in _fields_at(Experiment, [group]) or AXES[group].model_fields:
            found.setdefault(name, f"{group}.{name}")
    return found


def _misspelt(overrides: Sequence[str]) -> ConfigError | None:
    """The first override of a key that its class does not have; where one is missing, the cause."""
    for word in overrides:
        key = word.partition("=")[0].lstrip("+~").partition("@")[0]
        parts = key.split(".")
        start = 3 if parts[0] == "options" else 1
        group = parts[1] if start == 3 and len(parts) > 3 else parts[0]
        cls = AXES.get(group) or _model_in(_annotation(Experiment, group))
        if cls is None:
            continue
        for index in range(start, len(parts)):
            known = _fields_at(cls, parts[start:index])
            if not known:
                break
            if parts[index] not in known:
                wrong = ".".join(parts[: index + 1])
                return ConfigError(f"unknown key '{wrong}'", cure=_key_cure(parts[index], known))
    return None


def _annotation(cls: type[BaseModel], name: str) -> object:
    field = cls.model_fields.get(name)
    return field.annotation if field else None


def _compose_quietly(overrides: Sequence[str]) -> DictConfig:
    try:
        return hydra_compose("config", overrides=list(overrides))
    except Exception:  # noqa: BLE001  the first error is being explained, a second adds nothing
        return hydra_compose("config", overrides=[])


def _omegaconf_line(error: OmegaConfBaseException) -> ConfigError:
    key = error.full_key or ""
    text = _one_line(str(error))
    if "Missing mandatory value" in text:
        return ConfigError(f"missing key '{key}'", cure=f"Set it: {key}=...")
    return ConfigError(f"{key}: {text}" if key and key not in text else text)


def _validation_line(cls: type[BaseModel], detail: ErrorDetails, *, where: str) -> str:
    loc = [str(part) for part in detail["loc"]]
    key = ".".join([where, *loc])
    if detail["type"] == "extra_forbidden":
        known = _fields_at(cls, loc[:-1])
        return f"unknown key '{key}'. {_key_cure(loc[-1], known)}"
    if detail["type"] == "missing":
        return f"missing key '{key}'. Add it to the option's file or set {key}=..."
    message = detail["msg"].removeprefix("Value error, ")
    message = (message[:1].lower() + message[1:]).replace("tuple", "list")
    given = detail["input"]
    shown = f" (got {given!r})" if isinstance(given, str | int | float) or given is None else ""
    cure = f". Write {key}=[{given}]" if shown and detail["type"] == "tuple_type" else ""
    return f"{key}: {message}{shown}{cure}"


def _follows_from_another(detail: ErrorDetails, details: Sequence[ErrorDetails]) -> bool:
    """A list of which one item is bad is also reported as too short: only the item matters."""
    loc = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in details
    )


def _fields_at(cls: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The field names of the model that ``path`` leads to inside ``cls``."""
    for part in path:
        if part.isdigit():
            continue
        field = cls.model_fields.get(part)
        nested = _model_in(field.annotation) if field else None
        if nested is None:
            return []
        cls = nested
    return list(cls.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for arg in get_args(annotation) if (m := _model_in(arg))), None)


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""
