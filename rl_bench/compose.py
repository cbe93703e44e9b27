"""From overrides on the command line to one typed `Experiment`: the only use of Hydra.

Hydra composes `conf/` (and the folders of ``--config-dir`` and of plug-ins) once for the options
that the groups chose, and, where the sweep's blocks name others, once more with each of them in a
package of its own, so that all of them pass through Hydra's search path and defaults lists. An
option that two of these folders have is refused once it is used. A chosen option carries the
overrides (``task.num_eval=5``), any other takes its own (``options.task.gsm8k.num_eval=5``); an
override that no run of the sweep would see is an error. An option refers to its
own keys by relative interpolation (``${.key}``).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from rl_bench.compose_errors import as_config_error, check_places, unknown_root_key, validate
from rl_bench.compose_overrides import (
    AXES,
    CONDITIONS,
    ROOT_KEYS,
    check_choices,
    check_have_values,
    check_lists,
    check_used,
    normalised,
)
from rl_bench.config import (
    AgentConfig,
    AuditConfig,
    BlockConfig,
    BudgetConfig,
    ClusterConfig,
    Experiment,
    Frozen,
    GraderConfig,
    Options,
    PathsConfig,
    SandboxConfig,
    SinkConfig,
    SweepConfig,
)
from rl_bench.errors import ConfigError
from rl_bench.option_files import CONF_DIR, OPTIONAL_GROUPS, places
from rl_bench.plan import block_stacks
from rl_bench.plugins import option_folders
from rl_bench.sweep_claim import conditions_digest

C = TypeVar("C", bound=Frozen)
EVERY = "*"
_UNNAMED = "unnamed"
_MAX_LABEL = 48


class Composed(NamedTuple):
    """An experiment, and whether only its plan is wanted."""

    experiment: Experiment
    dry_run: bool


def compose(overrides: Sequence[str], *, config_dirs: Sequence[Path] = ()) -> Composed:
    """Composes and validates an experiment.

    Args:
        overrides: Hydra overrides, e.g. ``+experiment=quickstart`` or ``budget.wall_clock_s=60``.
        config_dirs: More folders with config groups, searched after `conf/` and before plug-ins'.

    Raises:
        ConfigError: With the key, the choices and the cure.
    """
    with _hydra(config_dirs) as searched:
        check_have_values(overrides, config_dirs=config_dirs)
        words = normalised(overrides)
        try:
            check_lists(words)
            cfg = hydra_compose("config", overrides=words, return_hydra_config=True)
            _check_root(cfg)
            partial = _sweep(cfg)
            sweep = _complete(partial, choices=_choices(cfg))
            check_places(_used_options(cfg, sweep), searched)
            missing = _option_overrides(cfg, sweep)
            named = hydra_compose("config", overrides=[*words, *missing]) if missing else cfg
            experiment = to_experiment(cfg, sweep=sweep, catalogue=named.get("options", {}))
            used = _used_names(sweep)
            check_used(words, choices=_choices(cfg), used=used)
            check_choices(words, used=used, fixed=_fixed_groups(partial))
            dry_run = _boolean(cfg.get("dry_run"), key="dry_run")
        except ConfigError:
            raise
        except Exception as error:  # Hydra raises anything, ValueError and up
            raise as_config_error(error, overrides=words) from error
        if sweep.name == _UNNAMED and _is_unnamed(cfg):
            experiment = _named(experiment)
        return Composed(experiment, dry_run)


def compose_paths(overrides: Sequence[str], *, config_dirs: Sequence[Path] = ()) -> PathsConfig:
    """Composes the folders alone, for commands that run no sweep.

    Args:
        overrides: Hydra overrides of ``paths``.
        config_dirs: As in `compose`.

    Raises:
        ConfigError: With the key, the choices and the cure.
    """
    with _hydra(config_dirs):
        try:
            cfg = hydra_compose("config", overrides=list(overrides))
            return _typed(PathsConfig, cfg.paths, where="paths")
        except ConfigError:
            raise
        except Exception as error:  # Hydra raises anything, ValueError and up
            raise as_config_error(error, overrides=overrides) from error


def compose_agent(
    name: str, overrides: Sequence[str] = (), *, config_dirs: Sequence[Path] = ()
) -> AgentConfig | None:
    """Composes one option of the group agent alone, for commands that run no sweep.

    Args:
        name: The option.
        overrides: Hydra overrides of ``agent``.
        config_dirs: As in `compose`.

    Returns:
        The agent; None when it is not the package of a registry.

    Raises:
        ConfigError: With the key, the choices and the cure.
    """
    with _hydra(config_dirs) as searched:
        words = [f"agent={name}", *overrides]
        try:
            cfg = hydra_compose("config", overrides=words)
            check_places([("agent", name)], searched)
            if cfg.agent.get("package") is None:
                return None
            return _typed(AgentConfig, cfg.agent, where="agent")
        except ConfigError:
            raise
        except Exception as error:  # Hydra raises anything, ValueError and up
            raise as_config_error(error, overrides=words) from error


def to_experiment(
    cfg: DictConfig, *, sweep: SweepConfig, catalogue: Mapping[str, Mapping[str, DictConfig]]
) -> Experiment:
    """Turns a composed config into the typed experiment.

    Args:
        cfg: The composed root; its chosen options carry the overrides.
        sweep: The sweep with complete blocks.
        catalogue: The options that are named but not chosen: group, then name.
    """
    choices = _choices(cfg)
    used = _used_names(sweep)

    def options(group: str) -> dict[str, Frozen]:
        return {
            name: _typed(
                AXES[group],
                cfg[group] if name == choices[group] else catalogue[group][name],
                where=group if name == choices[group] else f"options.{group}.{name}",
            )
            for name in used[group]
        }

    conditions = {
        "budget": _typed(BudgetConfig, cfg.budget, where="budget"),
        "sandbox": _typed(SandboxConfig, cfg.sandbox, where="sandbox"),
        "grader": _typed(GraderConfig, cfg.grader, where="grader"),
        "sink": _typed(SinkConfig, cfg.sink, where="sink"),
        "audit": _typed(AuditConfig, cfg.audit, where="audit"),
        "cluster": _typed(ClusterConfig, cfg.cluster, where="cluster"),
        "paths": _typed(PathsConfig, cfg.paths, where="paths"),
    }
    return Experiment.model_validate(
        {
            "sweep": sweep,
            "options": Options.model_validate({f"{group}s": options(group) for group in AXES}),
            **conditions,
        }
    )


def _used_options(cfg: DictConfig, sweep: SweepConfig) -> list[tuple[str, str]]:
    """Group and name of every option that makes this experiment."""
    chosen = cfg.hydra.runtime.choices
    groups = (*CONDITIONS, *OPTIONAL_GROUPS)
    used = [(group, str(chosen[group])) for group in groups if chosen.get(group)]
    return used + [(group, name) for group, names in _used_names(sweep).items() for name in names]


@contextmanager
def _hydra(config_dirs: Sequence[Path]) -> Iterator[Mapping[str, Path]]:
    """Hydra, made ready to compose; the folders of options that it searches."""
    searched = places(config_dirs)
    _ConfigDirs.folders = tuple(config_dirs)
    with initialize_config_dir(str(CONF_DIR), version_base="1.3", job_name="rl_bench"):
        yield searched


class _ConfigDirs(SearchPathPlugin):
    """Hydra's own way to more places; it asks each time that it is initialised."""

    folders: ClassVar[tuple[Path, ...]] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders:
            search_path.append("rl_bench", f"file://{folder.resolve()}")
        for path, entry in option_folders():
            search_path.append(entry.distribution, f"file://{path.resolve()}")


