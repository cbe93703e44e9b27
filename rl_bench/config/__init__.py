"""Typed, frozen, validated configuration: what Hydra's groups mean.

One class a group of `conf/`. Hydra and OmegaConf end at the entry point (`rl_bench.compose`);
everything below takes these classes. Defaults of a run's conditions live in `conf/`, not here.
"""

from rl_bench.config.agents import (
    AgentConfig,
    Api,
    DriverConfig,
    ModeConfig,
    PackageConfig,
    StreamRule,
)
from rl_bench.config.base import (
    MAX_ITEMS,
    MAX_SECONDS,
    MAX_SEED,
    NAME_PATTERN,
    Frozen,
    KeepModels,
    OptionName,
    Setting,
)
from rl_bench.config.conditions import BudgetConfig, SandboxConfig
from rl_bench.config.experiment import (
    BlockConfig,
    Experiment,
    Names,
    Options,
    RunSpec,
    Seeds,
    SweepConfig,
)
from rl_bench.config.grading import (
    DataSource,
    EndpointConfig,
    GraderConfig,
    JudgeConfig,
    ModelConfig,
    TaskConfig,
)
from rl_bench.config.surroundings import (
    AuditConfig,
    ClusterConfig,
    PathsConfig,
    SinkConfig,
    WandbConfig,
)

__all__ = [
    "MAX_ITEMS",
    "MAX_SECONDS",
    "MAX_SEED",
    "NAME_PATTERN",
    "AgentConfig",
    "Api",
    "AuditConfig",
    "BlockConfig",
    "BudgetConfig",
    "ClusterConfig",
    "DataSource",
    "DriverConfig",
    "EndpointConfig",
    "Experiment",
    "Frozen",
    "GraderConfig",
    "JudgeConfig",
    "KeepModels",
    "ModeConfig",
    "ModelConfig",
    "Names",
    "OptionName",
    "Options",
    "PackageConfig",
    "PathsConfig",
    "RunSpec",
    "SandboxConfig",
    "Seeds",
    "Setting",
    "SinkConfig",
    "StreamRule",
    "SweepConfig",
    "TaskConfig",
    "WandbConfig",
]
