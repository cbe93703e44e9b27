"""The generator of word problems: deterministic, disjoint splits, correct answers."""

import re
from itertools import islice

import pytest

from rl_bench.tasks.gsm8k.word_problems import ProblemShape, iter_problems, split_of

SHAPE = ProblemShape(min_steps=1, max_steps=3, max_number=40)
_SIGNS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def test_equal_seeds_give_equal_problems() -> None:
    first = list(islice(iter_problems("train", seed=3, shape=SHAPE), 50))
    again = list(islice(iter_problems("train", seed=3, shape=SHAPE), 50))
    other = list(islice(iter_problems("train", seed=4, shape=SHAPE), 50))
    assert first == again
    assert first != other


def test_no_question_is_in_both_splits() -> None:
    train = {p.question for p in islice(iter_problems("train", seed=0, shape=SHAPE), 800)}
    held_out = {p.question for p in islice(iter_problems("eval", seed=0, shape=SHAPE), 200)}
    assert len(train) == 800
    assert len(held_out) == 200
    assert not train & held_out
    assert all(split_of(question) == "train" for question in train)


def test_solutions_are_correct_and_use_the_numbers_of_the_story() -> None:
    for problem in islice(iter_problems("train", seed=1, shape=SHAPE), 300):
        *equations, last = problem.answer.splitlines()
        assert len(equations) == problem.num_steps
        known = {int(number) for number in re.findall(r"\d+", problem.question)}
        result = -1
        for equation in equations:
            left, sign, right, equals, value = equation.split()
            assert equals == "="
            assert {int(left), int(right)} <= known
            result = int(value)
            assert _SIGNS[sign](int(left), int(right)) == result
            assert 0 < result <= SHAPE.max_number
            known.add(result)
        assert last == f"#### {result}"


def test_shape_is_respected() -> None:
    shape = ProblemShape(min_steps=2, max_steps=2)
    assert {p.num_steps for p in islice(iter_problems("eval", seed=0, shape=shape), 50)} == {2}


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 1), (1, 4)])
def test_impossible_shapes_are_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="one to three steps"):
        ProblemShape(min_steps=low, max_steps=high)