Plugins.instance().register(_ConfigDirs)


def _check_root(cfg: DictConfig) -> None:
    for key in cfg:
        if key not in ROOT_KEYS:
            raise unknown_root_key(str(key))


def _boolean(value: object, *, key: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is '{value}'", cure="Choices: true, false")
    return value


def _choices(cfg: DictConfig) -> dict[str, str]:
    choices = cfg.hydra.runtime.choices
    for group in (*AXES, *CONDITIONS):
        if not isinstance(choices.get(group), str):
            raise ConfigError(
                f"{group} takes one option",
                cure=f"Write {group}=NAME, and list several in sweep.blocks",
            )
    return {group: str(choices[group]) for group in AXES}


def _sweep(cfg: DictConfig) -> SweepConfig:
    """The sweep as it is written; one without a name takes its experiment's."""
    raw = OmegaConf.to_container(cfg.sweep, resolve=True)
    if isinstance(raw, dict) and raw.get("name") is None:
        experiment = cfg.hydra.runtime.choices.get("experiment")
        raw["name"] = str(experiment or _UNNAMED).replace("/", "-")
    return validate(SweepConfig, raw, where="sweep")


def _is_unnamed(cfg: DictConfig) -> bool:
    return cfg.sweep.name is None and cfg.hydra.runtime.choices.get("experiment") is None


def _named(experiment: Experiment) -> Experiment:
    """Names a sweep by its conditions, so that only the same command resumes it."""
    options = experiment.options
    parts = [
        next(iter(names)) if len(names) == 1 else f"{len(names)}{group}"
        for group, names in {"agents": options.agents, "tasks": options.tasks}.items()
    ]
    label = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(parts)).lstrip("_.-")[:_MAX_LABEL]
    name = f"{label or 'sweep'}-{conditions_digest(experiment)}"
    return experiment.model_copy(
        update={"sweep": experiment.sweep.model_copy(update={"name": name})}
    )


