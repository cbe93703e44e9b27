"""Flags of commands without overrides: misspelt ones, and numbers that are none."""

import argparse
import re
import subprocess
import sys
from functools import partial

import pytest

from rl_bench.command_line import number_within, read_flags


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("it", allow_abbrev=False)
    made.add_argument("folders", nargs="+")
    made.add_argument("--no-plots", action="store_true")
    made.add_argument("--interval", type=partial(number_within, 0.5, 60), default=1.0)
    return made


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--no-plot"], "unknown flag '--no-plot'.*did you mean --no-plots"),
        (["x", "--intervall=3"], "unknown flag '--intervall'.*did you mean --interval"),
        (["x", "--hep"], "did you mean --help"),
        (["x", "--y"], "unknown flag '--y'. Choices: --help, --no-plots, --interval$"),
        ([], "required: folders"),
        (["x", "--interval", "soon"], "--interval: 'soon' is no number from 0.5 to 60"),
        (["x", "--interval", "nan"], "'nan' is no number from 0.5 to 60"),
        (["x", "--interval", "0.1"], "'0.1' is no number from 0.5 to 60"),
    ],
)
def test_bad_flags_are_told_with_what_was_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_flags(parser(), words)
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("usage: it ")
    assert re.search(told, lines[-1])


def test_what_stands_behind_two_dashes_is_no_flag() -> None:
    args = read_flags(parser(), ["--interval", "2.5", "--", "--no-plot"])
    assert (args.folders, args.interval) == (["--no-plot"], 2.5)


DROPPED = """
import signal, sys, time
from rl_bench.command_line import ended, prepare_process

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def command():
    Finalised()
    time.sleep(40)
    return 0

prepare_process()
sys.exit(ended(command, interrupted="again"))
"""
TWICE = """
import signal, sys
from rl_bench.command_line import ended, prepare_process

def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        raise KeyboardInterrupt
    finally:
        sys.setprofile(second)

def second(frame, event, argument):
    # A second one, due at the first call once the first is caught.
    if event == "c_call" and argument.__name__ == "sleep" or frame.f_code.co_name == "say":
        sys.setprofile(None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.raise_signal(signal.SIGINT)

prepare_process()
sys.exit(ended(command, interrupted="again"))
"""


@pytest.mark.timeout(30)
@pytest.mark.parametrize("script", [DROPPED, TWICE])
def test_an_interrupt_is_neither_dropped_nor_told_with_a_traceback(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "interrupted: again\n")
