"""Small results written as the sweep writes them: Parquet files that `analysis.results` reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rl_bench.records import SCHEMAS

START = datetime(2026, 1, 1, tzinfo=UTC)
LEVEL = {
    "gsm8k": "L1",
    "humaneval": "L1",
    "alpacaeval": "L2",
    "alfworld": "L3",
    "webshop": "L3",
    "deepsearchqa": "L3",
}


def default_of(kind: pa.DataType) -> object:
    """What a column that a test does not speak of holds."""
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind):
        return 0
    if pa.types.is_floating(kind):
        return 0.0
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_timestamp(kind):
        return START
    return ""


def row(table: str, **values: object) -> dict[str, object]:
    """A row of a table; unknown names are errors."""
    schema = SCHEMAS[table]
    unknown = set(values) - set(schema.names)
    assert not unknown, f"{table} has no {unknown}"
    return {
        part.name: values[part.name] if part.name in values else default_of(part.type)
        for part in schema
    }


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a test: its conditions, and the scores of its submissions in order.

    ``scores``: percent, None is a failed grading. ``items``: by submission (0: base), scores of the
    items in [0, 1].
    """

    name: str
    task: str = "gsm8k"
    agent: str = "a"
    driver: str = "d"
    mode: str = "free"
    model: str = "m"
    seed: int = 0
    baseline: float | None = 50.0
    scores: Sequence[float | None] = ()
    hours: Sequence[float] = ()
    items: Mapping[int, Sequence[float | None]] = field(default_factory=dict)
    end: str | None = "completed"
    is_infrastructure: bool = False
    is_invalid: bool = False
    floor: float | None = None
    cost: float | None = 10.0
    total_cost: float | None = None
    calls: Sequence[tuple[float, int, float | None]] = ()
    tasks: tuple[str, ...] = ()
    budget_h: float = 12.0
    used_h: float = 12.0
    budget: str = "12h"
    item_ids: Sequence[str] = ()

    @property
    def best(self) -> float | None:
        return max((score for score in self.scores if score is not None), default=None)

    def rows(self) -> dict[str, list[dict[str, object]]]:
        best, base = self.best, self.baseline
        gain = None if best is None or base is None else best - base
        run = row(
            "runs",
            run_id=self.name,
            sweep="s",
            task=self.task,
            tasks=list(self.tasks or (self.task,)),
            level=LEVEL[self.task],
            agent=self.agent,
            driver=self.driver,
            mode=self.mode,
            model=self.model,
            seed=self.seed,
            state="finished" if self.end else "running",
            end=self.end,
            is_final=self.end is not None,
            is_infrastructure=self.is_infrastructure,
            is_invalid=self.is_invalid,
            counts=self.end is not None and not self.is_infrastructure and not self.is_invalid,
            num_attempts=1,
            baseline_score=base,
            noise_floor=self.floor,
            best_score=best,
            best_submission_id=None if best is None else list(self.scores).index(best) + 1,
            improvement=gain,
            within_noise=None if gain is None or self.floor is None else abs(gain) <= self.floor,
            num_submissions=len(self.scores),
            num_failed=sum(score is None for score in self.scores),
            cost_usd=self.cost,
            total_cost_usd=self.cost if self.total_cost is None else self.total_cost,
            input_tokens=1000,
            output_tokens=100,
            budget=self.budget,
            budget_s=self.budget_h * 3600,
            budget_used_s=self.used_h * 3600,
        )
        submissions = [
            row(
                "submissions",
                run_id=self.name,
                submission_id=place + 1,
                task=self.task,
                status="failed" if score is None else "graded",
                score=score,
                budget_used_s=3600 * (self.hours[place] if self.hours else place + 1.0),
                accepted_at=START + timedelta(hours=place + 1),
                graded_at=START + timedelta(hours=place + 1, minutes=5),
            )
            for place, score in enumerate(self.scores)
        ]
        items = [
            row(
                "items",
                run_id=self.name,
                submission_id=submission,
                task=self.task,
                item_id=self.item_ids[place] if self.item_ids else f"i{place:04d}",
                status="ok" if score is not None else "env_error",
                score=score,
            )
            for submission, scores in self.items.items()
            for place, score in enumerate(scores)
        ]
        calls = [
            row(
                "driver_calls",
                run_id=self.name,
                call=place,
                budget_used_s=hour * 3600,
                input_tokens=tokens,
                output_tokens=tokens // 10,
                cost_usd=cost,
            )
            for place, (hour, tokens, cost) in enumerate(self.calls)
        ]
        return {"runs": [run], "submissions": submissions, "items": items, "driver_calls": calls}


def write(folder: Path, runs: Sequence[Run]) -> Path:
    """A results folder of these runs; runs of one name are one run on several tasks."""
    by_name: dict[str, dict[str, list[dict[str, object]]]] = {}
    for run in runs:
        for table, rows in run.rows().items():
            by_name.setdefault(run.name, {}).setdefault(table, []).extend(rows)
    for name, tables in by_name.items():
        for table, schema in SCHEMAS.items():
            rows = tables.get(table, [])
            if not rows and table != "runs":
                continue
            place = folder / "tables" / table
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), place / f"{name}.parquet")
    return folder


def right(num: int, of: int, *, seed: int = 0) -> list[float]:
    """``num`` of ``of`` items right, which ones by the seed."""
    scores = np.zeros(of)
    scores[np.random.default_rng(seed).permutation(of)[:num]] = 1.0
    return [float(score) for score in scores]
