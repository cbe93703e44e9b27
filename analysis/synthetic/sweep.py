"""Writes the synthetic sweep: ledgers, code histories, tables, and what is true of them."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from analysis.synthetic.conditions import (
    MODEL,
    TASKS,
    cells,
    mean_gain,
    plan,
    skill,
    stack_of,
)
from analysis.synthetic.history import write_history
from analysis.synthetic.outline import Outline, outline
from analysis.synthetic.story import START, Story, digest
from rl_bench.config import RunSpec
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.run_records import records_of
from rl_bench.run_row import RunRow
from rl_bench.sinks.parquet import ParquetSink
from rl_bench.sweep_claim import SweepRecord

CODE_EVERY = 10
"""One run in so many has a code history, the first ones all."""
CODE_FIRST = 30
_WRITERS = 8
"""Threads: most of the time goes into waiting for the disk."""


class TaskTruth(TypedDict):
    """Of one task of a run: the best valid score, points, and its submission; null: none.

    The score is the planned one; the graded one has whole items: it is off by less than one.
    """

    best_score: float | None
    best_submission_id: int | None


class RunTruth(TypedDict):
    """What was planted in one run.

    Attributes:
        counts: Its scores may enter a mean.
        route: Methods in order of their first try.
        best_route: Methods that lead to the best submission; empty without one.
        outcomes: Of its requests, in order.
    """

    fate: str
    counts: bool
    has_code: bool
    route: list[str]
    best_route: list[str]
    outcomes: list[str]
    num_revisions: int
    tasks: dict[str, TaskTruth]


class CellTruth(TypedDict):
    """The planted mean gain of a cell and task, points."""

    agent: str
    driver: str
    mode: str
    task: str
    gain: float


class Truth(TypedDict):
    """``truth.json``."""

    version: int
    seed: int
    stacks: list[str]
    skill: dict[str, float]
    cells: list[CellTruth]
    noise_sd: dict[str, float]
    runs: dict[str, RunTruth]


class _Written(NamedTuple):
    truth: RunTruth
    rows: list[RunRow]


def write_sweep(out: Path, *, runs: int, seed: int, items: int) -> Truth:
    """Writes a sweep's folder and ``truth.json`` in it.

    Args:
        out: Made when missing; its name is the sweep's.
        runs: How many.
        seed: Of everything.
        items: The most that an evaluation has.

    Raises:
        FileExistsError: ``out`` holds something already, or is no folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} is no empty folder: name another")
    paths = SweepPaths(out)
    sink = ParquetSink(paths.tables)
    sink.open()
    specs = plan(runs, items=items)
    with ThreadPoolExecutor(_WRITERS) as pool:
        written = list(
            pool.map(
                lambda number: _write_run(
                    paths, specs[number], number=number, seed=seed, sink=sink
                ),
                range(runs),
            )
        )
    rows = [row for each in written for row in each.rows]
    sink.close(sorted(rows, key=lambda row: row.run_id))
    _write_record(paths, specs, seed)
    names = map(run_id, specs)
    truths = {name: each.truth for name, each in zip(names, written, strict=True)}
    truth = _truth(specs, runs, seed, truths)
    (out / "truth.json").write_text(json.dumps(truth, indent=1, sort_keys=True), encoding="utf-8")
    return truth


def _write_run(
    paths: SweepPaths, spec: RunSpec, *, number: int, seed: int, sink: ParquetSink
) -> _Written:
    name = run_id(spec)
    rng = np.random.default_rng([seed, number])
    run = paths.run(name)
    run.root.mkdir(parents=True)
    run.spec.write_text(spec.model_dump_json(indent=1), encoding="utf-8")
    made = outline(spec, number, rng)
    has_code = (number < CODE_FIRST or number % CODE_EVERY == 0) and made.fate != "infra_error"
    started = START + timedelta(minutes=7 * number)
    revisions = write_history(run.code_history, made, started) if has_code else _ids_of(name, made)
    story = Story(
        spec=spec,
        shows_code=has_code,
        run_id=name,
        sweep=paths.root.name,
        outline=made,
        revisions=revisions,
        rng=rng,
        started=started,
    )
    entries = story.entries()
    lines = [entry.model_dump_json() for entry in entries]
    run.ledger.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    snapshot = records_of(name, read_ledger(run.ledger)).snapshot()
    sink.write_run(snapshot)
    of_run = snapshot.run_rows()
    truth = _run_truth(made, of_run, has_code=has_code, num_revisions=len(revisions))
    return _Written(truth, of_run)


def _ids_of(name: str, made: Outline) -> Mapping[int, str]:
    """Ids of revisions that nobody kept."""
    if made.fate == "infra_error":
        return {}
    return {number: digest(name, number)[:40] for number in range(len(made.trainings) + 1)}


def _run_truth(
    made: Outline, rows: list[RunRow], *, has_code: bool, num_revisions: int
) -> RunTruth:
    worked = made.fate != "infra_error"
    lineage = made.lineage(made.best) if made.best is not None and worked else []
    accepted = [r for r in made.requests if r.outcome != "rejected"] if worked else []
    tasks: dict[str, TaskTruth] = {}
    for row in rows:
        valid = [
            (request.scores[row.task], -number)
            for number, request in enumerate(accepted, start=1)
            if request.scores and not request.cheats
        ]
        best = max(valid, default=None)
        tasks[row.task] = TaskTruth(
            best_score=None if best is None else best[0],
            best_submission_id=None if best is None else -best[1],
        )
    return RunTruth(
        fate=made.fate,
        counts=made.fate not in {"infra_error", "driver_error", "invalid", "running"},
        has_code=has_code,
        route=list(dict.fromkeys(t.method for t in made.trainings)) if worked else [],
        best_route=list(dict.fromkeys(t.method for t in lineage)),
        outcomes=[request.outcome for request in made.requests] if worked else [],
        num_revisions=num_revisions,
        tasks=tasks,
    )


def _truth(specs: list[RunSpec], num_runs: int, seed: int, runs: dict[str, RunTruth]) -> Truth:
    present = {(stack_of(s), tuple(t.name for t in s.tasks), s.mode.name) for s in specs}
    stacks = sorted({stack_of(spec) for spec in specs}, key=lambda stack: -skill(stack))
    return Truth(
        version=1,
        seed=seed,
        stacks=[f"{stack.agent}/{stack.driver}" for stack in stacks],
        skill={f"{stack.agent}/{stack.driver}": round(skill(stack), 4) for stack in stacks},
        cells=[
            CellTruth(
                agent=cell.stack.agent,
                driver=cell.stack.driver,
                mode=cell.mode,
                task=task,
                gain=round(mean_gain(cell.stack, task, cell.mode), 4),
            )
            for cell in cells(num_runs)
            if (cell.stack, cell.tasks, cell.mode) in present
            for task in cell.tasks
        ],
        noise_sd={task: planted.noise_sd for task, planted in TASKS.items()},
        runs=runs,
    )


def _write_record(paths: SweepPaths, specs: list[RunSpec], seed: int) -> None:
    record = SweepRecord(
        created_utc=START.isoformat(),
        conditions={"synthetic": True, "seed": seed, "model": MODEL},
        run_ids=tuple(run_id(spec) for spec in specs),
    )
    paths.config.write_text(record.model_dump_json(indent=1), encoding="utf-8")
