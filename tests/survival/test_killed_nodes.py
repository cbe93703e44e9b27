"""A cluster of three raylets on this machine loses the node of its grader, twice in a row.

All is real but for the engine; chaos loses nodes with a real one.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.chaos_cluster import LocalCluster
from benchmarks.chaos_sweep import KINDS, Census, LiveSweep, agent_overrides, title
from benchmarks.invariants import breaches, count

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NUM_RUNS = 6
LIMIT_S = 200.0


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    folder = Path(tempfile.mkdtemp(prefix="rb-"))  # short: sockets below it have at most 107 bytes
    with LocalCluster(folder) as cluster:
        cluster.add_node("a")
        cluster.add_node("b")
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def sweep(tmp_path: Path, cluster: LocalCluster) -> Iterator[LiveSweep]:
    census = Census(tmp_path)
    words = [*agent_overrides(num_runs=NUM_RUNS, num_items=3), "sink=no_wandb"]
    yield LiveSweep(
        tmp_path,
        "nodes",
        census=census,
        overrides=[*words, *cluster.overrides()],
        environment=cluster.environment,
        module="tests.survival.toy_engine",
    )
    census.end_all()


def is_done(sweep: LiveSweep, share: float) -> bool:
    return sweep.share_done() >= share


def has(cluster: LocalCluster, node: str, kind: str) -> bool:
    return any(re.match(KINDS[kind], title(process)) for process in cluster.processes(node))


def test_nodes_that_are_lost_lose_no_result(cluster: LocalCluster, sweep: LiveSweep) -> None:
    sweep.start()
    for share, heir in ((0.2, "c"), (0.6, "d")):
        sweep.wait_until(partial(is_done, sweep, share), limit_s=LIMIT_S)
        [node] = [name for name in cluster.nodes if has(cluster, name, "grader")]
        assert cluster.kill_node(node) > 5
        del cluster.nodes[node]
        cluster.add_node(heir)
    assert sweep.wait(limit_s=LIMIT_S) == 0, sweep.tail()

    ids = sweep.run_ids()
    broken = breaches(sweep.paths, answers=sweep.answers, run_ids=ids)
    assert not any(broken.values()), broken
    assert count(sweep.paths, answers=sweep.answers, run_ids=ids).num_acknowledged >= 2 * NUM_RUNS
    assert cluster.held() == {}, "every lease was returned"
    assert not sweep.census.left_after()
