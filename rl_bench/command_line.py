"""What the project's commands share: flags, output, how a process is ended, and exit codes."""

import argparse
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile, zip_longest
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rl_bench import __version__
from rl_bench.errors import ConfigError, PreflightError, RlBenchError, SweepConflictError
from rl_bench.lines import printable
from rl_bench.nearest import did_you_mean, nearest

USAGE_ERRORS = (ConfigError, PreflightError, SweepConflictError)
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
LOST_S = 0.05
"""Until an interrupt that was dropped comes again."""


class Words(NamedTuple):
    """What a command line says, flags apart."""

    overrides: Sequence[str]
    config_dirs: Sequence[Path]


def run_command(
    prog: str,
    argv: Sequence[str] | None,
    *,
    command: Callable[[Words], int],
    help_text: Callable[[Sequence[Path]], str],
    interrupted: str,
) -> int:
    """Reads the flags that every command has, and runs the command.

    Args:
        prog: The program's name.
        argv: Words after it; None: the process's own, which is then made ready as well.
        command: Returns its exit code.
        help_text: What ``--help`` says, given the folders of ``--config-dir``.
        interrupted: What an interrupted command may be told about starting again.

    Returns:
        The exit code.
    """
    if argv is None:
        prepare_process()
    given = sys.argv[1:] if argv is None else argv

    def run() -> int:
        is_help, words = _parse(prog, given)
        if is_help:
            say(help_text(words.config_dirs))
            return 0
        return command(words)

    return ended(run, interrupted=interrupted)


def _parse(prog: str, argv: Sequence[str]) -> tuple[bool, Words]:
    parser = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="version", version=f"rl_bench {__version__}")
    parser.add_argument("--config-dir", type=Path, action="append", default=[])
    args, overrides = parser.parse_known_args(argv)
    check_no_flags(overrides, parser)
    return args.help, Words(overrides, args.config_dir)


def check_no_flags(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Refuses flags among the words that a parser has left over, which are to be overrides.

    Raises:
        ConfigError: With the flag that was likely meant, or the override.
    """
    for word, following in zip_longest(words, words[1:], fillvalue="true"):
        if word.startswith("-"):
            flags = _flags(parser)
            meant = nearest(word.partition("=")[0], flags)
            override = word.lstrip("-").replace("-", "_")
            is_value = "=" not in following and not following.startswith("-")
            override += "" if "=" in word else f"={following if is_value else 'true'}"
            raise ConfigError(
                f"unknown flag '{word}'",
                cure=did_you_mean(word, flags, meant=meant)
                if meant
                else f"Flags: {', '.join(flags)}. Overrides have no dashes: {override}",
            )


def read_flags(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parses a command line that has no overrides; ends the process as argparse does.

    A flag that is misspelt is told before what else may be missing, with the one that was likely
    meant.

    Args:
        parser: Without subcommands.
        argv: Words after the program's name; None: the process's own.
    """
    given = sys.argv[1:] if argv is None else argv
    known = _flags(parser)
    for flag in (word.partition("=")[0] for word in takewhile(lambda word: word != "--", given)):
        if flag.startswith("--") and flag not in known:
            parser.error(f"unknown flag '{flag}'. {did_you_mean(flag, known)}")
    return parser.parse_args(given)


def number_within(least: float, most: float, text: str) -> float:
    """The type of a flag whose value is a number.

    Raises:
        argparse.ArgumentTypeError: It is none, or not within these bounds.
    """
    with suppress(ValueError):
        if least <= float(text) <= most:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}")


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    """Its flags; of one with several names the long one."""
    return [action.option_strings[-1] for action in parser._actions if action.option_strings]


def prepare_process() -> None:
    """Output in any encoding without an error; a request to end is an interrupt, from the start."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Ignored by whoever started it, as nohup does, it stays ignored.
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _interrupt)
        sys.unraisablehook = _raise_again


def _raise_again(lost: "sys.UnraisableHookArgs") -> None:
    """An interrupt that fell into a finaliser, where Python drops it, comes once more."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        # By a thread, since here it would be dropped again; as a signal, which ends a sleep.
        main = threading.main_thread().ident
        threading.Timer(LOST_S, signal.pthread_kill, (main, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def ended(command: Callable[[], int], *, interrupted: str) -> int:
    """Runs a command; tells its errors in a line each.

    Args:
        command: Returns its exit code.
        interrupted: What an interrupted one may be told about starting again.

    Returns:
        The exit code.
    """
    try:
        return command()
    except USAGE_ERRORS as error:
        complain(error)
        return EXIT_USAGE
    except RlBenchError as error:
        complain(error)
        return EXIT_FAILED
    except BrokenPipeError:
        # Whoever read the output is gone; the interpreter must not complain at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED
    except OSError as error:
        say(f"error: {error}", to_stderr=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        try:  # noqa: SIM105  entering a context is late enough for the second to come before it
            time.sleep(0)  # where a library raised one of its own, the interpreter's is still due
        except KeyboardInterrupt:
            pass
        say(f"interrupted: {interrupted}", to_stderr=True)
        return EXIT_INTERRUPTED


def complain(error: RlBenchError) -> None:
    """Tells an error on stderr, a line each."""
    for line in str(error).splitlines():
        say(f"error: {line}", to_stderr=True)


def say(text: str, *, to_stderr: bool = False) -> None:
    """Writes a text and a newline, at once; what in a line would be an order to a terminal is none.

    Folders, files and models have names that others chose.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    lines = map(printable, text.rstrip("\n").split("\n"))
    stream.write("\n".join(lines) + "\n")
    stream.flush()
