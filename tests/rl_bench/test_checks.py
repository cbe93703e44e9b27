"""Checks tell all that is wrong at once, whatever comes first."""

import pickle
from collections.abc import Callable

import pytest

from rl_bench.checks import Verdict, attempt, check_all
from rl_bench.errors import ConfigError, MissingDataError, PreflightError, RlBenchError


def refuse(error: RlBenchError) -> Callable[[], str]:
    def act() -> str:
        raise error

    return act


def test_all_that_is_wrong_is_raised_as_one() -> None:
    key = PreflightError("no key", cure="Export it")
    rows = MissingDataError("no rows", cure="Get them")
    done: list[str] = []
    with pytest.raises(PreflightError) as caught:
        check_all(refuse(key), lambda: done.append("between"), refuse(rows))
    assert caught.value is key
    assert caught.value.others == (rows,)
    assert str(caught.value).splitlines() == ["no key. Export it", "no rows. Get them"]
    assert done == ["between"]


def test_what_several_checks_trip_over_is_told_once() -> None:
    def inner() -> None:
        check_all(
            refuse(PreflightError("no rows")),
            refuse(PreflightError("no rows")),
            refuse(ConfigError("no protocol")),
        )

    with pytest.raises(RlBenchError) as caught:
        check_all(inner, refuse(PreflightError("no rows")), refuse(PreflightError("no key")))
    assert str(caught.value).splitlines() == ["no rows", "no protocol", "no key"]


def test_checks_that_find_nothing_raise_nothing() -> None:
    check_all()
    check_all(lambda: None, lambda: 3)


def test_others_survive_the_way_to_another_process() -> None:
    error = PreflightError("a", cure="b")
    error.others = (ConfigError("c"),)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert str(again) == str(error) == "a. b\nc"
    assert type(again.others[0]) is ConfigError


def test_each_cure_is_a_check_of_its_own() -> None:
    error = PreflightError("task t: no train rows", cure="Get them")
    error.others = (
        PreflightError("task t: no key", cure="Export it"),
        PreflightError("task t: no eval rows", cure="Get them"),
    )
    checks = attempt("task t", refuse(error))
    assert [(check.name, check.detail, check.cure) for check in checks] == [
        ("task t", "no train rows; no eval rows", "Get them"),
        ("task t", "no key", "Export it"),
    ]
    assert {check.verdict for check in checks} == {Verdict.FAILED}
