"""One sweep, whose driver is killed at 20, 60 and 90 % of its runs, once more while it comes up.

All is real but for the engine: `actors/test_end_to_end` and chaos kill drivers above a real one.
"""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.chaos_sweep import Census, LiveSweep, agent_overrides
from benchmarks.invariants import breaches, count, figures

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NUM_RUNS = 10
LIMIT_S = 200.0


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[LiveSweep]:
    census = Census(tmp_path)
    words = [*agent_overrides(num_runs=NUM_RUNS, num_items=3, alike=True), "sink=no_wandb"]
    yield LiveSweep(
        tmp_path,
        "killed",
        census=census,
        overrides=[*words, "cluster.num_cpus=4"],
        module="tests.survival.toy_engine",
    )
    census.end_all()


def is_done(sweep: LiveSweep, share: float) -> bool:
    return sweep.share_done() >= share


def kill(sweep: LiveSweep) -> None:
    sweep.signal_driver(signal.SIGKILL)
    assert sweep.wait(limit_s=30) == -signal.SIGKILL


def test_a_driver_that_is_killed_again_and_again_finishes_its_sweep(sweep: LiveSweep) -> None:
    finished: dict[str, bytes] = {}
    for share in (0.2, 0.6, 0.9):
        sweep.start()
        sweep.wait_until(partial(is_done, sweep, share), limit_s=LIMIT_S)
        kill(sweep)
        sweep.start()  # its heir dies at once, while what the first one left is still ending
        time.sleep(1.0)
        kill(sweep)
        for ledger in sweep.paths.runs.glob("*/ledger.jsonl"):
            text = ledger.read_bytes()
            assert text.startswith(finished.get(ledger.parent.name, b"")), ledger
            if b'"final":true' in text:
                assert finished.setdefault(ledger.parent.name, text) == text, "run again"
    sweep.start()
    assert sweep.wait(limit_s=LIMIT_S) == 0, sweep.tail()

    before = sweep.lines()
    sweep.start()
    assert sweep.wait(limit_s=LIMIT_S) == 0
    assert sweep.lines() == before
    assert not sweep.census.left_after()

    ids = sweep.run_ids()
    assert len(ids) == NUM_RUNS
    broken = breaches(sweep.paths, answers=sweep.answers, run_ids=ids)
    assert not any(broken.values()), broken
    counts = count(sweep.paths, answers=sweep.answers, run_ids=ids)
    assert counts.num_attempts > NUM_RUNS, "kills hit runs under way"
    assert counts.num_acknowledged >= 2 * NUM_RUNS
    alike: dict[tuple[str, str], set[object]] = {}
    for (_, name, task), found in figures(sweep.paths, ids).items():
        alike.setdefault((name, task), set()).add(found)
    assert len(alike) == 2 * 3
    assert all(len(each) == 1 for each in alike.values()), "equal checkpoints, equal figures"
