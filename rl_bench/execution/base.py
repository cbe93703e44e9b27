"""What is run, under which limits, and how it ended.

A `Program` is a model's code; a `FunctionTest` is the data set's `check` function, which calls the
program's function and asserts. A verdict is about the program. What is *our* failure (no process
could be started, no isolation to be had) is never a verdict: it is an `EnvironmentFailure`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MIB = 1 << 20


class Outcome(StrEnum):
    """How a program fared against its test."""

    PASSED = "passed"
    WRONG = "wrong"
    """The check's own assertion, or an operation of it on what the function returned, failed."""
    ERROR = "error"
    """The program could not be compiled, raised, ended its process, or returned no plain data."""
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    """There was nothing to run."""


class Isolation(StrEnum):
    """What keeps the program from this machine's files, network and processes; best first."""

    NAMESPACES = "namespaces"
    """Own namespaces and a foreign uid; needs root."""
    USER_NAMESPACES = "user_namespaces"
    """Own namespaces in a user namespace; the kernel must allow them to this user."""
    LANDLOCK = "landlock"
    """Landlock and seccomp in the machine's own namespaces: where containers allow no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use.

    Attributes:
        timeout_s: Wall time from the program's first line to the end of its test, seconds. The
            limit of CPU time is the same, rounded up.
        memory_bytes: Address space of its process.
        max_threads: Threads of its process; others of its own it cannot start.
        max_files: Open files.
    """

    timeout_s: float = 10.0
    memory_bytes: int = 1024 * MIB
    max_threads: int = 32
    max_files: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTest:
    """A data set's test of one function.

    Attributes:
        preamble: Trusted code that the test may refer to, run beside it.
        code: Defines ``check(candidate)``, which raises when the function is wrong.
        entry_point: The function's name; in ``code`` it stands for the candidate too.
    """

    preamble: str
    code: str
    entry_point: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How it ended. ``error`` is a line for people, clipped; ``seconds`` wall time of the test."""

    outcome: Outcome
    error: str = ""
    seconds: float = 0.0


class FunctionChecker(Protocol):
    """Whatever can run a program against its test."""

    def check(self, program: str, test: FunctionTest) -> Verdict:
        """Runs ``program`` (Python source) and calls its function as ``test`` asks.

        Raises:
            EnvironmentFailure: Nothing can be said of the program.
        """
        ...
