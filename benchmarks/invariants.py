"""What must hold of a sweep's results, whatever was killed on the way to them.

Every check reads what lies on the disk: the ledgers as plain JSON lines, the tables as Parquet, and
the agents' own notes of what they were answered (`benchmarks.chaos_agent`). None asks the runner
what it believes. A check gives one line for each breach, and none where all is well.

    answers   what an agent was told is in the ledger, with the score that it was told
    verdicts  every accepted submission has exactly one verdict with a score
    ends      every planned run has ended, for good and not through infrastructure
    tables    Parquet holds each thing once, and is what the ledgers make; nothing half written lies
              about
    figures   scores and items are those of the same runs in a sweep that nobody disturbed
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.chaos_agent import is_acknowledged
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.records import SCHEMAS
from rl_bench.run_records import records_of
from rl_bench.run_view import fold_all

Event: TypeAlias = dict[str, Any]
Figures: TypeAlias = dict[tuple[str, str, str], tuple[object, ...]]
"""By run, checkpoint and task: a score, and what became of each item."""
HALF_WRITTEN = (
    ".*.part",
    "runs/*/.*.part",
    "tables/**/.*.part",
    "wandb/.*.part",
    "runs/*/*.reserve",
    "snapshots/.*",
)
"""Names, below a sweep's folder, of what is made in passing."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "runs": ("run_id", "task"),
    "submissions": ("run_id", "attempt", "submission_id", "task"),
    "items": ("run_id", "attempt", "submission_id", "task", "item_id"),
    "events": ("run_id", "seq"),
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt's part of a ledger says; events as JSON, in order."""

    number: int
    events: tuple[Event, ...]

    def of(self, kind: str) -> list[Event]:
        """Its events of one type."""
        return [event for event in self.events if event["type"] == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a sweep went through."""

    num_runs: int
    num_attempts: int
    num_acknowledged: int
    num_accepted: int
    num_graded: int


def attempts_of(ledger: Path, *, whole: bool = True) -> list[Attempt]:
    """A ledger's attempts; what was graded late belongs to the attempt that accepted it.

    Args:
        ledger: The file.
        whole: Its last line must have an end; False: one that has none is left out.

    Raises:
        ValueError: It has none.
    """
    lines = ledger.read_bytes().split(b"\n")
    if lines.pop() != b"" and whole:
        raise ValueError(f"{ledger}: its last line has no end")
    events = [json.loads(line)["event"] for line in lines]
    starts = [i for i, event in enumerate(events) if event["type"] == "run_started"]
    ends = [*starts[1:], len(events)]
    return [
        Attempt(events[start]["attempt"], tuple(events[start:end]))
        for start, end in zip(starts, ends, strict=True)
    ]


def answers_of(folder: Path, run_id: str) -> list[Event]:
    """What a run's agents were answered, torn last lines of killed ones left out."""
    file = folder / f"{run_id}.jsonl"
    answers = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            answers.append(json.loads(line))
        except ValueError:
            continue
    return answers


def breaches(
    paths: SweepPaths, *, answers: Path, run_ids: Sequence[str], reference: Figures | None = None
) -> dict[str, list[str]]:
    """Every check's breaches, by the check's name.

    Args:
        paths: The sweep's, which has ended.
        answers: The folder of the agents' notes.
        run_ids: Its plan.
        reference: `figures` of an undisturbed sweep of the same runs; None: this is one.
    """
    checks = {
        "answers": partial(_lost_answers, paths, answers, run_ids),
        "verdicts": partial(_wrong_verdicts, paths, run_ids),
        "ends": partial(_unfinished, paths, run_ids),
        "tables": partial(_wrong_tables, paths, run_ids),
        "figures": partial(_other_figures, paths, run_ids, reference),
    }
    return {name: check() for name, check in checks.items()}


def count(paths: SweepPaths, *, answers: Path, run_ids: Sequence[str]) -> Counts:
    """What happened in all attempts at all runs."""
    attempts = [a for run_id in run_ids for a in attempts_of(paths.run(run_id).ledger)]
    told = [answer for run_id in run_ids for answer in answers_of(answers, run_id)]
    return Counts(
        num_runs=len(run_ids),
        num_attempts=len(attempts),
        num_acknowledged=sum(map(is_acknowledged, told)),
        num_accepted=sum(len(a.of("submission_accepted")) for a in attempts),
        num_graded=sum(is_scored(e) for a in attempts for e in a.of("submission_graded")),
    )


def is_scored(graded: Event) -> bool:
    """Whether a verdict has a score on each of its tasks."""
    return all(evaluation["score"] is not None for evaluation in graded["evaluations"])


def figures(paths: SweepPaths, run_ids: Sequence[str]) -> Figures:
    """What the last attempts' verdicts say, but for times: equal whenever a run is done again."""
    found: Figures = {}
    for run_id in run_ids:
        last = attempts_of(paths.run(run_id).ledger)[-1]
        names = {e["submission_id"]: e["model_path"] for e in last.of("submission_accepted")}
        verdicts = [("base", e) for e in last.of("baseline_graded")]
        verdicts += [(names[e["submission_id"]], e) for e in last.of("submission_graded")]
        for name, event in verdicts:
            for verdict in event["evaluations"]:
                if verdict["score"] is not None:
                    found[run_id, name, verdict["task"]] = _figures(verdict)
    return found


def _figures(verdict: Event) -> tuple[object, ...]:
    items = (
        (item["item_id"], item["status"], item["score"], item["num_steps"], item["num_tokens"])
        for item in verdict["items"]
    )
    return (verdict["score"], verdict["num_errors"], *sorted(items))


def _lost_answers(paths: SweepPaths, folder: Path, run_ids: Sequence[str]) -> list[str]:
    lost = []
    for run_id in run_ids:
        attempts = attempts_of(paths.run(run_id).ledger)
        by_pid = {e["pid"]: attempt for attempt in attempts for e in attempt.of("agent_started")}
        for answer in answers_of(folder, run_id):
            if not is_acknowledged(answer):
                continue
            problem = _answer_problem(answer, by_pid.get(answer["pid"]))
            if problem:
                lost.append(f"{run_id}: {problem}: {answer}")
    return lost


def _answer_problem(answer: Event, attempt: Attempt | None) -> str:
    if attempt is None:
        return "the ledger knows no such agent"
    number = answer["submission_id"]
    accepted = [e for e in attempt.of("submission_accepted") if e["submission_id"] == number]
    if [e["model_path"] for e in accepted] != [answer["model_path"]]:
        return f"attempt {attempt.number} accepted {accepted} by that number"
    if answer["status"] == 202:
        return ""
    graded = [e for e in attempt.of("submission_graded") if e["submission_id"] == number]
    scores = [round(v["score"], 2) for e in graded if is_scored(e) for v in e["evaluations"]]
    return "" if scores == [answer["score"]] else f"the ledger's scores are {scores}"


def _wrong_verdicts(paths: SweepPaths, run_ids: Sequence[str]) -> list[str]:
    wrong = []
    for run_id in run_ids:
        attempts = attempts_of(paths.run(run_id).ledger)
        if [a.number for a in attempts] != list(range(len(attempts))):
            wrong.append(f"{run_id}: attempts are numbered {[a.number for a in attempts]}")
        for attempt in attempts:
            accepted = [e["submission_id"] for e in attempt.of("submission_accepted")]
            if accepted != list(range(1, len(accepted) + 1)):
                wrong.append(f"{run_id}, attempt {attempt.number}: accepted {accepted}")
            scored = Counter(
                e["submission_id"] for e in attempt.of("submission_graded") if is_scored(e)
            )
            for number in sorted({*accepted, *scored}):
                if number not in accepted or scored[number] != 1:
                    where = f"{run_id}, attempt {attempt.number}, submission {number}"
                    wrong.append(f"{where}: {scored[number]} verdicts with a score")
    return wrong


def _unfinished(paths: SweepPaths, run_ids: Sequence[str]) -> list[str]:
    views = {run_id: fold_all(run_id, read_ledger(paths.run(run_id).ledger)) for run_id in run_ids}
    return [
        f"{run_id}: {view.end} after {view.num_attempts} attempts, final {view.is_final}: "
        f"{view.end_detail[-300:]}"
        for run_id, view in views.items()
        if not view.is_finished
    ]


def _wrong_tables(paths: SweepPaths, run_ids: Sequence[str]) -> list[str]:
    wrong = []
    for name, schema in SCHEMAS.items():
        there = {path.stem for path in (paths.tables / name).glob("*.parquet")}
        if there != set(run_ids):
            wrong.append(f"table {name} is of other runs: {sorted(there ^ set(run_ids))}")
        for run_id in sorted(there & set(run_ids)):
            table = pq.read_table(paths.tables / name / f"{run_id}.parquet")
            snapshot = records_of(run_id, read_ledger(paths.run(run_id).ledger)).snapshot()
            if not table.cast(schema).equals(snapshot.table(name)):
                wrong.append(f"table {name} of {run_id} is not what its ledger makes")
            keys = Counter(tuple(row[k] for k in KEYS.get(name, ())) for row in table.to_pylist())
            twice = [key for key, number in keys.items() if number > 1 and name in KEYS]
            wrong += [f"table {name} holds {key} twice" for key in twice]
    listed = pa_csv.read_csv(paths.tables / "comparison.csv").column("run_id").to_pylist()
    tasks = Counter(listed)
    if set(tasks) != set(run_ids) or max(tasks.values(), default=1) > 1:
        wrong.append(f"comparison.csv lists {dict(tasks)}")
    wrong += [f"left behind: {path}" for name in HALF_WRITTEN for path in paths.root.glob(name)]
    return wrong


def _other_figures(
    paths: SweepPaths, run_ids: Sequence[str], reference: Figures | None
) -> list[str]:
    found = figures(paths, run_ids)
    if reference is None:
        return []
    keys = {key for key in reference if key[0] in run_ids} | set(found)
    return [
        f"{key}: {_short(found.get(key))} instead of {_short(reference.get(key))}"
        for key in sorted(keys)
        if found.get(key) != reference.get(key)
    ]


def _short(value: object) -> str:
    return str(value)[:200]
