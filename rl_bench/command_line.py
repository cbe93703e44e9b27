"""What the project's commands share: output, how a process is ended, and exit codes."""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from rl_bench.errors import ConfigError, PreflightError, RlBenchError, SweepConflictError

USAGE_ERRORS = (ConfigError, PreflightError, SweepConflictError)
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


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
        say(f"interrupted: {interrupted}", to_stderr=True)
        return EXIT_INTERRUPTED


def complain(error: RlBenchError) -> None:
    """Tells an error on stderr, a line each."""
    for line in str(error).splitlines():
        say(f"error: {line}", to_stderr=True)


def say(text: str, *, to_stderr: bool = False) -> None:
    """Writes a text and a newline, at once."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.write(text.rstrip("\n") + "\n")
    stream.flush()
