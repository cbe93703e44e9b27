"""The plan: which runs a sweep consists of, each with an id that is a digest of its conditions.

`expand` is the one place where conditions become runs. Equal conditions are one run, the order is
that of the blocks, and the same experiment always gives the same plan. The digest covers the whole
`RunSpec`, including ``data_path`` and ``model.path``: a run on data that moved is another run.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rl_bench.config import AgentConfig, BlockConfig, DriverConfig, Experiment, RunSpec
from rl_bench.errors import ConfigError
from rl_bench.option_files import option_values

MULTI = "multi"
DIGEST_LENGTH = 8
MAX_RUN_ID = 240
"""A file's name has 255 bytes, and those of a run's files say more than its id."""
EXCLUDE_KEYS = ("agent", "driver", "mode", "task", "model", "seed")


class Cell(NamedTuple):
    """One combination of option names; ``tasks`` are several only in mode ``multi``."""

    agent: str
    driver: str
    mode: str
    tasks: tuple[str, ...]
    model: str
    seed: int


def expand(experiment: Experiment) -> list[RunSpec]:
    """The runs of an experiment, in order, without duplicates.

    Raises:
        ConfigError: A stack that names a pair which cannot be driven, an exclusion that is
            malformed or excludes nothing, nothing is left to run, or a run's id is too long.
    """
    exclusions = [_Exclusion.parse(text) for text in experiment.sweep.exclude]
    specs = [
        _spec(experiment, kept)
        for block in experiment.sweep.blocks
        for cell in _cells(block, experiment=experiment)
        if (kept := _without(cell, exclusions)) is not None
    ]
    unused = [e.text for e in exclusions if not e.matched]
    if unused:
        raise ConfigError(
            f"sweep.exclude: '{unused[0]}' matches no run", cure="Check the names, or remove it"
        )
    if not specs:
        raise ConfigError("sweep: no run is left", cure="Check sweep.blocks and sweep.exclude")
    plan = {run_id(spec): spec for spec in specs}
    longest = max(plan, key=len)
    if len(longest) > MAX_RUN_ID:
        raise ConfigError(
            f"run {longest}: its id has {len(longest)} characters of {MAX_RUN_ID} that names of "
            "its files leave it",
            cure="Shorten the names of its agent, driver, mode, task or model",
        )
    return list(plan.values())


def run_id(spec: RunSpec) -> str:
    """A readable label and a digest, e.g. ``noop-none-free-gsm8k-tiny-s0-1a2b3c4d``."""
    task = spec.tasks[0].name if len(spec.tasks) == 1 else f"{len(spec.tasks)}tasks"
    names = (spec.agent.name, spec.driver.name, spec.mode.name, task, spec.model.name)
    return f"{'-'.join(names)}-s{spec.seed}-{digest(spec)}"


def digest(spec: RunSpec) -> str:
    """The first hex digits of the SHA-256 of the spec's canonical JSON."""
    canonical = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST_LENGTH]


def drives(agent: AgentConfig, driver: DriverConfig) -> bool:
    """Whether the scaffold speaks the driver's API; an agent of its own takes no driver."""
    return driver.api_for(agent) is not None if agent.apis else driver.is_none


def undrivable_pairs(experiment: Experiment) -> list[tuple[str, str]]:
    """The (agent, driver) pairs that factorial blocks name and `expand` leaves out."""
    pairs = {
        pair
        for block in experiment.sweep.blocks
        if block.stacks is None
        for pair in block_stacks(block)
        if not _drivable(pair, experiment)
    }
    return sorted(pairs)


def block_stacks(block: BlockConfig) -> list[tuple[str, str]]:
    """The (agent, driver) pairs that a complete block names, drivable or not.

    Raises:
        ConfigError: A stack is not written as ``agent/driver``.
    """
    if block.stacks is None:
        return [(a, d) for a in block.agents or () for d in block.drivers or ()]
    pairs = [tuple(stack.split("/")) for stack in block.stacks]
    for stack, pair in zip(block.stacks, pairs, strict=True):
        if len(pair) != 2 or not all(pair):
            raise ConfigError(
                f"sweep.blocks: stack '{stack}' is not an agent and a driver",
                cure="Write it as agent/driver, e.g. claude_code/opus_4_6",
            )
    return [(pair[0], pair[1]) for pair in pairs]


def _cells(block: BlockConfig, *, experiment: Experiment) -> Iterator[Cell]:
    return (
        Cell(agent, driver, mode, tasks, model, seed)
        for agent, driver in _pairs(block, experiment=experiment)
        for mode in block.modes or ()
        if _works_in(agent, mode, block=block, experiment=experiment)
        for tasks in _task_groups(experiment.options.modes[mode].name, block.tasks or ())
        for model in block.models or ()
        for seed in block.seeds or ()
    )


