"""The trusted process of one check: holds the test, starts the program elsewhere, and calls it.

Takes a job as JSON on its input and answers with a verdict, or ``broken``, as JSON on its output.
The test's ``check`` gets a stand-in that sends its arguments to the program's process and returns
the plain data that comes back, so neither test nor verdict is within the program's reach. Arguments
are copies: a program that changes them in place changes nothing here.
"""

import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rl_bench.execution import jail
from rl_bench.execution.base import FunctionTest, Isolation, Limits, Outcome, Verdict
from rl_bench.execution.candidate_process import HELLO
from rl_bench.execution.codec import dumps, loads, read_frame, write_frame

START_LIMIT_S = 30.0
"""From the start of a process to its hello; it usually takes 20 ms."""
MAX_ERROR_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One check to do."""

    program: str
    test: FunctionTest
    limits: Limits
    isolation: Isolation


class ProgramRaised(Exception):  # noqa: N818  the program's error, not the checker's
    """The program's function raised; a test could expect that."""


class ProgramLost(BaseException):
    """The program's process ended, or sent what is no reply; no test can catch it by accident."""


class DeadlineReached(BaseException):
    """The time is up; no test can catch it by accident."""


class BrokenJail(Exception):  # noqa: N818  becomes an answer, never an error to callers
    """No program could be started."""


def main() -> None:
    """Does the job of the standard input."""
    # A worker of Ray ignores it and hands that down; waiting for children needs the default.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        answer: dict[str, object] = asdict(run(read_job(sys.stdin.read())))
    except (BrokenJail, OSError) as error:
        answer = {"broken": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer))


def write_job(job: Job) -> str:
    """``job`` as JSON."""
    return json.dumps(asdict(job))


def read_job(text: str) -> Job:
    """The job that `write_job` wrote."""
    fields = json.loads(text)
    return Job(
        program=fields["program"],
        test=FunctionTest(**fields["test"]),
        limits=Limits(**fields["limits"]),
        isolation=Isolation(fields["isolation"]),
    )


def run(job: Job) -> Verdict:
    """Starts the program, lets the test call it, and ends it.

    Raises:
        BrokenJail: It could not be started.
        OSError: Likewise.
    """
    process = jail.start(job.isolation, limits=job.limits)
    try:
        link = _Link(process)
        with _deadline(START_LIMIT_S):
            link.expect_hello()
        started = time.monotonic()
        outcome, error = _judge(job, link)
    except DeadlineReached:
        raise BrokenJail(f"no program was started within {START_LIMIT_S:g} s") from None
    finally:
        process.kill()
    seconds = time.monotonic() - started
    return Verdict(outcome=outcome, error=error[:MAX_ERROR_CHARS], seconds=seconds)


def _judge(job: Job, link: "_Link") -> tuple[Outcome, str]:
    try:
        with _deadline(job.limits.timeout_s):
            link.load(job.program, job.test.entry_point)
            _check(job.test, link)
    except DeadlineReached:
        return Outcome.TIMED_OUT, f"no end within {job.limits.timeout_s:g} s"
    except (ProgramRaised, ProgramLost) as error:
        return Outcome.ERROR, str(error)
    except Exception as error:  # noqa: BLE001  a test computes with whatever the function returned
        return Outcome.WRONG, f"{type(error).__name__}: {error}"
    # A test that swallowed the loss of its program has tested nothing.
    return (Outcome.ERROR, link.lost) if link.lost else (Outcome.PASSED, "")


def _check(test: FunctionTest, link: "_Link") -> None:
    """Runs the test's code; tests that draw numbers draw the same ones every time."""
    random.seed(0)
    namespace: dict[str, Any] = {}
    exec(compile(test.preamble, "<preamble>", "exec"), namespace)  # noqa: S102  the data set's
    exec(compile(test.code, "<test>", "exec"), namespace)  # noqa: S102  likewise
    namespace[test.entry_point] = link.call
    namespace["check"](link.call)


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    def ring(_signal: int, _frame: object) -> None:
        raise DeadlineReached

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Link:
    """The calls to the program, and what went wrong with them.

    Attributes:
        lost: Why no further call is possible; empty while all is well.
    """

    def __init__(self, process: jail.JailedProcess) -> None:
        self._process = process
        self.lost = ""

    def expect_hello(self) -> None:
        """Waits for the process's first word, said before it knows any program."""
        try:
            kind, detail = loads(read_frame(self._process.replies_fd))
        except (EOFError, OSError, ValueError, TypeError) as error:
            raise BrokenJail(f"the interpreter did not start: {error}") from error
        if kind != HELLO:
            raise BrokenJail(str(detail))

    def load(self, program: str, entry_point: str) -> None:
        """Hands the program over and lets it define its function."""
        self._ask((program, entry_point))

    def call(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401  plain data of any kind
        """Calls the program's function; this is what the test gets as ``candidate``."""
        return self._ask((args, kwargs))

    def _ask(self, request: tuple[object, object]) -> Any:  # noqa: ANN401  see `call`
        if self.lost:
            raise ProgramLost(self.lost)
        try:
            write_frame(self._process.requests_fd, dumps(request))
            reply = loads(read_frame(self._process.replies_fd))
        except EOFError:
            raise self._loss("the program ended its process") from None
        except OSError:
            raise self._loss("the program closed its pipe") from None
        except ValueError as error:
            raise self._loss(f"the program sent no reply: {error}") from None
        match reply:
            case ["returned", value]:
                return value
            case ["raised", str(text)]:
                raise ProgramRaised(text)
        raise self._loss("the program sent no reply: malformed")

    def _loss(self, why: str) -> ProgramLost:
        self.lost = why
        return ProgramLost(why)
