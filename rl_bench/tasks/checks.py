"""What several tasks check or count alike: numbers of rows, protocols' names, items' endings."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from pydantic import ValidationError

from envs.protocols import get_protocol
from rl_bench.config import Frozen, TaskConfig
from rl_bench.context_fit import CONTEXT_WINDOW, PROMPT_TOO_LONG
from rl_bench.engine.base import FinishReason
from rl_bench.errors import ConfigError, MissingDataError, PreflightError
from rl_bench.tasks.base import ItemOutcome, ItemStatus

S = TypeVar("S", bound=Frozen)


def check_count(
    task: str,
    *,
    split: str,
    found: int,
    wanted: int | None,
    complete: int = 0,
    what: str = "rows",
    cure: str = "",
) -> None:
    """Refuses a split that has fewer rows than the config wants.

    Args:
        task: The task's name.
        split: ``train`` or ``eval``, as in ``num_train`` and ``num_eval``.
        found: How many there are.
        wanted: How many the config asks for; None: all, but one at least.
        complete: How many the whole public split has; 0: there is no more to be had.
        what: What is counted.
        cure: How data are had, where some are missing.

    Raises:
        PreflightError: There are too few, and no data set has more.
        MissingDataError: There are none, or fewer than the public split has.
    """
    if found >= max(1, wanted or 0):
        return
    message = f"task {task}: {found} {split} {what} found, {wanted or 'some'} wanted"
    if not found:
        raise MissingDataError(message, cure=cure)
    lower = f"Lower task.num_{split} to {found}"
    if found < complete:
        raise MissingDataError(message, cure=f"{lower}, or complete the data. {cure}".rstrip(". "))
    raise PreflightError(message, cure=lower)


def check_known(task: str, settings: Mapping[str, object], *, known: Collection[str]) -> None:
    """Refuses settings that a task does not have.

    Raises:
        ConfigError: There is one; names it and the known ones.
    """
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ConfigError(
            f"task {task}: settings.{unknown[0]} does not exist",
            cure=f"Known settings: {', '.join(known)}",
        )


def read_settings(cls: type[S], config: TaskConfig) -> S:
    """The task's own settings, typed.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    try:
        return cls.model_validate(dict(config.settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise wrong_settings(cls, config, f".{where}: {first['msg']}") from error


def wrong_settings(cls: type[Frozen], config: TaskConfig, why: str) -> ConfigError:
    """What is wrong with a task's settings (``why`` goes on from the word), and which there are."""
    return ConfigError(
        f"task {config.name}: settings{why}",
        cure=f"Known settings: {', '.join(cls.model_fields)}",
    )


def check_protocol(config: TaskConfig, spec: str, *, choices: Sequence[str]) -> None:
    """Makes the protocol that ``spec`` names once.

    Args:
        config: The task.
        spec: ``config.protocol`` with its settings, as `envs.protocols.get_protocol` takes it.
        choices: The protocols that speak the task's language.

    Raises:
        ConfigError: The task does not know it, or one of its settings is wrong.
        PreflightError: A file that it needs is missing.
    """
    if config.protocol not in choices:
        raise ConfigError(
            f"task {config.name}: protocol '{config.protocol}' is none of this task's",
            cure=f"Choices for task.protocol: {', '.join(choices)}",
        )
    try:
        get_protocol(spec)
    except FileNotFoundError as error:
        raise MissingDataError(f"task {config.name}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"task {config.name}: {error}") from error


def completion_endings(items: Sequence[ItemOutcome]) -> dict[str, float]:
    """In percent of all: answers that were cut off, and prompts that do not fit the context."""
    return {
        "cut_off_percent": _percent(items, "finish_reason", FinishReason.LENGTH.value),
        PROMPT_TOO_LONG: _percent(items, "finish_reason", FinishReason.PROMPT_TOO_LONG.value),
    }


def mean_steps(items: Sequence[ItemOutcome]) -> dict[str, float]:
    """Mean steps of the episodes that were played; nothing where none was."""
    steps = [item.num_steps for item in items if item.status is ItemStatus.OK]
    return {"mean_steps": sum(steps) / len(steps)} if steps else {}


def episode_endings(items: Sequence[ItemOutcome]) -> dict[str, float]:
    """In percent of all: episodes that ended because their next step did not fit the context."""
    return {CONTEXT_WINDOW: _percent(items, "ended_by", "context_window")}


def _percent(items: Sequence[ItemOutcome], key: str, value: str) -> float:
    return 100.0 * sum(item.detail.get(key) == value for item in items) / len(items)