def _fixed_groups(sweep: SweepConfig) -> set[str]:
    """The axes that every block names itself, so that what their groups choose adds nothing."""
    return {
        group
        for group in AXES
        if all(
            getattr(block, f"{group}s") is not None
            or (block.stacks is not None and group in {"agent", "driver"})
            for block in sweep.blocks
        )
    }


def _complete(sweep: SweepConfig, *, choices: Mapping[str, str]) -> SweepConfig:
    """The sweep with every list of its blocks filled in."""
    blocks = tuple(_complete_block(block, sweep=sweep, choices=choices) for block in sweep.blocks)
    return sweep.model_copy(update={"blocks": blocks})


def _complete_block(
    block: BlockConfig, *, sweep: SweepConfig, choices: Mapping[str, str]
) -> BlockConfig:
    def names(group: str, given: tuple[str, ...] | None) -> tuple[str, ...]:
        if given is None:
            return (choices[group],)
        return tuple(_group_options(group)) if given == (EVERY,) else given

    pairs: dict[str, tuple[str, ...]] = {}
    if block.stacks is None:
        pairs = {
            "agents": names("agent", block.agents),
            "drivers": names("driver", block.drivers),
        }
    return block.model_copy(
        update={
            **pairs,
            "modes": names("mode", block.modes),
            "tasks": names("task", block.tasks),
            "models": names("model", block.models),
            "seeds": sweep.seeds if block.seeds is None else block.seeds,
        }
    )


def _group_options(group: str) -> list[str]:
    return GlobalHydra.instance().config_loader().get_group_options(group)


def _used_names(sweep: SweepConfig) -> dict[str, tuple[str, ...]]:
    """The options of each axis that the blocks name, without repeats, in order."""
    used: dict[str, dict[str, None]] = {group: {} for group in AXES}
    for block in sweep.blocks:
        for agent, driver in block_stacks(block):
            used["agent"][agent] = None
            used["driver"][driver] = None
        for group in ("mode", "task", "model"):
            used[group].update(dict.fromkeys(getattr(block, f"{group}s") or ()))
    return {group: tuple(names) for group, names in used.items()}


def _option_overrides(cfg: DictConfig, sweep: SweepConfig) -> list[str]:
    choices = _choices(cfg)
    missing = [
        (group, name)
        for group, names in _used_names(sweep).items()
        for name in names
        if name != choices[group]
    ]
    return [f"+{group}@options.{group}.{name}={name}" for group, name in missing]


def _typed(cls: type[C], node: DictConfig, *, where: str) -> C:
    raw = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    return _absolute(validate(cls, raw, where=where))


def _absolute(config: C) -> C:
    """Makes its paths absolute, since graders and agents work in other folders."""
    return config.model_copy(
        update={name: _anchored(value) for name, value in dict(config).items()}
    )


def _anchored(value: object) -> object:
    """A path, or the paths in a tuple or mapping, absolute; anything else as it is."""
    match value:
        case Path():
            return value.expanduser().absolute()
        case tuple():
            return tuple(_anchored(item) for item in value)
        case Mapping():
            return {key: _anchored(item) for key, item in value.items()}
        case _:
            return value
