"""Where results go and what a sweep runs on: sinks, the audit, the cluster, folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from rl_bench.config.base import (
    Frozen,
    KeepModels,
    OptionName,
    Setting,
)
from rl_bench.config.grading import JudgeConfig


class WandbConfig(Frozen):
    """The W&B view.

    Attributes:
        mode: ``offline`` writes locally and is synced later with ``wandb sync``.
        project: Where runs appear.
        entity: The user or team whose project it is; empty: the login's own.
    """

    mode: Literal["online", "offline", "disabled"] = "offline"
    project: str = "rl_bench"
    entity: str = ""


class SinkConfig(Frozen):
    """Where results go beside the ledgers.

    Attributes:
        wandb: The W&B view.
        flush_interval_s: Tables and W&B of a run are written at most this often.
        keep_models: Snapshots of submissions that stay when a run has ended: all, those that were
            best on a task and the last, or none.
        plugins: Sinks of plug-ins, each with its settings, by name.
    """

    name: str
    wandb: WandbConfig = WandbConfig()
    plugins: Mapping[OptionName, Mapping[str, Setting]] = {}
    flush_interval_s: PositiveFloat = 2.0
    keep_models: KeepModels = "best_and_last"


class AuditConfig(Frozen):
    """What is looked for after a run beside the rules' own evidence; changes no run.

    Attributes:
        references: Known checkpoints of the base's shape, by name, e.g. its instruct sibling.
        judge: A language model that reads the agent's trace; ``null``: none does.
    """

    name: str
    references: Mapping[str, Path] = {}
    judge: JudgeConfig | None = None


class ClusterConfig(Frozen):
    """Ray: a local one is started, or ``address`` is joined.

    Attributes:
        address: ``null`` starts Ray on this machine.
        num_cpus: Logical CPUs of a local Ray; ``null``: the machine's.
        num_gpus: Logical GPUs of a local Ray; ``null``: the machine's.
        cpus_per_run: CPUs a run's actor and its agent hold.
        gpus_per_run: GPUs a run's agent trains on.
        max_parallel_runs: Upper bound on runs in flight; ``null``: as resources allow.
        threads_per_run: OMP threads of the agent's process.
        num_run_retries: Attempts after the first at a run that infrastructure broke.
        place_by_kind: Graders, rollout workers, runs and the services beside them ask for the
            resources ``grader``, ``rollout``, ``trainer`` and ``head`` that the node types of
            `cluster.yaml` have, so that each gets its own kind of node.
    """

    name: str
    address: str | None = None
    num_cpus: PositiveInt | None = None
    num_gpus: int | None = Field(default=None, ge=0)
    cpus_per_run: PositiveFloat = 1.0
    gpus_per_run: float = Field(default=0.0, ge=0)
    max_parallel_runs: PositiveInt | None = None
    threads_per_run: PositiveInt = 1
    num_run_retries: int = Field(default=1, ge=0)
    place_by_kind: bool = False


class PathsConfig(Frozen):
    """Folders, absolute once composed.

    Attributes:
        results: Gets one folder a sweep.
        cache: Holds built models and generated data.
        agents: Holds the agents' CLIs that `python -m rl_bench.agents install` put there.
        data: The local copies of public data sets that tasks with ``source: path`` read.
        min_free_gib: Free space that ``results`` and ``cache`` must have at the start, GiB.
    """

    name: str
    results: Path
    cache: Path
    data: Path
    agents: Path
    min_free_gib: float = Field(default=2.0, ge=0)

    @field_validator("results", "cache", "data", "agents", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        if value == "" or "\0" in str(value):
            raise ValueError("it names no folder")
        return value
