"""Right and wrong programs, what the test sees of them, and failures that are ours."""

import signal
import time

import pytest

from rl_bench.errors import EnvironmentFailure
from rl_bench.execution.base import FunctionTest, Isolation, Limits, Outcome, Verdict
from rl_bench.execution.checker import ProcessChecker, num_at_once, offered


def make_test(body: str, *, preamble: str = "") -> FunctionTest:
    code = "def check(candidate):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return FunctionTest(preamble=preamble, code=code, entry_point="f")


def check(program: str, body: str, *, preamble: str = "", timeout_s: float = 5.0) -> Verdict:
    checker = ProcessChecker(limits=Limits(timeout_s=timeout_s))
    return checker.check(program, make_test(body, preamble=preamble))


def test_a_right_program_passes_in_every_isolation(isolation: Isolation) -> None:
    checker = ProcessChecker(limits=Limits(), isolation=isolation)
    test = make_test("assert candidate(2, b=3) == {'sum': 5, 'parts': (2, 3)}")
    verdict = checker.check("def f(a, b): return {'sum': a + b, 'parts': (a, b)}", test)
    assert verdict.outcome is Outcome.PASSED, verdict


def test_the_standard_library_is_there(isolation: Isolation) -> None:
    names = "bz2 collections decimal hashlib heapq itertools json lzma math re sqlite3 ssl typing"
    program = (
        f"import {', '.join(names.split())}\n"
        "def f(text): return hashlib.sha3_256(text.encode()).hexdigest()[:4]"
    )
    verdict = ProcessChecker(limits=Limits(), isolation=isolation).check(
        program, make_test("assert candidate('') == 'a7ff'")
    )
    assert verdict.outcome is Outcome.PASSED, verdict


@pytest.mark.parametrize(
    ("program", "body", "outcome", "error"),
    [
        ("def f(x): return x", "assert candidate(1) == 2", Outcome.WRONG, "AssertionError"),
        ("def f(x): return x", "assert candidate(1) == 2, 'told'", Outcome.WRONG, "told"),
        ("def f(x): return None", "assert candidate(1) + 1 == 2", Outcome.WRONG, "TypeError"),
        ("def f(x): return 1 / 0", "candidate(1)", Outcome.ERROR, "ZeroDivisionError"),
        ("def f(): return 1", "candidate(1)", Outcome.ERROR, "TypeError"),
        ("def f(x): yield x", "candidate(1)", Outcome.ERROR, "generator is no plain data"),
        ("def f(x): return x\nimport numpy", "candidate(1)", Outcome.ERROR, "numpy"),
    ],
)
def test_how_programs_fail(
    best: Isolation, program: str, body: str, outcome: Outcome, error: str
) -> None:
    verdict = check(program, body)
    assert verdict.outcome is outcome
    assert error in verdict.error


def test_a_test_may_use_helpers_the_name_and_an_expected_exception(best: Isolation) -> None:
    body = (
        "assert candidate(double(2)) == f(4) == 5\n"
        "try:\n"
        "    candidate('x')\n"
        "except Exception as error:\n"
        "    assert 'TypeError' in str(error)\n"
        "else:\n"
        "    assert False"
    )
    preamble = "def double(x): return 2 * x"
    assert check("def f(x): return x + 1", body, preamble=preamble).outcome is Outcome.PASSED


def test_a_main_guard_does_not_run(best: Isolation) -> None:
    program = "def f(): return 1\nif __name__ == '__main__':\n    raise SystemExit"
    assert check(program, "assert candidate() == 1").outcome is Outcome.PASSED


def test_a_test_that_swallows_the_loss_of_its_program_does_not_pass(best: Isolation) -> None:
    body = "try:\n    candidate()\nexcept BaseException:\n    pass"
    verdict = check("import os\ndef f(): os._exit(0)", body)
    assert (verdict.outcome, verdict.error) == (Outcome.ERROR, "the program ended its process")


def test_arguments_are_copies(best: Isolation) -> None:
    body = "numbers = [1]\ncandidate(numbers)\nassert numbers == [1]"
    assert check("def f(numbers): numbers.clear()", body).outcome is Outcome.PASSED


def test_equal_programs_end_equally(best: Isolation) -> None:
    program = "def f(words): raise ValueError(list(set(words)))"
    body = "import random\ncandidate([str(random.random()) for _ in range(20)])"
    first, second = check(program, body), check(program, body)
    assert first.outcome is Outcome.ERROR
    assert first.error == second.error


def test_time_is_kept_from_the_programs_first_line(best: Isolation) -> None:
    started = time.monotonic()
    verdict = check("import time\ndef f(): time.sleep(60)", "candidate()", timeout_s=0.3)
    assert verdict.outcome is Outcome.TIMED_OUT
    assert 0.3 <= verdict.seconds < 30
    assert time.monotonic() - started < 45


def test_a_test_that_does_not_end_is_ended(best: Isolation) -> None:
    verdict = check("def f(): return 1", "while candidate(): pass", timeout_s=0.3)
    assert verdict.outcome is Outcome.TIMED_OUT


def test_a_parent_that_ignores_its_children_changes_nothing(best: Isolation) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert check("def f(): return 1", "assert candidate() == 1").outcome is Outcome.PASSED
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_start_that_fails_is_no_verdict(best: Isolation) -> None:
    checker = ProcessChecker(limits=Limits(memory_bytes=1 << 20), isolation=best)
    with pytest.raises(EnvironmentFailure, match="no program could be started"):
        checker.check("def f(): return 1", make_test("candidate()"))


async def test_many_at_once_keep_their_order_and_their_failures(best: Isolation) -> None:
    test = make_test("assert candidate() % 2 == 0")
    programs = [(f"def f(): return {number}", test) for number in range(5)]
    told: list[None] = []
    found = await ProcessChecker(limits=Limits()).check_all(
        [*programs, ("", test)], on_verdict=lambda: told.append(None)
    )
    assert len(told) == len(found)
    outcomes = [item.outcome for item in found if isinstance(item, Verdict)]
    assert outcomes == [Outcome.PASSED, Outcome.WRONG] * 2 + [Outcome.PASSED, Outcome.REFUSED]
    broken = ProcessChecker(limits=Limits(memory_bytes=1 << 20), isolation=best)
    [failure] = await broken.check_all([("def f(): return 2", test)])
    assert isinstance(failure, EnvironmentFailure)
    assert num_at_once() >= 1


def test_only_root_is_offered_privileged_namespaces() -> None:
    assert offered(0)[0] is Isolation.NAMESPACES
    assert Isolation.NAMESPACES not in offered(1000)


@pytest.mark.parametrize(
    "program",
    [
        "from dataclasses import dataclass\n@dataclass\nclass N:\n    v: 'int'\n    n: 'N' = None\n"
        "def f(x): return N(x).v + 1",
        "import pickle\nclass N: pass\ndef f(x):\n    n = N()\n    n.v = x + 1\n"
        "    return pickle.loads(pickle.dumps(n)).v",
        "from fractions import Fraction\ndef f(x): return Fraction(x + 1)",
        "from decimal import Decimal\ndef f(x): return Decimal(x) + 1",
    ],
)
def test_what_looks_up_its_module_or_counts_exactly_passes(best: Isolation, program: str) -> None:
    verdict = check(program, "assert candidate(1) == 2")
    assert verdict.outcome is Outcome.PASSED, verdict
