"""What a start of Ray that fails or is interrupted looks like from outside."""

from collections.abc import Callable

import pytest

from actors.ray_runtime import ray_runtime
from rl_bench.config import ClusterConfig
from rl_bench.errors import GraderError

pytestmark = pytest.mark.ray


def raising(error: BaseException) -> Callable[..., None]:
    def init(**_: object) -> None:
        raise error

    return init


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_start_that_fails_is_one_error_with_a_cure(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", raising(ConnectionError("nobody answers\n")))
    with (
        pytest.raises(GraderError, match=r"Ray could not .*nobody answers. Look for"),
        ray_runtime(ClusterConfig(name="x", address=address)),
    ):
        raise AssertionError("it is not entered")


def test_a_start_that_is_asked_to_end_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", raising(SystemExit(15)))
    with pytest.raises(KeyboardInterrupt), ray_runtime(ClusterConfig(name="x")):
        raise AssertionError("it is not entered")
