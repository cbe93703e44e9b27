"""Win rates over pairwise preferences: the plain one, and the length-controlled one.

A preference lies in [0, 1]: the judge's probability that the model's output beats the reference's,
0.5 a draw. The length-controlled rate asks what the model would win at equal lengths. A logistic
regression explains the preferences by length difference, difficulty of the instruction and the
model itself; then its length term is set to zero.

The statistics are those of the package ``alpaca-eval`` 0.6.6, fitted here with scikit-learn, since
the package's own code always downloads its tables and imports parts that setuptools has dropped.
The jackknife is ours. Source: Dubois et al. 2024, "Length-Controlled AlpacaEval: A Simple Way to
Debias Automatic Evaluators", https://github.com/tatsu-lab/alpaca_eval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from rl_bench.tasks.alpacaeval.fit import Array, Design, fit, refit

MIN_ITEMS = 20
"""Fewer items than this leave the five folds of the fit too small to mean anything."""
_NUM_JACKKNIFE_GROUPS = 20
_GAMED_WEIGHT = 0.1  # 0.2, shared by two gamed baselines


class LengthControl(StrEnum):
    """What the length control knows beside the preferences.

    ``official`` is exact. The others are approximations, regularised by stand-ins for the gamed
    baselines (`alpacaeval_gamed`).
    """

    OFFICIAL = "official"
    """Official difficulties, and the gamed baselines' own preferences."""
    OFFICIAL_DIFFICULTY = "official_difficulty"
    """Official difficulties."""
    RECONSTRUCTED_DIFFICULTY = "reconstructed_difficulty"
    """Difficulties estimated anew from public models."""
    LENGTH_ONLY = "length_only"
    """None: all instructions count as equally difficult."""


class Comparison(NamedTuple):
    """One judged item: its place in the evaluation set, the preference, and both lengths."""

    item: int
    preference: float
    num_chars_model: int
    num_chars_reference: int


class GamedRow(NamedTuple):
    """A baseline told to be concise or verbose, on one instruction.

    ``length_difference`` is in standard deviations of that baseline's differences.
    """

    difficulty: float
    preference: float
    length_difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthModel:
    """The tables that a fit needs: difficulty by the instruction's place, and gamed rows."""

    method: LengthControl = LengthControl.LENGTH_ONLY
    difficulty: Mapping[int, float] = field(default_factory=dict)
    gamed: tuple[GamedRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """The plain win rate. ``win_rate``, its standard error and ``discrete`` are in percent."""

    win_rate: float
    standard_error: float
    discrete: float
    num_wins: int
    num_losses: int
    num_draws: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledWinRate:
    """The length-controlled win rate, in percent.

    Attributes:
        standard_error: As the leaderboard states it: the spread of the fitted probabilities over
            instructions. It leaves out the uncertainty of the fit.
        jackknife_error: From refits without a twentieth of the items each: what another sample of
            instructions would change.
        coefficients: Of length difference, difficulty and the model itself.
    """

    win_rate: float
    standard_error: float
    jackknife_error: float
    coefficients: tuple[float, float, float]


def win_rate(preferences: Sequence[float]) -> WinRate:
    """Means over ``preferences``, each in [0, 1]; the standard error of one item is 0.

    Raises:
        ValueError: There are none.
    """
    if not preferences:
        raise ValueError("no preferences, no win rate")
    values = np.asarray(preferences, dtype=np.float64)
    wins, losses = int((values > 0.5).sum()), int((values < 0.5).sum())
    draws = len(values) - wins - losses
    return WinRate(
        win_rate=100.0 * float(values.mean()),
        standard_error=100.0 * _standard_error(values),
        discrete=100.0 * (wins + draws / 2) / len(values),
        num_wins=wins,
        num_losses=losses,
        num_draws=draws,
    )


def length_controlled_win_rate(
    comparisons: Sequence[Comparison], *, model: LengthModel
) -> ControlledWinRate:
    """Fits the length control and asks for equal lengths.

    Raises:
        ValueError: Fewer than `MIN_ITEMS` comparisons, or one of unknown difficulty.
    """
    if len(comparisons) < MIN_ITEMS:
        raise ValueError(
            f"the length-controlled win rate needs {MIN_ITEMS} judged items, not {len(comparisons)}"
        )
    own, gamed = _own(comparisons, model), _gamed(model)
    strength, coefficients = fit(gamed + own)
    fitted = _fitted(own, coefficients)
    return ControlledWinRate(
        win_rate=100.0 * float(fitted.mean()),
        standard_error=100.0 * _standard_error(fitted),
        jackknife_error=100.0 * _jackknife(own, gamed=gamed, strength=strength),
        coefficients=(float(coefficients[0]), float(coefficients[1]), float(coefficients[2])),
    )


def at_equal_length(difficulties: Array, *, slope: float, bias: float) -> Array:
    """Fitted preferences, one an instruction, without the term of the length."""
    preferences: Array = np.exp(-np.logaddexp(0.0, -(slope * difficulties + bias)))
    return preferences


def _own(comparisons: Sequence[Comparison], model: LengthModel) -> Design:
    """Columns ``tanh(standardised reference - model length)``, difficulty, 1."""
    gaps = np.array([c.num_chars_reference - c.num_chars_model for c in comparisons], np.float64)
    spread = float(gaps.std(ddof=1))
    lengths = np.tanh(gaps / spread) if spread > 0 else np.zeros_like(gaps)
    if model.method is LengthControl.LENGTH_ONLY:
        difficulties = np.zeros_like(gaps)
    else:
        difficulties = np.array([_difficulty(c.item, model) for c in comparisons])
    return Design(
        features=np.column_stack([lengths, difficulties, np.ones_like(gaps)]),
        preferences=np.array([c.preference for c in comparisons], dtype=np.float64),
        weights=np.ones_like(gaps),
    )


def _difficulty(item: int, model: LengthModel) -> float:
    if item not in model.difficulty:
        raise ValueError(f"no difficulty of instruction {item} ({model.method.value})")
    return model.difficulty[item]


def _gamed(model: LengthModel) -> Design:
    """The regulariser's rows, none of which has the term of the model itself."""
    rows = np.array(model.gamed, dtype=np.float64).reshape(-1, 3)
    return Design(
        features=np.column_stack([np.tanh(rows[:, 2]), rows[:, 0], np.zeros(len(rows))]),
        preferences=rows[:, 1],
        weights=np.full(len(rows), _GAMED_WEIGHT),
    )


def _fitted(design: Design, coefficients: Array) -> Array:
    _, slope, bias = (float(value) for value in coefficients)
    return at_equal_length(design.features[:, 1], slope=slope, bias=bias)


def _jackknife(own: Design, *, gamed: Design, strength: float) -> float:
    """Delete-a-group jackknife over interleaved groups, at the penalty that the whole fit chose."""
    rates = []
    for group in range(_NUM_JACKKNIFE_GROUPS):
        kept = own.rows(np.arange(len(own.weights)) % _NUM_JACKKNIFE_GROUPS != group)
        coefficients = refit(gamed + kept, strength=strength)
        rates.append(_fitted(kept, coefficients).mean())
    share = (_NUM_JACKKNIFE_GROUPS - 1) / _NUM_JACKKNIFE_GROUPS
    return float(np.sqrt(share * np.sum((np.array(rates) - np.mean(rates)) ** 2)))


def _standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
