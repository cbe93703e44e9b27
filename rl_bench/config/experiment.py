"""What one command runs: the blocks of a sweep, its runs, and everything that they name."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    Field,
    model_validator,
)

from rl_bench.config.agents import AgentConfig, DriverConfig, ModeConfig
from rl_bench.config.base import (
    MAX_SEED,
    Frozen,
    OptionName,
)
from rl_bench.config.conditions import BudgetConfig, SandboxConfig
from rl_bench.config.grading import GraderConfig, ModelConfig, TaskConfig
from rl_bench.config.surroundings import AuditConfig, ClusterConfig, PathsConfig, SinkConfig

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_SEED)], ...], Field(min_length=1)]


class BlockConfig(Frozen):
    """One cross product of the sweep: every combination of its lists is a run.

    ``null`` takes the option chosen by the group; ``["*"]`` stands for every option of the group.

    Attributes:
        stacks: Pairs as ``agent/driver``, in place of ``agents`` x ``drivers``.
        agents: Options of the group ``agent``.
        drivers: Options of the group ``driver``. Pairs without an API in common are left out here,
            and refused in ``stacks``.
        modes: Options of the group ``mode``; ``multi`` folds the block's tasks into one run.
        tasks: Options of the group ``task``.
        models: Options of the group ``model``.
        seeds: ``null``: the sweep's.
    """

    stacks: Names | None = None
    agents: Names | None = None
    drivers: Names | None = None
    modes: Names | None = None
    tasks: Names | None = None
    models: Names | None = None
    seeds: Seeds | None = None

    @model_validator(mode="after")
    def _one_way_to_name_pairs(self) -> "BlockConfig":
        if self.stacks is not None and (self.agents is not None or self.drivers is not None):
            raise ValueError("a block has either stacks or agents and drivers, not both")
        return self


class SweepConfig(Frozen):
    """The sweep: its blocks, whose union is the plan.

    Attributes:
        name: It fixes the config of all that runs under it, and names the results' folder.
        seeds: Of every block that has none of its own.
        blocks: The cross products.
        exclude: Runs that are left out: ``agent=codex,task=humaneval`` drops what matches every
            part. Keys are agent, driver, mode, task, model and seed, values option names.
    """

    name: OptionName
    seeds: Seeds
    blocks: tuple[BlockConfig, ...] = Field(min_length=1)
    exclude: tuple[str, ...] = ()


class RunSpec(Frozen):
    """One run, fully determined: the unit of the plan, of resume and of every table.

    The id is a digest of everything here, so equal conditions are the same run.
    """

    agent: AgentConfig
    driver: DriverConfig
    mode: ModeConfig
    tasks: tuple[TaskConfig, ...] = Field(min_length=1)
    model: ModelConfig
    budget: BudgetConfig
    sandbox: SandboxConfig
    seed: int


class Options(Frozen):
    """The group options that a sweep names, each resolved, by their names in `conf/`."""

    agents: Mapping[str, AgentConfig]
    drivers: Mapping[str, DriverConfig]
    modes: Mapping[str, ModeConfig]
    tasks: Mapping[str, TaskConfig]
    models: Mapping[str, ModelConfig]

    @model_validator(mode="after")
    def _names_tell_apart(self) -> "Options":
        for group in (self.agents, self.drivers, self.tasks, self.models):
            names = [option.name for option in group.values()]
            if len(set(names)) < len(names):
                raise ValueError(f"two options have one name: {', '.join(sorted(names))}")
        return self


class Experiment(Frozen):
    """Everything that one command runs: what Hydra composed, typed and validated.

    The blocks of ``sweep`` are complete here: no list is ``null`` or ``*`` any more, and
    ``sweep.name`` is set. ``options`` holds each option that a block names.
    """

    sweep: SweepConfig
    options: Options
    budget: BudgetConfig
    sandbox: SandboxConfig
    grader: GraderConfig
    sink: SinkConfig
    audit: AuditConfig
    cluster: ClusterConfig
    paths: PathsConfig
