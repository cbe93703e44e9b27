"""AlpacaEval's win rates beside the published ones.

``RL_BENCH_DATA=… python -m benchmarks.alpacaeval_parity`` prints three tables:

1. one model's real judge preferences: our win rate and length-controlled win rate, by every method
   that the folder's tables allow, beside the leaderboard's;
2. all models of the leaderboard: the length-controlled win rate that the official coefficients of
   a model stand for, on the folder's difficulties, beside the leaderboard's;
3. what the judge is asked: size of the prompts of all 805 pairs, and both orders.

Exits with 1 if a figure is further off than the project claims.
"""

import csv
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rl_bench.errors import PreflightError
from rl_bench.tasks.alpacaeval.annotators import AnnotatorKind, load_annotator, model_comes_first
from rl_bench.tasks.alpacaeval.data import read_instructions, read_length_model
from rl_bench.tasks.alpacaeval.winrate import (
    Comparison,
    LengthControl,
    LengthModel,
    at_equal_length,
    length_controlled_win_rate,
    win_rate,
)

MODEL = "FuseChat-Llama-3.2-3B-Instruct"
MAX_LC_ERROR = 2.6
"""Points: how far reconstructed difficulties are off at most, on models they were not made from."""


class Published(NamedTuple):
    """A leaderboard's row, in percent."""

    win_rate: float
    standard_error: float
    lc_win_rate: float
    lc_standard_error: float


def read_leaderboard(folder: Path) -> dict[str, Published]:
    """By model; older rows lack the standard error of the length-controlled win rate."""
    keys = ("win_rate", "standard_error", "length_controlled_winrate", "lc_standard_error")
    return {
        row[""]: Published(*(float(row[key] or "nan") for key in keys))
        for row in _rows(folder / "leaderboard_v2.csv")
    }


def read_preferences(folder: Path) -> list[Comparison]:
    """The judge's preferences on one model's outputs."""
    return [
        Comparison(
            item=int(row["item"]),
            preference=float(row["preference"]) - 1.0,
            num_chars_model=int(row["len_model_chars"]),
            num_chars_reference=int(row["len_reference_chars"]),
        )
        for row in _rows(folder / f"preferences_{MODEL}.csv")
    ]


def length_models(folder: Path) -> Iterator[LengthModel]:
    """Every length control that the folder has tables for, the best first."""
    for method in LengthControl:
        try:
            yield read_length_model(folder, method)
        except PreflightError:
            continue  # its table is not there


def compare_one(folder: Path, published: Published, console: Console) -> bool:
    """Table 1; whether the figures are within what the project claims."""
    comparisons = read_preferences(folder)
    plain = win_rate([comparison.preference for comparison in comparisons])
    table = Table("figure", "ours", "published", "off", "s.e.", "s.e. published", "jackknife")
    off = plain.win_rate - published.win_rate
    _row(
        table,
        "win rate",
        plain.win_rate,
        published.win_rate,
        plain.standard_error,
        published.standard_error,
    )
    is_near = abs(off) < 0.005
    for position, model in enumerate(length_models(folder)):
        rate = length_controlled_win_rate(comparisons, model=model)
        _row(
            table,
            f"LC, {model.method.value}",
            rate.win_rate,
            published.lc_win_rate,
            rate.standard_error,
            published.lc_standard_error,
            rate.jackknife_error,
        )
        if position == 0:
            is_near &= abs(rate.win_rate - published.lc_win_rate) < MAX_LC_ERROR
    console.print(f"\n{MODEL}: {len(comparisons)} real preferences", table)
    return is_near


def compare_all(folder: Path, board: Mapping[str, Published], console: Console) -> None:
    """Table 2."""
    coefficients = _rows(folder / "lc_weights_weighted_alpaca_eval_gpt4_turbo.csv")
    table = Table("difficulties", "models", "mean off", "median off", "largest off", "raw mean off")
    for model in length_models(folder):
        if not model.difficulty:
            continue
        difficulties = np.array(list(model.difficulty.values()))
        known = [row for row in coefficients if row[""] in board]
        ours = [
            100
            * at_equal_length(
                difficulties,
                slope=float(row["instruction_difficulty"]),
                bias=float(row["not_gamed_baseline.astype(float)"]),
            ).mean()
            for row in known
        ]
        rows = [board[row[""]] for row in known]
        errors = [abs(a - b.lc_win_rate) for a, b in zip(ours, rows, strict=True)]
        raw = statistics.fmean(abs(row.win_rate - row.lc_win_rate) for row in rows)
        table.add_row(
            model.method.value,
            str(len(rows)),
            f"{statistics.fmean(errors):.2f}",
            f"{statistics.median(errors):.2f}",
            f"{max(errors):.2f}",
            f"{raw:.2f}",
        )
    console.print("\nOfficial coefficients of all models, at equal length, points", table)


def describe_prompts(folder: Path, console: Console) -> None:
    """Table 3."""
    rows = read_instructions(folder)
    first = sum(model_comes_first(row.text, seed=0, repeat=0) for row in rows)
    table = Table("judge", "prompts", "characters, mean", "s for all")
    for kind in AnnotatorKind:
        started = time.perf_counter()
        annotator = load_annotator(kind)
        requests = [
            annotator.request("", instruction=row.text, first=row.reference, second=row.reference)
            for row in rows
        ]
        sizes = [sum(len(message["content"]) for message in r.messages) for r in requests]
        table.add_row(
            kind.value,
            str(len(requests)),
            f"{statistics.fmean(sizes):.0f}",
            f"{time.perf_counter() - started:.2f}",
        )
    console.print(
        f"\nJudge prompts; with seed 0 the model comes first in {first} of {len(rows)}", table
    )


def _row(table: Table, name: str, ours: float, published: float, *errors: float) -> None:
    shown = [f"{value:.2f}" for value in (ours, published)]
    table.add_row(name, *shown, f"{ours - published:+.2f}", *(f"{error:.2f}" for error in errors))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> int:
    """Prints the tables."""
    root = os.environ.get("RL_BENCH_DATA")
    if not root:
        sys.exit("RL_BENCH_DATA is not set: it names the folder that holds alpacaeval/")
    folder, console = Path(root) / "alpacaeval", Console(width=110)
    board = read_leaderboard(folder)
    is_near = compare_one(folder, board[MODEL], console)
    compare_all(folder, board, console)
    describe_prompts(folder, console)
    return 0 if is_near else 1


if __name__ == "__main__":
    sys.exit(main())
