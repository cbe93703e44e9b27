"""Seconds and memory of a sweep's command over runs that have finished before.

Real ledgers are written for the plan of a real command, then that command is run as a user runs it:

- to its end over runs that have all finished, twice: the first time it also writes the tables of
  which there are none, the second is what resume costs. The same command for a plan of ten runs
  tells how much of that is Python, imports and checks;
- with ``--pending`` no-op runs left to do beside 100 and beside ``--runs`` finished ones: the
  highest resident memory of the sweep's own process, which must not grow with what has finished.

    python -m benchmarks.resume [--runs 1000] [--submissions 4] [--items 134] [--pending 4]

The pending runs are graded for real: they start Ray and an engine. ``--pending 0`` leaves them out.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks.recorder import evaluation, say
from benchmarks.run_events import finished_run
from rl_bench.compose import compose
from rl_bench.config import Experiment, RunSpec
from rl_bench.events import (
    Entry,
    Event,
)
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand, run_id
from rl_bench.sweep_claim import check_sweep_config

START = datetime(2026, 1, 1, tzinfo=UTC)
FEW = 10
SMALL = 100
POLL_S = 0.05


class Spent(NamedTuple):
    """What a command took: seconds, and the highest resident memory of its own process, MiB."""

    seconds: float
    peak_mib: float


def words(results: Path, *, num_runs: int) -> list[str]:
    """The command line of a sweep of as many no-op runs; its experiment is written here."""
    name = f"of{num_runs}"
    file = results / "conf" / "experiment" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"# @package _global_\nsweep: {{name: {name}, seeds: {list(range(num_runs))}}}\n"
    )
    return [
        *("--config-dir", str(results / "conf"), f"+experiment={name}", f"paths.results={results}"),
        *("agent=noop", "task=gsm8k_mini", "sink=no_wandb", "sandbox=none"),
    ]


def composed(command: Sequence[str]) -> Experiment:
    """The experiment of such a command line."""
    return compose(command[2:], config_dirs=[Path(command[1])]).experiment


def told(spec: RunSpec, sweep: str, *, num_submissions: int, num_items: int) -> list[Event]:
    """The events of a finished run of ``spec``."""
    task = spec.tasks[0].name
    verdict = evaluation(10.0, num_items=num_items).model_copy(update={"task": task})
    return finished_run(
        run_id(spec), spec, sweep=sweep, verdict=verdict, num_submissions=num_submissions
    )


def write_finished(
    results: Path, *, num_runs: int, num_left: int, num_submissions: int, num_items: int
) -> int:
    """Writes a sweep of which ``num_left`` runs are still to be done; its ledgers' bytes."""
    experiment = composed(words(results, num_runs=num_runs))
    plan = expand(experiment)
    paths = SweepPaths(results / experiment.sweep.name)
    paths.root.mkdir(parents=True)
    check_sweep_config(paths, experiment, plan)
    size = 0
    for spec in plan[: num_runs - num_left]:
        events = told(
            spec, experiment.sweep.name, num_submissions=num_submissions, num_items=num_items
        )
        lines = [
            Entry(
                seq=seq,
                time_utc=(START + timedelta(seconds=seq)).isoformat(),
                elapsed_s=float(seq),
                event=event,
            ).model_dump_json()
            for seq, event in enumerate(events)
        ]
        ledger = paths.run(run_id(spec)).ledger
        ledger.parent.mkdir(parents=True)
        ledger.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        size += ledger.stat().st_size
    return size


def run_sweep(command: Sequence[str], *, expect: int = 0) -> Spent:
    """Runs the sweep's command to its exit, watching the resident memory of its process."""
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "rl_bench.sweep", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        peak = [0]
        watch = threading.Thread(target=_watch, args=(process, peak), daemon=True)
        watch.start()
        code = process.wait()
        seconds = time.monotonic() - began
        watch.join()
        if code != expect:
            output.seek(0)
            raise RuntimeError(f"the command ended with {code}: {output.read()[-2000:].decode()}")
    return Spent(seconds, peak[0] / 2**20)


def _watch(process: "subprocess.Popen[bytes]", peak: list[int]) -> None:
    """Keeps the kernel's own high-water mark of the process while it lives."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = status.read_text().splitlines()
        except OSError:
            return
        marks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
        peak[0] = max(peak[0], *marks, 0)
        time.sleep(POLL_S)


def main() -> None:
    """Runs both measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--submissions", type=int, default=4)
    parser.add_argument("--items", type=int, default=134)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pending", type=int, default=4)
    args = parser.parse_args()
    sizes = {"num_submissions": args.submissions, "num_items": args.items}
    with tempfile.TemporaryDirectory(prefix="rl_bench-") as folder:
        resumed: dict[int, Spent] = {}
        for num_runs in (FEW, args.runs):
            results = Path(folder, f"all{num_runs}")
            size = write_finished(results, num_runs=num_runs, num_left=0, **sizes)
            first = run_sweep(words(results, num_runs=num_runs))
            again = [run_sweep(words(results, num_runs=num_runs)) for _ in range(args.rounds)]
            resumed[num_runs] = sorted(again)[args.rounds // 2]
            say(f"{num_runs} finished runs, {size / 2**20:.0f} MiB, no tables", first.seconds, "s")
            say("  again, with tables: resume, median", resumed[num_runs].seconds, "s")
            say("  highest resident memory", resumed[num_runs].peak_mib, "MiB")
        added_s = resumed[args.runs].seconds - resumed[FEW].seconds
        say("what the finished runs add to Python's start and the checks", added_s, "s")
        for num_runs in (SMALL, args.runs) if args.pending else ():
            results = Path(folder, f"some{num_runs}")
            write_finished(results, num_runs=num_runs, num_left=args.pending, **sizes)
            done = run_sweep(words(results, num_runs=num_runs))
            say(f"{args.pending} runs beside {num_runs - args.pending} finished", done.seconds, "s")
            say("  highest resident memory of the sweep's process", done.peak_mib, "MiB")


if __name__ == "__main__":
    main()
