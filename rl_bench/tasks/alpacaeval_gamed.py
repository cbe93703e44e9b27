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

from rl_bench.tasks.alpacaeval_winrate import GamedRow

NUM_INSTRUCTIONS = 805
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GamedBaseline:
    """What is published of a gamed baseline.

    Attributes:
        length, difficulty, bias: Its fitted coefficients.
        win_rate: In percent.
        lc_win_rate: In percent.
        gap: Mean of reference less own length, in standard deviations of that difference; derived:
            with it the coefficients give the published win rate.
    """

    length: float
    difficulty: float
    bias: float
    win_rate: float
    lc_win_rate: float
    gap: float


BASELINES = (
    GamedBaseline(  # gpt4_1106_preview_concise
        length=-1.6425, difficulty=0.6836, bias=-0.3182, win_rate=22.92, lc_win_rate=41.90, gap=1.31
    ),
    GamedBaseline(  # gpt4_1106_preview_verbose
        length=-1.5835, difficulty=0.8335, bias=0.1924, win_rate=64.30, lc_win_rate=51.58, gap=-1.18
    ),
)


def stand_in_rows(difficulties: Sequence[float] | None = None) -> tuple[GamedRow, ...]:
    """A row for each baseline and instruction; always the same ones.

    Lengths are normal quantiles, dealt to the instructions in an order that has nothing to do with
    their difficulty.

    Args:
        difficulties: Of the instructions; ``None``: all count as equally difficult.
    """
    num = NUM_INSTRUCTIONS if difficulties is None else len(difficulties)
    order = sorted(range(num), key=lambda item: item * _GOLDEN % 1.0)
    quantiles = {item: NormalDist().inv_cdf((rank + 0.5) / num) for rank, item in enumerate(order)}
    return tuple(
        _row(baseline, quantiles[item], None if difficulties is None else difficulties[item])
        for baseline in BASELINES
        for item in range(num)
    )


def _row(baseline: GamedBaseline, quantile: float, difficulty: float | None) -> GamedRow:
    if difficulty is None:
        share = baseline.lc_win_rate / 100.0
        at_equal_length = math.log(share / (1.0 - share))
    else:
        at_equal_length = baseline.difficulty * difficulty + baseline.bias
    gap = baseline.gap + quantile
    score = baseline.length * math.tanh(gap) + at_equal_length
    return GamedRow(
        difficulty=difficulty or 0.0,
        preference=1.0 / (1.0 + math.exp(-score)),
        length_difference=gap,
    )
