"""Stand-ins for the gamed baselines, where AlpacaEval's own rows of them are not at hand.

The length control is regularised by how a judge prefers the reference model told to be concise or
verbose (``df_gamed.csv``). That matters: where all outputs are far shorter than the reference's,
nothing else ties the slope of the length, and a model that hardly ever wins may get any win rate
at equal length. Here such rows are made from what is published of the two baselines: their
coefficients, and their win rates, from which follows how much shorter or longer they write.

Source: the package alpaca-eval's leaderboard ``weighted_alpaca_eval_gpt4_turbo`` and its fitted
weights ``length_controlled_v1``, https://github.com/tatsu-lab/alpaca_eval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from rl_bench.tasks.alpacaeval.fit import Array
from rl_bench.tasks.alpacaeval.winrate import GamedRow

NUM_INSTRUCTIONS = 805
_GOLDEN = (math.sqrt(5) - 1) / 2
_FARTHEST_GAP = 6.0
_NUM_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class GamedBaseline:
    """What is published of a gamed baseline: fitted coefficients, and win rates in percent."""

    length: float
    difficulty: float
    bias: float
    win_rate: float
    lc_win_rate: float


BASELINES = (
    GamedBaseline(  # gpt4_1106_preview_concise
        length=-1.6425, difficulty=0.6836, bias=-0.3182, win_rate=22.92, lc_win_rate=41.90
    ),
    GamedBaseline(  # gpt4_1106_preview_verbose
        length=-1.5835, difficulty=0.8335, bias=0.1924, win_rate=64.30, lc_win_rate=51.58
    ),
)


def stand_in_rows(difficulties: Sequence[float] | None = None) -> tuple[GamedRow, ...]:
    """A row for each baseline and instruction; always the same ones.

    Lengths are normal quantiles, dealt to the instructions in an order that has nothing to do with
    their difficulty, about the mean that makes the published win rate come out.

    Args:
        difficulties: Of the instructions; ``None``: all count as equally difficult.
    """
    num = NUM_INSTRUCTIONS if difficulties is None else len(difficulties)
    known = np.zeros(num) if difficulties is None else np.asarray(difficulties, dtype=np.float64)
    rows: list[GamedRow] = []
    for baseline in BASELINES:
        at_equal_length = (
            np.full(num, _log_odds(baseline.lc_win_rate))
            if difficulties is None
            else baseline.difficulty * known + baseline.bias
        )
        rows += _rows(baseline, known, at_equal_length)
    return tuple(rows)


def _rows(baseline: GamedBaseline, difficulties: Array, at_equal_length: Array) -> list[GamedRow]:
    quantiles = _quantiles(len(difficulties))
    low, high = -_FARTHEST_GAP, _FARTHEST_GAP
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        preferences = _preferences(baseline, middle + quantiles, at_equal_length)
        wins_too_often = 100.0 * float(preferences.mean()) > baseline.win_rate
        low, high = (middle, high) if wins_too_often else (low, middle)
    gaps = middle + quantiles
    return [
        GamedRow(difficulty=difficulty, preference=preference, length_difference=gap)
        for difficulty, preference, gap in zip(
            difficulties.tolist(), preferences.tolist(), gaps.tolist(), strict=True
        )
    ]


def _preferences(baseline: GamedBaseline, gaps: Array, at_equal_length: Array) -> Array:
    preferences: Array = 1.0 / (1.0 + np.exp(-(baseline.length * np.tanh(gaps) + at_equal_length)))
    return preferences


def _quantiles(num: int) -> Array:
    ranks = np.argsort(np.argsort(np.arange(num) * _GOLDEN % 1.0))
    return np.array([NormalDist().inv_cdf((rank + 0.5) / num) for rank in ranks.tolist()])


def _log_odds(percent: float) -> float:
    return math.log(percent / (100.0 - percent))
