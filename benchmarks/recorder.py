"""Throughput of ledger and recorder, and resume time for a sweep of many finished runs.

``python -m benchmarks.recorder [--runs 1000] [--submissions 4] [--items 134]`` writes real ledgers
into a temporary folder and prints one line a measure. W&B is off unless ``--wandb``.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rl_bench.config import (
    AgentConfig,
    BudgetConfig,
    DataSource,
    DriverConfig,
    ModeConfig,
    ModelConfig,
    RunSpec,
    SandboxConfig,
    SinkConfig,
    TaskConfig,
    WandbConfig,
)
from rl_bench.events import (
    AgentStarted,
    BaselineGraded,
    Evaluation,
    Event,
    Item,
    RunEnd,
    RunFinished,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import Ledger
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder

DETAIL: dict[str, str | int | float | bool | None] = {
    "won": True,
    "task_type": "pick_and_place",
    "actions": "go to desk 1\n" * 30,
}


def spec(seed: int) -> RunSpec:
    """A run's conditions; the seed tells runs apart."""
    task = TaskConfig(
        name="alfworld", kind="alfworld", level="L3", source=DataSource.BUILTIN, max_tokens=100
    )
    return RunSpec(
        agent=AgentConfig(name="reference", argv=("true",)),
        driver=DriverConfig(name="none"),
        mode=ModeConfig(name="sft_only", rules=""),
        tasks=(task,),
        model=ModelConfig(name="tiny", kind="tiny"),
        budget=BudgetConfig(name="12h", wall_clock_s=43200),
        sandbox=SandboxConfig(name="none"),
        seed=seed,
    )


def evaluation(score: float, *, num_items: int) -> Evaluation:
    """A verdict with as many items."""
    items = tuple(
        Item(
            item_id=f"game{i}",
            status="ok",
            score=1.0,
            num_steps=30,
            num_tokens=300,
            duration_s=1.0,
            detail=DETAIL,
        )
        for i in range(num_items)
    )
    return Evaluation(
        task="alfworld",
        score=score,
        num_items=num_items,
        num_errors=0,
        evaluator_version="1",
        items=items,
    )


def events(run_id: str, seed: int, *, num_submissions: int, num_items: int) -> list[Event]:
    """All events of a finished run."""
    verdict = evaluation(10.0, num_items=num_items)
    found: list[Event] = [
        RunStarted(run_id=run_id, sweep="bench", attempt=0, spec=spec(seed)),
        BaselineGraded(content_hash="base", evaluations=(verdict,)),
        AgentStarted(pid=1, argv=("true",)),
    ]
    for i in range(1, num_submissions + 1):
        found.append(
            SubmissionAccepted(
                submission_id=i,
                model_path="output/m",
                content_hash=f"hash{i}",
                tasks=("alfworld",),
                budget_used_s=60.0 * i,
            )
        )
        found.append(SubmissionGraded(submission_id=i, evaluations=(verdict,)))
    return [*found, RunFinished(end=RunEnd.COMPLETED)]


def say(what: str, value: float, unit: str) -> None:
    """One line of the report."""
    sys.stdout.write(f"{what:<58} {value:10.3f} {unit}\n")


def one_long_run(root: Path, *, num_submissions: int, num_items: int) -> None:
    """Append and record cost of a run with many submissions, early and late."""
    paths = SweepPaths(root)
    config = SinkConfig(name="b", wandb=WandbConfig(mode="disabled"))
    recorder = Recorder(paths, config=config)
    appends, records = [], []
    with Ledger(paths.run("long").ledger) as ledger:
        for event in events("long", 0, num_submissions=num_submissions, num_items=num_items):
            started = time.perf_counter()
            entry = ledger.append(event)
            appended = time.perf_counter()
            recorder.record("long", [entry.model_dump_json()])
            if isinstance(event, SubmissionGraded):
                appends.append(1000 * (appended - started))
                records.append(1000 * (time.perf_counter() - appended))
    quarter = max(len(records) // 4, 1)
    say(f"append of a verdict of {num_items} items, median", statistics.median(appends), "ms")
    say("record of it, first quarter, median", statistics.median(records[:quarter]), "ms")
    say("record of it, last quarter, median", statistics.median(records[-quarter:]), "ms")
    started = time.perf_counter()
    recorder.close()
    say(f"close after {num_submissions} submissions", time.perf_counter() - started, "s")


def many_runs(
    root: Path, *, num_runs: int, num_submissions: int, num_items: int, wandb: bool
) -> None:
    """Time of a recorder's first look at finished runs, and of later ones."""
    paths = SweepPaths(root)
    config = SinkConfig(name="b", wandb=WandbConfig(mode="offline" if wandb else "disabled"))
    for seed in range(num_runs):
        run_id = f"run{seed:05}"
        with Ledger(paths.run(run_id).ledger) as ledger:
            for event in events(run_id, seed, num_submissions=num_submissions, num_items=num_items):
                ledger.append(event)
    size = sum(path.stat().st_size for path in paths.runs.glob("*/ledger.jsonl"))
    say(f"ledgers of {num_runs} finished runs", size / 2**20, "MiB")
    for what in ("first recorder (writes every table)", "restart (everything up to date)"):
        started = time.perf_counter()
        recorder = Recorder(paths, config=config)
        opened = time.perf_counter()
        say(f"{what}: open", opened - started, "s")
        views = recorder.views()
        say("  views() of all", 1000 * (time.perf_counter() - opened), "ms")
        assert len(views) == num_runs
        started = time.perf_counter()
        recorder.close()
        say("  close", time.perf_counter() - started, "s")


def main() -> None:
    """Runs both measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--submissions", type=int, default=4)
    parser.add_argument("--items", type=int, default=134)
    parser.add_argument("--wandb", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one_long_run(Path(folder) / "long", num_submissions=200, num_items=args.items)
        many_runs(
            Path(folder) / "many",
            num_runs=args.runs,
            num_submissions=args.submissions,
            num_items=args.items,
            wandb=args.wandb,
        )


if __name__ == "__main__":
    main()
