"""Throughput of ledger and recorder, and a recorder's start over many finished runs.

``python -m benchmarks.recorder [--runs 1000] [--submissions 4] [--items 134]`` writes real ledgers
into a temporary folder and prints one line a measure. Item rows count from the first event to
closed Parquet tables, every ledger entry synced; each run has a thread of its own, as it has a
process in a sweep. Beside them stands the disk's own speed at the same lines, written and synced
from as many threads. W&B is off unless ``--wandb``.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.run_events import finished_run
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
    Evaluation,
    Event,
    Item,
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
    return finished_run(
        run_id, spec(seed), sweep="bench", verdict=verdict, num_submissions=num_submissions
    )


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


def item_rows(root: Path, *, num_runs: int, num_submissions: int, num_items: int) -> None:
    """Item rows a second of runs that go on at once: synced ledgers, recorder, Parquet."""
    paths = SweepPaths(root)
    config = SinkConfig(name="b", wandb=WandbConfig(mode="disabled"))
    names = [f"run{seed:03}" for seed in range(num_runs)]
    told = [
        events(name, seed, num_submissions=num_submissions, num_items=num_items)
        for seed, name in enumerate(names)
    ]
    recorder = Recorder(paths, config=config)

    def tell(name: str, events: Sequence[Event]) -> float:
        """Carries one run out; the seconds that its appends took."""
        append_s = 0.0
        with Ledger(paths.run(name).ledger) as ledger:
            for event in events:
                started = time.perf_counter()
                entry = ledger.append(event)
                append_s += time.perf_counter() - started
                recorder.record(name, [entry])
        return append_s

    began, began_cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(num_runs) as threads:
        append_s = statistics.fmean(threads.map(tell, names, told))
    last = time.perf_counter()
    recorder.close()
    ended, ended_cpu = time.perf_counter(), time.process_time()
    num_rows = sum(pq.read_metadata(path).num_rows for path in paths.tables.glob("items/*.parquet"))
    assert num_rows == num_runs * (num_submissions + 1) * num_items
    size = sum(path.stat().st_size for path in paths.tables.glob("*/*.parquet"))
    say(
        f"item rows of {num_runs} runs at once, to closed tables", num_rows / (ended - began), "1/s"
    )
    say("  CPU time a row", 1e6 * (ended_cpu - began_cpu) / num_rows, "us")
    say(f"  {num_rows} rows: appends of one run, synced", append_s, "s")
    say("  until every run has ended", last - began, "s")
    say("  close, after the last event", ended - last, "s")
    say("  Parquet tables", size / 2**20, "MiB")
    floor_s = bare_writes([paths.run(name).ledger for name in names], root / "copy")
    say("  the same lines written and synced, nothing else", num_rows / floor_s, "rows/s")


def bare_writes(ledgers: Sequence[Path], folder: Path) -> float:
    """Seconds to write the ledgers' lines again, each synced: what the disk alone takes."""
    folder.mkdir()
    lines = [path.read_bytes().splitlines(keepends=True) for path in ledgers]

    def write(number: int) -> None:
        with (folder / f"{number}.jsonl").open("wb", buffering=0) as file:
            for line in lines[number]:
                file.write(line)
                os.fsync(file.fileno())

    began = time.perf_counter()
    with ThreadPoolExecutor(len(lines)) as threads:
        list(threads.map(write, range(len(lines))))
    return time.perf_counter() - began


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
    """Runs all measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--submissions", type=int, default=4)
    parser.add_argument("--items", type=int, default=134)
    parser.add_argument("--wandb", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        item_rows(Path(folder) / "rows", num_runs=8, num_submissions=200, num_items=args.items)
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
