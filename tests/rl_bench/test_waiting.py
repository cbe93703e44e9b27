"""What takes long is told of, and not too often."""

import threading

from rl_bench.waiting import SoFar, told_while


def test_the_times_between_lines_grow() -> None:
    now, said = [100.0], list[str]()
    so_far = SoFar("making tea", said.append, clock=lambda: now[0])
    for seconds in range(0, 100):
        now[0] = 100.0 + seconds
        so_far.look()
    assert said == [f"making tea: {seconds} s so far" for seconds in (5, 10, 20, 40, 80)]


def test_a_late_look_says_one_line() -> None:
    now, said = [0.0], list[str]()
    so_far = SoFar("making tea", said.append, clock=lambda: now[0])
    assert so_far.quiet_s == 5.0
    now[0] = 33.0
    so_far.look()
    so_far.look()
    assert said == ["making tea: 33 s so far"]
    assert so_far.quiet_s == 7.0


def test_a_block_is_told_of_while_it_lasts() -> None:
    said: list[str] = []
    twice = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            twice.set()

    with told_while("making tea", say, first_s=0.01):
        assert twice.wait(20)
    assert all(line.startswith("making tea: ") for line in said)
    assert not any(thread.name == "told_while" for thread in threading.enumerate())


def test_a_block_that_is_quick_is_not_told_of() -> None:
    said: list[str] = []
    with told_while("making tea", said.append, first_s=1000.0):
        pass
    assert said == []
