"""Win rates: against figures of the package alpaca-eval, known truths, and the published one."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from rl_bench.tasks.alpacaeval.data import read_length_model
from rl_bench.tasks.alpacaeval.gamed import BASELINES, NUM_INSTRUCTIONS, stand_in_rows
from rl_bench.tasks.alpacaeval.winrate import (
    Comparison,
    GamedRow,
    LengthControl,
    LengthModel,
    length_controlled_win_rate,
    win_rate,
)

NUM = 100
LENGTH_ONLY = LengthModel()


def num_chars(item: int) -> int:
    return 400 + (item * 37 % 23) * 40


def num_chars_reference(item: int) -> int:
    return 700 + (item * 53 % 17) * 35


def difficulty(item: int) -> float:
    return round(-2.5 + (item * 29 % 13) * 0.2, 3)


def preference(item: int) -> float:
    gap = (num_chars_reference(item) - num_chars(item)) / 300
    score = math.sin(item) * 1.5 - 1.3 * math.tanh(gap) + 0.9 * difficulty(item) + 2.4
    return round(1 / (1 + math.exp(-score)), 4)


COMPARISONS = [
    Comparison(item, preference(item), num_chars(item), num_chars_reference(item))
    for item in range(NUM)
]
GAMED = tuple(
    GamedRow(
        difficulty=difficulty(item),
        preference=round(0.5 + 0.4 * math.sin(item * sign + 1), 4),
        length_difference=round(sign * (0.5 + (item * 19 % 7) * 0.3), 3),
    )
    for sign in (1, -1)
    for item in range(NUM)
)
DIFFICULTY = {item: difficulty(item) for item in range(NUM)}


@pytest.mark.parametrize(
    ("model", "expected", "standard_error"),
    [
        (
            LengthModel(method=LengthControl.OFFICIAL, difficulty=DIFFICULTY, gamed=GAMED),
            70.16622563765829,
            0.4071366916946109,
        ),
        (
            LengthModel(method=LengthControl.OFFICIAL_DIFFICULTY, difficulty=DIFFICULTY),
            72.64227167245421,
            0.7368599714656282,
        ),
        (LENGTH_ONLY, 72.58292513852585, 0.0),
    ],
    ids=["official", "no regulariser", "length only"],
)
def test_length_controlled_win_rates_are_the_packages(
    model: LengthModel, expected: float, standard_error: float
) -> None:
    """Figures: get_length_controlled_winrate of alpaca-eval 0.6.6 on the same rows."""
    rate = length_controlled_win_rate(COMPARISONS, model=model)
    assert rate.win_rate == pytest.approx(expected, abs=1e-3)
    assert rate.standard_error == pytest.approx(standard_error, abs=1e-3)
    assert rate == length_controlled_win_rate(COMPARISONS, model=model)


def test_win_rates_are_the_packages() -> None:
    rate = win_rate([comparison.preference for comparison in COMPARISONS])
    assert rate.win_rate == pytest.approx(65.5332)
    assert rate.standard_error == pytest.approx(2.4226269483577307)
    assert (rate.num_wins, rate.num_losses, rate.num_draws) == (76, 24, 0)
    assert rate.discrete == pytest.approx(76.0)


def test_a_draw_is_half_a_win() -> None:
    rate = win_rate([1.0, 0.5, 0.5, 0.0, 0.2])
    assert (rate.num_wins, rate.num_losses, rate.num_draws) == (1, 2, 2)
    assert rate.discrete == pytest.approx(40.0)
    assert rate.win_rate == pytest.approx(44.0)


def test_no_preferences_have_no_win_rate() -> None:
    with pytest.raises(ValueError, match="no preferences"):
        win_rate([])
    assert win_rate([1.0]).standard_error == 0.0


def drawn(*, bias: float, taste: float, num: int = 1000) -> list[Comparison]:
    """A judge that likes long answers by ``taste``; the model writes longer ones."""
    rng = np.random.default_rng(0)
    own, other = rng.normal(1500, 300, num), rng.normal(1200, 300, num)
    gaps = other - own
    scores = bias - taste * np.tanh(gaps / gaps.std(ddof=1))
    wins = rng.random(num) < 1 / (1 + np.exp(-scores))
    return [
        Comparison(item, float(win), int(a), int(b))
        for item, (win, a, b) in enumerate(zip(wins, own, other, strict=True))
    ]


def test_length_control_takes_back_what_length_won() -> None:
    comparisons = drawn(bias=-1.0, taste=2.0)
    truth = 100 / (1 + math.exp(1.0))
    plain = win_rate([comparison.preference for comparison in comparisons])
    controlled = length_controlled_win_rate(comparisons, model=LENGTH_ONLY)
    assert plain.win_rate > truth + 10
    assert abs(controlled.win_rate - truth) < 3 * controlled.jackknife_error < 10


def test_the_jackknife_is_the_spread_over_samples() -> None:
    comparisons = drawn(bias=0.5, taste=1.0, num=200)
    jackknife = length_controlled_win_rate(comparisons, model=LENGTH_ONLY).jackknife_error
    rng = np.random.default_rng(1)
    rates = [
        length_controlled_win_rate(
            [comparisons[i] for i in rng.integers(0, len(comparisons), len(comparisons))],
            model=LENGTH_ONLY,
        ).win_rate
        for _ in range(20)
    ]
    assert 0.5 < jackknife / float(np.std(rates)) < 2.0


@pytest.mark.parametrize(("always", "lowest", "highest"), [(0.0, 0, 0.1), (1.0, 99.9, 100)])
def test_who_always_loses_or_wins_is_far_from_even(
    always: float, lowest: float, highest: float
) -> None:
    comparisons = [comparison._replace(preference=always) for comparison in COMPARISONS]
    rate = length_controlled_win_rate(comparisons, model=LENGTH_ONLY)
    assert lowest <= rate.win_rate <= highest


def test_few_wins_stay_few() -> None:
    comparisons = [
        comparison._replace(preference=float(comparison.item % 20 == 3))
        for comparison in COMPARISONS
    ]
    rate = length_controlled_win_rate(comparisons, model=LENGTH_ONLY)
    assert 1.0 < rate.win_rate < 10.0


def test_equal_lengths_leave_nothing_to_control() -> None:
    comparisons = [comparison._replace(num_chars_model=7) for comparison in COMPARISONS]
    comparisons = [comparison._replace(num_chars_reference=7) for comparison in comparisons]
    rate = length_controlled_win_rate(comparisons, model=LENGTH_ONLY)
    assert rate.coefficients[0] == 0.0
    assert rate.win_rate == pytest.approx(65.53, abs=0.5)


def test_answers_all_too_short_are_not_won_at_equal_length() -> None:
    """Length alone decides here, and nothing shows what would happen at equal length."""
    rng = np.random.default_rng(0)
    lengths = rng.normal(1500, 400, 400)
    comparisons = [
        Comparison(item, float(length < 700), 20, int(length))
        for item, length in enumerate(lengths)
    ]
    free = length_controlled_win_rate(comparisons, model=LENGTH_ONLY)
    tied = length_controlled_win_rate(comparisons, model=LengthModel(gamed=stand_in_rows()))
    assert free.win_rate > 50
    assert tied.win_rate < 15


def test_stand_ins_win_as_often_as_published(real_data: Path) -> None:
    model = read_length_model(real_data / "alpacaeval", LengthControl.RECONSTRUCTED_DIFFICULTY)
    plain = [row.preference for row in stand_in_rows()]
    for rows in ([row.preference for row in model.gamed], plain):
        assert len(rows) == 2 * NUM_INSTRUCTIONS
        for place, baseline in enumerate(BASELINES):
            own = rows[place * NUM_INSTRUCTIONS : (place + 1) * NUM_INSTRUCTIONS]
            assert 100 * sum(own) / len(own) == pytest.approx(baseline.win_rate, abs=0.01)
    slopes = length_controlled_win_rate(
        [
            Comparison(i, row.preference, 1000 - round(400 * row.length_difference), 1000)
            for i, row in enumerate(stand_in_rows()[:NUM_INSTRUCTIONS])
        ],
        model=LENGTH_ONLY,
    )
    assert slopes.win_rate == pytest.approx(BASELINES[0].lc_win_rate, abs=1.5)


def test_too_few_items_and_unknown_difficulties_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 20 judged items, not 19"):
        length_controlled_win_rate(COMPARISONS[:19], model=LENGTH_ONLY)
    partial = LengthModel(method=LengthControl.OFFICIAL_DIFFICULTY, difficulty={0: 1.0})
    with pytest.raises(ValueError, match="no difficulty of instruction 1"):
        length_controlled_win_rate(COMPARISONS, model=partial)


def test_published_win_rates_from_real_preferences(real_data: Path) -> None:
    folder = real_data / "alpacaeval"
    with (folder / "preferences_FuseChat-Llama-3.2-3B-Instruct.csv").open() as file:
        comparisons = [
            Comparison(
                item=int(row["item"]),
                preference=float(row["preference"]) - 1,
                num_chars_model=int(row["len_model_chars"]),
                num_chars_reference=int(row["len_reference_chars"]),
            )
            for row in csv.DictReader(file)
        ]
    with (folder / "leaderboard_v2.csv").open() as file:
        board = {row[""]: row for row in csv.DictReader(file)}
    published = board["FuseChat-Llama-3.2-3B-Instruct"]
    plain = win_rate([comparison.preference for comparison in comparisons])
    assert plain.win_rate == pytest.approx(float(published["win_rate"]), abs=1e-6)
    assert round(plain.win_rate, 2) == 51.30
    assert plain.standard_error == pytest.approx(float(published["standard_error"]), abs=1e-6)
    assert plain.discrete == pytest.approx(float(published["discrete_win_rate"]))
    assert plain.num_draws == int(published["n_draws"])
    model = read_length_model(folder, LengthControl.RECONSTRUCTED_DIFFICULTY)
    controlled = length_controlled_win_rate(comparisons, model=model)
    assert abs(controlled.win_rate - float(published["length_controlled_winrate"])) < 2.6
    assert controlled.win_rate == pytest.approx(53.38, abs=0.01)
