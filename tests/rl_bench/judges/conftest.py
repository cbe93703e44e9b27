"""A judge that answers by a rule, on a port of its own."""

from collections.abc import Iterator

import pytest

from tests.rl_bench.judges.scene import is_odd
from tests.rl_bench.judges.stand_in import StandInJudge


@pytest.fixture
def judge() -> Iterator[StandInJudge]:
    with StandInJudge(is_odd) as stand_in:
        yield stand_in
