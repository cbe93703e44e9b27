"""Every path that a sweep writes, in one place.

<results>/<sweep>/
sweep.json                   the config and plan that this name is fixed to
driver.lock                  held by the running sweep
views.json                   where finished runs stand (see rl_bench.view_store)
runs/<run_id>/
spec.json                  the RunSpec
ledger.jsonl               the truth: append-only, fsynced
workspace/                 what the agent sees (see rl_bench.workspace)
logs/agent.stdout, agent.stderr
code.git/                  the shadow history of the agent's code/, a bare git repository
recording.json             what a replay of this run is told; made when one starts
snapshots/<content_hash>/    accepted submissions
snapshot_samples/<hash>      what the audit looks at of those that were removed
snapshot_refs/               which run needs which of them (see rl_bench.lineage.references)
tables/<table>/<run_id>.parquet
audits/<rules_version>.jsonl  verdicts of `python -m rl_bench.audit`, a line a run
wandb/                       W&B's own folder
sinks/<name>/                what a plug-in's sink writes
sinks/<name>.json            which runs it has (see rl_bench.sinks.outside)
logs/                        grader and Ray logs

<results>/evaluations/<name>/
evaluations.jsonl            one line an evaluation that has ended, less its items
items/<task>.parquet         its items, in the schema of a sweep's table items
logs/                        grader logs
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The paths of one run."""

    root: Path

    @property
    def spec(self) -> Path:
        return self.root / "spec.json"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.jsonl"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def code_history(self) -> Path:
        return self.root / "code.git"


@dataclass(frozen=True, slots=True)
class SweepPaths:
    """The paths of one sweep."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "sweep.json"

    @property
    def lock(self) -> Path:
        return self.root / "driver.lock"

    @property
    def views(self) -> Path:
        return self.root / "views.json"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def wandb(self) -> Path:
        return self.root / "wandb"

    def sink(self, name: str) -> Path:
        """The folder of a plug-in's sink."""
        return self.root / "sinks" / name

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run(self, run_id: str) -> RunPaths:
        """The paths of the run with that id."""
        return RunPaths(self.runs / run_id)


@dataclass(frozen=True, slots=True)
class EvaluationPaths:
    """The paths of an evaluation of one checkpoint that no agent takes part in."""

    root: Path

    @property
    def evaluations(self) -> Path:
        return self.root / "evaluations.jsonl"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def items(self, task: str) -> Path:
        """The table of a task's items."""
        return self.root / "items" / f"{task}.parquet"
