"""What a start of Ray that fails or is interrupted looks like from outside."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from actors.ray_runtime import _connect, ray_runtime
from rl_bench.config import ClusterConfig
from rl_bench.errors import GraderError
from rl_bench.waiting import told_while

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


def test_a_start_that_was_too_slow_is_made_again_without_what_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[subprocess.Popen[bytes]] = []

    def init(**_: object) -> None:
        if len(left) < 2:
            left.append(subprocess.Popen(["sleep", "600"]))
            raise Exception("The current node timed out during startup")

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("actors.ray_runtime.TOO_SLOW_S", 0.0)
    with ray_runtime(ClusterConfig(name="x")):
        assert [process.wait(timeout=10) for process in left] == [-signal.SIGKILL] * 2


def test_starts_on_one_machine_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    under_way, most = [0], [0]

    def init(**_: object) -> None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        time.sleep(0.02)
        under_way[0] -= 1

    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(_connect, [ClusterConfig(name="x")] * 8))
    assert most == [1]


def test_who_waits_for_another_start_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said: list[str] = []
    is_told = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        is_told.set()

    def connect() -> None:
        _connect(ClusterConfig(name="x"), say=say)

    with ThreadPoolExecutor(1) as threads:
        with FileLock(tmp_path / f"rl_bench-ray-start-{os.getuid()}.lock"):
            started = threads.submit(connect)
            assert is_told.wait(20)
            assert not started.done()
        started.result(20)
        threads.submit(connect).result(20)
    assert said == ["another process starts Ray on this machine: it comes first"]


@pytest.mark.parametrize(
    ("address", "told"),
    [(None, "starting Ray"), ("10.0.0.1:6379", "joining Ray at 10.0.0.1:6379")],
)
def test_a_start_is_told_of(
    address: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    is_late = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if "so far" in line:
            is_late.set()

    monkeypatch.setattr("ray.init", lambda **_: is_late.wait(20))
    monkeypatch.setattr("actors.ray_runtime.told_while", partial(told_while, first_s=0.01))
    with ray_runtime(ClusterConfig(name="x", address=address), say=say):
        pass
    assert said[0] == told
    assert said[1].startswith(f"{told}: ")


def test_a_start_that_is_asked_to_end_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.init", raising(SystemExit(15)))
    with pytest.raises(KeyboardInterrupt), ray_runtime(ClusterConfig(name="x")):
        raise AssertionError("it is not entered")
