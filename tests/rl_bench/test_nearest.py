"""What a misspelt word was likely meant to be, and when that cannot be told."""

import pytest

from rl_bench.nearest import did_you_mean, nearest

KEYS = ("name", "wall_clock_s", "max_driver_calls", "kill_grace_s")


@pytest.mark.parametrize(
    ("word", "choices", "meant"),
    [
        ("wallclock_s", KEYS, "wall_clock_s"),
        ("cladue", ("command", "copy_base", "claude_code", "codex"), "claude_code"),
        ("opus", ("gpt_5_4", "opus_4_6"), "opus_4_6"),
        ("--hlp", ("--version", "--help"), "--help"),
        ("--foo", ("--no-report", "--out"), None),
        ("time", KEYS, None),
        ("", KEYS, None),
        ("word", (), None),
    ],
)
def test_the_nearest_word(word: str, choices: tuple[str, ...], meant: str | None) -> None:
    assert nearest(word, choices) == meant


@pytest.mark.parametrize(
    ("word", "meant"), [("calls", "max_driver_calls"), ("time", "wall_clock_s"), ("x", None)]
)
def test_a_cure_lists_all_and_names_one(word: str, meant: str | None) -> None:
    hint = f"; did you mean {meant}?" if meant else ""
    assert did_you_mean(word, KEYS) == f"Choices: {', '.join(KEYS)}{hint}"


def test_what_is_known_to_be_meant_goes_before_what_is_alike() -> None:
    assert did_you_mean("nam", KEYS, meant="sweep.name").endswith("did you mean sweep.name?")
