"""Checks programs, each in a process of its own that is started, bounded and ended here.

Owns how many run at once, which isolation this machine offers, and what is infrastructure: a check
that cannot be started is tried once more, then it is an `EnvironmentFailure`.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from rl_bench.errors import EnvironmentFailure, PreflightError
from rl_bench.execution.base import FunctionTest, Isolation, Limits, Outcome, Verdict
from rl_bench.execution.checker_process import START_LIMIT_S, Job, write_job
from rl_bench.grading_status import OnItem

GRACE_S = 5.0
"""From the end of a check's time to the end of its process, should it not see that by itself."""
_MOST_AT_ONCE = 32
_ROOT = Path(__file__).parents[2]
_PROBE = FunctionTest(preamble="", code="def check(f):\n    assert f(1) == 2", entry_point="probe")
_PROBE_PROGRAM = "def probe(x):\n    return x + 1"


class ProcessChecker:
    """Checks each program in a process of its own; see `FunctionChecker`.

    Args:
        limits: What each program may use.
        isolation: How it is kept apart; the best that this machine offers if ``None``.
    """

    def __init__(self, *, limits: Limits, isolation: Isolation | None = None) -> None:
        self._limits = limits
        self._isolation = isolation

    @property
    def isolation(self) -> Isolation:
        """How programs are kept apart.

        Raises:
            PreflightError: This machine offers nothing that protects files and tests.
        """
        return self._isolation or best_isolation()

    def check(self, program: str, test: FunctionTest) -> Verdict:
        """Runs ``program`` against ``test``; blocks for at most the limit and some seconds.

        Raises:
            EnvironmentFailure: No program could be started, twice.
        """
        if not program.strip():
            return Verdict(outcome=Outcome.REFUSED, error="there is no code")
        job = Job(program=program, test=test, limits=self._limits, isolation=self.isolation)
        for is_last in (False, True):
            try:
                return _run(job)
            except EnvironmentFailure:
                if is_last:
                    raise
        raise AssertionError("unreachable")

    async def check_all(
        self, items: Sequence[tuple[str, FunctionTest]], *, on_verdict: OnItem = lambda: None
    ) -> list[Verdict | EnvironmentFailure]:
        """Checks many, `num_at_once` at a time; results are in order.

        ``on_verdict`` is called as each is checked.

        Raises:
            PreflightError: As for `isolation`.
        """
        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(max_workers=num_at_once())
        try:
            # Found out once, before many ask for it at the same time.
            await loop.run_in_executor(threads, lambda: self.isolation)
            checks = [loop.run_in_executor(threads, self._attempt, *item) for item in items]
            for check in checks:
                check.add_done_callback(lambda _: on_verdict())
            return list(await asyncio.gather(*checks))
        finally:
            # A cancelled evaluation must neither wait here nor start what is still queued.
            threads.shutdown(wait=False, cancel_futures=True)

    def _attempt(self, program: str, test: FunctionTest) -> Verdict | EnvironmentFailure:
        try:
            return self.check(program, test)
        except EnvironmentFailure as error:
            return error


def num_at_once() -> int:
    """Programs that run at the same time: the CPUs this process may use, up to a bound.

    The bound keeps what they may use of memory together within a large machine's.
    """
    return min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE)


@cache
def best_isolation() -> Isolation:
    """The strongest isolation that works here, found by running a program in it.

    Raises:
        PreflightError: None does.
    """
    reasons = []
    for isolation in offered(os.geteuid()):
        job = Job(program=_PROBE_PROGRAM, test=_PROBE, limits=Limits(), isolation=isolation)
        try:
            verdict = _run(job)
        except EnvironmentFailure as error:
            reasons.append(f"{isolation.value}: {error.message}")
            continue
        if verdict.outcome is Outcome.PASSED:
            return isolation
        reasons.append(f"{isolation.value}: {verdict.error}")
    raise PreflightError(
        f"no model's code can be run safely here ({'; '.join(reasons)})",
        cure="Permit user namespaces (sysctl user.max_user_namespaces, "
        "kernel.apparmor_restrict_unprivileged_userns), or use Linux 5.13 or later with Landlock "
        "and seccomp on x86-64",
    )


def offered(uid: int) -> tuple[Isolation, ...]:
    """What a user may hope for, best first."""
    return tuple(Isolation) if uid == 0 else (Isolation.USER_NAMESPACES, Isolation.LANDLOCK)


def checker_command() -> list[str]:
    """The command of a checker's process; it takes a job on its input."""
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r})\n"
        "from rl_bench.execution.checker_process import main; main()"
    )
    # -S: nothing installed takes part, and the start is quick.
    return [sys.executable, "-I", "-S", "-c", code]


def _run(job: Job) -> Verdict:
    limit_s = START_LIMIT_S + job.limits.timeout_s + GRACE_S
    try:
        done = subprocess.run(
            checker_command(),
            input=write_job(job),
            capture_output=True,
            text=True,
            timeout=limit_s,
            env={},
        )
    except subprocess.TimeoutExpired:
        # A start that hangs ends by itself before that: it was the check that did not.
        return Verdict(outcome=Outcome.TIMED_OUT, error="the check did not end", seconds=limit_s)
    except OSError as error:
        raise EnvironmentFailure(f"no checker could be started: {error}") from error
    return _verdict(done.stdout, done.stderr)


def _verdict(output: str, errors: str) -> Verdict:
    try:
        fields = json.loads(output)
    except ValueError:
        raise EnvironmentFailure(f"the checker ended without a verdict: {errors[-300:]}") from None
    if "broken" in fields:
        raise EnvironmentFailure(f"no program could be started: {fields['broken']}")
    return Verdict(
        outcome=Outcome(fields["outcome"]), error=fields["error"], seconds=fields["seconds"]
    )
