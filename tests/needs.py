"""What some tests need beyond the lock file: they skip without it, or fail where it is promised."""

import os
import shutil

import pytest

PROMISED = "RL_BENCH_TEST_NEEDS"
"""Names, separated by spaces, of what this machine is said to have: its lack is then a failure."""


def needs(name: str, *, is_there: bool | None = None, cure: str = "") -> None:
    """Skips the calling test when ``name`` is missing; fails it when it was promised.

    Args:
        name: A program on ``PATH``, or any name when ``is_there`` is given.
        is_there: Whether it is here; None looks on ``PATH``.
        cure: How it is had.
    """
    found = shutil.which(name) is not None if is_there is None else is_there
    if found:
        return
    reason = f"{name} is not here" + (f": {cure}" if cure else "")
    if name in os.environ.get(PROMISED, "").split():
        pytest.fail(f"{reason}, although {PROMISED} names it")
    pytest.skip(reason)