def _pairs(block: BlockConfig, *, experiment: Experiment) -> list[tuple[str, str]]:
    pairs = block_stacks(block)
    drivable = [pair for pair in pairs if _drivable(pair, experiment)]
    if block.stacks is not None and len(drivable) < len(pairs):
        agent, driver = next(pair for pair in pairs if pair not in drivable)
        raise ConfigError(
            f"sweep.blocks: stack '{agent}/{driver}' cannot run: {_mismatch(agent, experiment)}",
            cure=f"Choices for {agent}: {', '.join(_drivers_of(agent, experiment)) or 'none'}",
        )
    if not drivable:
        agent, driver = pairs[0]
        raise ConfigError(
            f"agent '{agent}' cannot work with driver '{driver}': {_mismatch(agent, experiment)}",
            cure="Choose another by driver=NAME or in sweep.blocks: "
            + _known_drivers(experiment.options.agents[agent]),
        )
    return drivable


def _drivable(pair: tuple[str, str], experiment: Experiment) -> bool:
    agent, driver = pair
    return drives(experiment.options.agents[agent], experiment.options.drivers[driver])


def _mismatch(agent: str, experiment: Experiment) -> str:
    apis = experiment.options.agents[agent].apis
    return f"{agent} speaks {', '.join(apis)}" if apis else f"{agent} takes no driver"


def _drivers_of(agent: str, experiment: Experiment) -> list[str]:
    return [name for name in experiment.options.drivers if _drivable((agent, name), experiment)]


def _known_drivers(agent: AgentConfig) -> str:
    """Of the project's own drivers those that fit."""
    if not agent.apis:
        return "none"
    fitting = [
        name
        for name, keys in option_values("driver").items()
        if keys.get("api") in agent.apis or keys.get("kind") == "scripted"
    ]
    return ", ".join(fitting)


def _works_in(agent: str, mode: str, *, block: BlockConfig, experiment: Experiment) -> bool:
    modes = experiment.options.agents[agent].modes
    name = experiment.options.modes[mode].name
    if not modes or name in modes:
        return True
    if block.stacks is None and len(block.agents or ()) > 1:
        return False
    raise ConfigError(
        f"agent '{agent}' does not work in mode '{mode}'", cure=f"Choices: {', '.join(modes)}"
    )


def _task_groups(mode: str, tasks: Sequence[str]) -> list[tuple[str, ...]]:
    """Mode ``multi`` is one run on all tasks; every other mode is one run a task."""
    return [tuple(tasks)] if mode == MULTI else [(task,) for task in tasks]


def _spec(experiment: Experiment, cell: Cell) -> RunSpec:
    options = experiment.options
    return RunSpec(
        agent=options.agents[cell.agent],
        driver=options.drivers[cell.driver],
        mode=options.modes[cell.mode],
        tasks=tuple(options.tasks[task] for task in cell.tasks),
        model=options.models[cell.model],
        budget=experiment.budget,
        sandbox=experiment.sandbox,
        seed=cell.seed,
    )


class _Exclusion:
    """One pattern of ``sweep.exclude``; remembers whether it ever matched."""

    def __init__(self, text: str, conditions: Mapping[str, str]) -> None:
        self.text = text
        self.matched = False
        self._conditions = conditions

    @classmethod
    def parse(cls, text: str) -> "_Exclusion":
        conditions: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (word.strip() for word in part.partition("="))
            if key not in EXCLUDE_KEYS or not equals or not value or key in conditions:
                raise ConfigError(
                    f"sweep.exclude: '{text}' cannot be read",
                    cure=f"Write KEY=VALUE,... with keys {', '.join(EXCLUDE_KEYS)}",
                )
            conditions[key] = value
        return cls(text, conditions)

    def excludes(self, cell: Cell, task: str) -> bool:
        found = {
            "agent": cell.agent,
            "driver": cell.driver,
            "mode": cell.mode,
            "task": task,
            "model": cell.model,
            "seed": str(cell.seed),
        }
        matches = all(found[key] == value for key, value in self._conditions.items())
        self.matched = self.matched or matches
        return matches


def _without(cell: Cell, exclusions: Sequence[_Exclusion]) -> Cell | None:
    """The cell less its excluded tasks (a multi run keeps the others), or None if none is left."""
    hits = {
        task: [exclusion.excludes(cell, task) for exclusion in exclusions] for task in cell.tasks
    }
    kept = tuple(task for task in cell.tasks if not any(hits[task]))
    return cell._replace(tasks=kept) if kept else None
