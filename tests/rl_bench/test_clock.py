"""The run's clock, driven by hand."""

import threading
import time

import pytest

from rl_bench.clock import RunClock
from rl_bench.config import BudgetConfig


class Hand:
    """Seconds moved by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(hand: Hand, **changes: float | bool) -> RunClock:
    budget = {"name": "test", "wall_clock_s": 100, "max_queue_credit_s": 30, **changes}
    return RunClock(BudgetConfig.model_validate(budget), now=hand)


def test_time_before_the_start_is_free() -> None:
    hand = Hand()
    clock = make(hand)
    hand.now += 600
    assert (clock.started, clock.used_s, clock.remaining_s) == (False, 0.0, 100.0)
    assert clock.credit(5) == 0.0
    clock.start()
    hand.now += 40
    assert (clock.started, clock.used_s, clock.remaining_s) == (True, 40.0, 60.0)


def test_starting_twice_is_refused() -> None:
    clock = make(Hand())
    clock.start()
    with pytest.raises(RuntimeError, match="already"):
        clock.start()


def test_never_negative_after_the_deadline() -> None:
    hand = Hand()
    clock = make(hand)
    clock.start()
    hand.now += 99.9
    assert not clock.expired
    hand.now += 50
    assert clock.expired
    assert clock.remaining_s == 0.0


def test_credit_moves_the_deadline_up_to_the_cap() -> None:
    hand = Hand()
    clock = make(hand)
    clock.start()
    hand.now += 50
    assert clock.credit(20) == 20.0
    assert clock.remaining_s == 70.0
    hand.now += 25
    assert clock.credit(25) == 10.0
    assert clock.queue_credit_s == 30.0
    assert clock.used_s == 45.0


def test_overlapping_waits_are_credited_once() -> None:
    hand = Hand()
    clock = make(hand)
    clock.start()
    hand.now += 40
    begin = clock.now() - 20
    assert clock.credit(10, since=begin) == 10.0
    assert clock.credit(10, since=begin) == 0.0
    assert clock.credit(10, since=begin + 5) == 5.0
    assert clock.used_s == 25.0


def test_no_wait_is_longer_than_the_run() -> None:
    hand = Hand()
    clock = make(hand)
    clock.start()
    hand.now += 3
    assert clock.credit(1000) == 3.0
    assert clock.used_s == 0.0
    with pytest.raises(ValueError, match="negative"):
        clock.credit(-1)


def test_credit_can_be_switched_off() -> None:
    hand = Hand()
    clock = make(hand, credit_queue_wait=False)
    clock.start()
    hand.now += 10
    assert clock.credit(10) == 0.0
    assert clock.used_s == 10.0


def test_wall_clock_and_zone_move_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunClock(BudgetConfig(name="test", wall_clock_s=100))
    clock.start()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert 0 <= clock.used_s < 60
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_threads_share_it() -> None:
    hand = Hand()
    clock = make(hand, max_queue_credit_s=1e6)
    clock.start()
    hand.now += 100
    begin = clock.now() - 100
    threads = [
        threading.Thread(target=clock.credit, args=(0.5,), kwargs={"since": begin + i})
        for i in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.queue_credit_s == pytest.approx(25.0)
