"""Work in other processes: results in order, and an end in the middle that tells where it was."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from analysis.errors import WorkerError
from analysis.workers import MOST, num_usable, workers

ROOT = Path(__file__).resolve().parents[2]


def _square(number: int) -> int:
    return number * number


def _end_at_three(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number


def _refuse(number: int) -> int:
    raise ValueError(f"no {number}")


def _threads(_number: int) -> str | None:
    return os.environ.get("POLARS_MAX_THREADS")


def _name(number: int) -> str:
    return f"number {number}"


@pytest.mark.parametrize("num", [1, 2])
def test_results_come_in_the_order_of_the_work(num: int) -> None:
    with workers(num) as by:
        assert by.num == num
        assert list(by.map(_square, range(20), name=_name)) == [n * n for n in range(20)]


def test_a_process_that_ends_is_told_with_what_it_was_at() -> None:
    with workers(2) as by, pytest.raises(WorkerError, match=r"at number [0-3] or soon after"):
        list(by.map(_end_at_three, range(4), name=_name))


GIVES_WORK = """
import os, sys, time
from analysis.workers import workers

def pid(number):
    time.sleep(0.5)  # so that both get some
    return os.getpid()

if __name__ == "__main__":
    with workers(2) as by:
        print(*set(by.map(pid, range(4), name=str)), flush=True)
        time.sleep(600)
"""


def test_workers_end_with_who_gives_them_work(tmp_path: Path) -> None:
    script = tmp_path / "gives.py"
    script.write_text(GIVES_WORK)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as giver:
        assert giver.stdout is not None
        children = [psutil.Process(int(word)) for word in giver.stdout.readline().split()]
        giver.kill()
    assert children
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


INTERRUPTED = """
import os, signal, sys, time
from analysis import workers as module
from analysis.workers import workers

def long(number):
    time.sleep(60)

class Pool(module.ProcessPoolExecutor):
    def submit(self, *args):
        if sys.argv[1] == "before":
            signal.raise_signal(signal.SIGINT)
        future = super().submit(*args)
        if sys.argv[1] == "after":
            signal.raise_signal(signal.SIGINT)
        return future

if __name__ == "__main__":
    module.ProcessPoolExecutor = Pool
    try:
        with workers(2) as by:
            jobs = by.map(long, range(4), name=str)
            signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        import multiprocessing
        print("interrupted", multiprocessing.active_children())
"""


@pytest.mark.timeout(50)
@pytest.mark.parametrize("when", ["before", "after", "at work"])
def test_an_interrupt_ends_workers_at_once_also_while_they_start(tmp_path: Path, when: str) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, script, when],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("interrupted []\n", "")


@pytest.mark.parametrize("num", [1, 2])
def test_an_error_comes_as_it_was(num: int) -> None:
    with workers(num) as by, pytest.raises(ValueError, match="no 5"):
        list(by.map(_refuse, [5], name=_name))


def test_each_process_has_one_thread_of_polars_and_this_one_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "5")
    with workers(2) as by:
        assert list(by.map(_threads, [0], name=_name)) == ["1"]
    assert os.environ["POLARS_MAX_THREADS"] == "5"


def test_no_more_processes_than_cores_and_never_many() -> None:
    assert 1 <= num_usable() <= min(MOST, os.cpu_count() or 1)
