"""The study's published figures as one frame, so that every table can show ours beside them.

Source: Agent^2 RL-Bench, arXiv 2604.10547; ``published.yaml`` lists what was at hand. A gain that
is given without its score becomes a score by the base model's, and a score a gain likewise.
"""

from functools import cache
from pathlib import Path
from typing import Literal, TypedDict

import polars as pl
import yaml
from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).with_name("published.yaml")
SCHEMA = pl.Schema(
    {
        "model": pl.String(),
        "agent": pl.String(),
        "driver": pl.String(),
        "mode": pl.String(),
        "task": pl.String(),
        "baseline": pl.Float64(),
        "score": pl.Float64(),
        "gain": pl.Float64(),
    }
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Stack(_Strict):
    model: str
    agent: str | None
    driver: str | None
    mode: str


class _Scores(_Stack):
    tasks: dict[str, float]


class _Gain(_Stack):
    task: str
    gain: float


class _Noise(_Strict):
    low: float
    high: float
    seeds: int | None = None


class _Published(_Strict):
    source: str
    baselines: dict[str, dict[str, float]]
    best: dict[str, dict[str, float]]
    scores: tuple[_Scores, ...]
    gains: tuple[_Gain, ...]
    noise: dict[str, _Noise]


class _Row(TypedDict):
    model: str
    agent: str | None
    driver: str | None
    mode: str
    task: str
    baseline: float | None
    score: float | None
    gain: float | None


def source() -> str:
    """Where the figures are from."""
    return _published().source


def baselines(model: str) -> dict[str, float]:
    """The base model's scores by task, percent; empty for a model that is not in the study."""
    return dict(_published().baselines.get(model, {}))


def best(model: str) -> dict[str, float]:
    """The study's best score on each task, percent."""
    return dict(_published().best.get(model, {}))


def noise(task: str, bound: Literal["low", "high"] = "high") -> float | None:
    """What gradings of one checkpoint were reported to differ by, points; None: not reported."""
    found = _published().noise.get(task)
    return None if found is None else float(getattr(found, bound))


def figures() -> pl.DataFrame:
    """Every published run: a row a stack, mode and task, with score (percent) and gain (points)."""
    rows: dict[tuple[str | None, ...], _Row] = {}
    for entry in _published().scores:
        for task, score in entry.tasks.items():
            rows[(*_key(entry), task)] = _row(entry, task, score=score)
    for gain in _published().gains:
        rows.setdefault((*_key(gain), gain.task), _row(gain, gain.task, gain=gain.gain))
    return pl.DataFrame(list(rows.values()), schema=SCHEMA).sort(
        "model", "mode", "agent", "driver", "task"
    )


def _key(stack: _Stack) -> tuple[str | None, ...]:
    return stack.model, stack.agent, stack.driver, stack.mode


def _row(
    stack: _Stack, task: str, *, score: float | None = None, gain: float | None = None
) -> _Row:
    baseline = _published().baselines.get(stack.model, {}).get(task)
    if baseline is not None and score is None and gain is not None:
        score = round(baseline + gain, 2)
    if baseline is not None and gain is None and score is not None:
        gain = round(score - baseline, 2)
    return {
        "model": stack.model,
        "agent": stack.agent,
        "driver": stack.driver,
        "mode": stack.mode,
        "task": task,
        "baseline": baseline,
        "score": score,
        "gain": gain,
    }


@cache
def _published() -> _Published:
    return _Published.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))
