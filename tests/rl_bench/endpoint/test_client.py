"""What the client reads from headers and addresses."""

import time
from email.utils import formatdate

import pytest

from rl_bench.endpoint.client import _retry_after_s
from rl_bench.gateway.reach import is_loopback


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("0", None),
        ("-3", None),
        ("soon", None),
        ("", None),
        ("inf", None),
    ],
)
def test_a_pause_in_seconds(value: str, seconds: float | None) -> None:
    assert _retry_after_s({"retry-after": value}) == seconds
    assert _retry_after_s({}) is None


def test_a_pause_until_a_date() -> None:
    pause = _retry_after_s({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert pause is not None
    assert 55 < pause <= 61
    assert _retry_after_s({"retry-after": formatdate(0, usegmt=True)}) is None


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://10.0.0.3/v1", False),
    ],
)
def test_this_machine_is_known(url: str, is_local: bool) -> None:
    assert is_loopback(url) is is_local
