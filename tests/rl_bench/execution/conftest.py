"""What this machine offers to keep programs apart."""

import pytest

from rl_bench.errors import EnvironmentFailure, PreflightError
from rl_bench.execution.base import FunctionTest, Isolation, Limits
from rl_bench.execution.checker import ProcessChecker, best_isolation

EASY = FunctionTest(preamble="", code="def check(f):\n    assert f(1) == 2", entry_point="f")


@pytest.fixture(scope="session")
def best() -> Isolation:
    """The isolation that tasks use here."""
    try:
        return best_isolation()
    except PreflightError as error:
        pytest.skip(f"nothing keeps a program apart here: {error.message}")


@pytest.fixture(scope="session", params=list(Isolation), ids=lambda isolation: isolation.value)
def isolation(request: pytest.FixtureRequest) -> Isolation:
    """Every isolation that works here."""
    isolation: Isolation = request.param
    try:
        ProcessChecker(limits=Limits(), isolation=isolation).check("def f(x): return 2", EASY)
    except EnvironmentFailure as error:
        pytest.skip(f"this machine has no {isolation.value}: {error.message}")
    return isolation
