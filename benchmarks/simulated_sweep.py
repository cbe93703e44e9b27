"""A sweep of 10,000 runs in simulated time: plan, grading queue, ledgers and recorder are real.

The plan is expanded from a composed experiment, every submission goes through the real pool of
graders, every event is appended to a real ledger and told to a real recorder, which writes the real
Parquet tables. Simulated are what takes time elsewhere, on a clock that jumps: agents, engines and
evaluations. Ray, workspaces and processes are left out. ``--parallel`` runs go on at once.

    python -m benchmarks.simulated_sweep [--runs 10000] [--parallel 64] [--graders 8] [--folder DIR]

Every ledger entry is synced: where the disk is slow, ``--folder /dev/shm`` tells what the code
alone costs. Resident memory is of this one process, which holds what a driver, a pool and a
recorder hold together; it is shown at a tenth, at a half and at the end.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from actors.grader_pool import GraderPool, Verdict
from actors.shared_requests import NOTHING, Offer
from benchmarks.recorder import say
from benchmarks.simulated_time import run_simulated, simulated_s
from rl_bench.compose import compose
from rl_bench.config import Experiment, GraderConfig, RunSpec
from rl_bench.events import (
    AgentExited,
    AgentStarted,
    BaselineGraded,
    Evaluation,
    Event,
    Item,
    RunEnd,
    RunFinished,
    RunStarted,
    RunState,
    StateChanged,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.grading import GradeJob
from rl_bench.ledger import Ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand, run_id
from rl_bench.recorder import Recorder

TASKS = ("gsm8k_mini", "alfworld_mini", "webshop_mini", "alpacaeval_mini", "deepsearchqa_mini")
MODES = ("free", "sft_only")
COLD_S, WARM_S, ITEM_S, GAP_S = 60.0, 1.0, 0.5, 1800.0
FLUSH_EVERY = 200
"""Runs that end between two writings of tables: what waits to be written must not pile up."""
MARKS = (0.1, 0.5, 1.0)


class SimulatedGrader:
    """A `actors.grader_pool.GraderLink` that takes the time of a grader and scores by chance."""

    def __init__(self, name: str, *, num_items: int) -> None:
        self.name = name
        self._num_items = num_items
        self._rng = random.Random(name)
        self._model = ""

    async def grade(self, job: GradeJob) -> Verdict:
        is_cold = self._model != job.model.name
        self._model = job.model.name
        load_s = COLD_S if is_cold else WARM_S
        duration_s = ITEM_S * self._num_items * self._rng.uniform(0.5, 2.0)
        await asyncio.sleep(load_s + duration_s)
        return tuple(
            self._evaluation(task.name, load_s, "cold" if is_cold else "warm", duration_s)
            for task in job.tasks
        )

    async def recover(self) -> None:
        """Never fails, so there is nothing to wait for."""

    async def offer(self) -> Offer:
        return NOTHING

    async def help(self, job: GradeJob, owner: str) -> None:
        """Is never asked, since nothing is offered."""

    async def recall(self) -> None:
        """Never helps."""

    def _evaluation(
        self, task: str, load_s: float, load_kind: str, duration_s: float
    ) -> Evaluation:
        scores = [float(self._rng.random() < 0.4) for _ in range(self._num_items)]
        items = tuple(
            Item(
                item_id=f"{task}/{number}",
                status="ok",
                score=score,
                num_steps=1,
                num_tokens=200,
                duration_s=ITEM_S,
                detail={"answer": str(number), "expected": str(number)},
            )
            for number, score in enumerate(scores)
        )
        return Evaluation(
            task=task,
            score=100 * sum(scores) / len(scores),
            num_items=len(items),
            num_errors=0,
            evaluator_version="1",
            items=items,
            load_s=load_s,
            load_kind=load_kind,
            duration_s=duration_s,
        )


@dataclass(slots=True)
class Sweep:
    """What the runs share, and what is counted."""

    experiment: Experiment
    paths: SweepPaths
    pool: GraderPool
    recorder: Recorder
    num_submissions: int
    num_finished: int = 0
    num_events: int = 0
    num_graded: int = 0
    resident_mib: dict[float, float] = field(default_factory=dict)

    async def drive(self, plan: Sequence[RunSpec], *, parallel: int) -> None:
        """Keeps ``parallel`` runs going until all have ended."""
        waiting = iter(plan)

        async def slot() -> None:
            for spec in waiting:
                await self._run(spec)
                self._count(len(plan))

        await asyncio.gather(*(slot() for _ in range(parallel)))

    async def _run(self, spec: RunSpec) -> None:
        name, tasks = run_id(spec), tuple(task.name for task in spec.tasks)
        rng = random.Random(name)
        with Ledger(self.paths.run(name).ledger, clock=simulated_s) as ledger:

            def tell(*events: Event) -> None:
                for event in events:
                    self.recorder.record(name, [ledger.append(event)])
                self.num_events += len(events)

            tell(
                RunStarted(run_id=name, sweep=self.experiment.sweep.name, attempt=0, spec=spec),
                StateChanged(state=RunState.BASELINE),
            )
            base = await self.pool.grade(self._job(spec, None, "base"))
            tell(
                BaselineGraded(content_hash="base", evaluations=base),
                StateChanged(state=RunState.RUNNING),
                AgentStarted(pid=1, argv=("true",)),
            )
            began = simulated_s()
            for number in range(1, self.num_submissions + 1):
                await asyncio.sleep(rng.expovariate(1 / GAP_S))
                used_s = simulated_s() - began
                tell(
                    SubmissionAccepted(
                        submission_id=number,
                        model_path=f"output/{number}",
                        content_hash=f"{name}-{number}",
                        tasks=tasks,
                        budget_used_s=used_s,
                    )
                )
                verdict = await self.pool.grade(self._job(spec, number, f"{name}-{number}"))
                tell(SubmissionGraded(submission_id=number, evaluations=verdict))
                self.num_graded += 1
            tell(
                AgentExited(exit_code=0, killed=False, budget_used_s=simulated_s() - began),
                StateChanged(state=RunState.FINISHED),
                RunFinished(end=RunEnd.COMPLETED),
            )
        await self.pool.withdraw(name)

    def _job(self, spec: RunSpec, number: int | None, content: str) -> GradeJob:
        return GradeJob(
            run_id=run_id(spec),
            submission_id=number,
            snapshot=self.paths.snapshots / content,
            content_hash=content,
            tasks=spec.tasks,
            model=spec.model,
        )

    def _count(self, num_runs: int) -> None:
        self.num_finished += 1
        if self.num_finished % FLUSH_EVERY == 0:
            self.recorder.flush()
        for mark in MARKS:
            if self.num_finished == round(mark * num_runs):
                self.resident_mib[mark] = psutil.Process().memory_info().rss / 2**20


def planned(num_runs: int, results: Path) -> Experiment:
    """An experiment of as many runs: tasks by modes, and seeds to fill it up."""
    blocks = f"{{modes: [{', '.join(MODES)}], tasks: [{', '.join(TASKS)}]}}"
    small = compose(
        [
            *("agent=noop", "sandbox=none", "sink=no_wandb", "sweep.name=simulated"),
            # Runs pass in seconds that take hours elsewhere: tables are written at `FLUSH_EVERY`.
            "sink.flush_interval_s=3600",
            *(f"sweep.blocks=[{blocks}]", "sweep.seeds=[0]", f"paths.results={results}"),
        ]
    ).experiment
    seeds = tuple(range(num_runs // (len(MODES) * len(TASKS))))
    filled = tuple(b.model_copy(update={"seeds": seeds}) for b in small.sweep.blocks)
    return small.model_copy(
        update={"sweep": small.sweep.model_copy(update={"blocks": filled, "seeds": seeds})}
    )


async def simulate(
    experiment: Experiment, plan: Sequence[RunSpec], args: argparse.Namespace
) -> Sweep:
    """Drives the plan to its end; the recorder is left open."""
    paths = SweepPaths(experiment.paths.results / experiment.sweep.name)
    config = GraderConfig(name="simulated", num_graders=args.graders)
    pool = GraderPool(
        [f"grader-{number}" for number in range(args.graders)],
        connect=lambda name: SimulatedGrader(name, num_items=args.items),
        config=config,
        clock=simulated_s,
    )
    recorder = Recorder(paths, config=experiment.sink)
    sweep = Sweep(experiment, paths, pool, recorder, args.submissions)
    began = time.monotonic()
    await sweep.drive(plan, parallel=args.parallel)
    spent_s = time.monotonic() - began
    say("simulated time", simulated_s() / 86400, "days")
    say("driven in", spent_s, "s")
    say("  CPU time a run, all of this process", 1e3 * time.process_time() / len(plan), "ms")
    say("  runs", len(plan) / spent_s, "1/s")
    say(f"  {sweep.num_events} events, each synced", sweep.num_events / spent_s, "1/s")
    for mark, mib in sweep.resident_mib.items():
        say(f"  resident memory after {mark:.0%} of the runs", mib, "MiB")
    return sweep


def check(sweep: Sweep, num_runs: int, args: argparse.Namespace) -> None:
    """Nothing was lost and nothing counted twice, by the tables.

    Raises:
        RuntimeError: It was.
    """
    import polars as pl

    tables = sweep.paths.tables
    found = {
        name: pl.scan_parquet(tables / name / "*.parquet").select(pl.len()).collect().item()
        for name in ("runs", "submissions", "items", "events")
    }
    num_verdicts = num_runs * args.submissions
    wanted = {
        "runs": num_runs,
        "submissions": num_verdicts,
        "items": (num_verdicts + num_runs) * args.items,
        "events": sweep.num_events,
    }
    if found != wanted or sweep.num_graded != num_verdicts:
        raise RuntimeError(f"the tables hold {found}, not {wanted}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--graders", type=int, default=8)
    parser.add_argument("--submissions", type=int, default=3)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where the sweep is written for a while")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rl_bench-", dir=args.folder) as folder:
        began = time.monotonic()
        experiment = planned(args.runs, Path(folder))
        plan = expand(experiment)
        say(f"plan of {len(plan)} runs", time.monotonic() - began, "s")
        sweep = run_simulated(simulate(experiment, plan, args))
        began = time.monotonic()
        sweep.recorder.close()
        say("tables closed after the last event in", time.monotonic() - began, "s")
        check(sweep, len(plan), args)
        ledgers = [path.stat().st_size for path in sweep.paths.runs.glob("*/ledger.jsonl")]
        tables = [path.stat().st_size for path in sweep.paths.tables.glob("*/*.parquet")]
        say("ledgers", sum(ledgers) / 2**20, "MiB")
        say(f"Parquet, {len(tables)} files", sum(tables) / 2**20, "MiB")
        say("resident memory at the end", psutil.Process().memory_info().rss / 2**20, "MiB")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
