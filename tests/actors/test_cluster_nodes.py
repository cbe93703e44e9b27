"""cluster.yaml's node types on this machine: a real Ray head with its autoscaler, real raylets.

Ray's own provider of local nodes stands in for the cloud. Everything else is what the head of a
cluster runs: the same autoscaler, the same order of node types, the same token.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from ray.autoscaler._private.fake_multi_node.node_provider import (
    FAKE_HEAD_NODE_ID,
    FAKE_HEAD_NODE_TYPE,
)

from tests.actors.cluster_provider import SOLD_OUT

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
START_S = 60.0
Address = tuple[str, dict[str, str]]


def _local(config: dict[str, Any], address: str) -> dict[str, Any]:
    """The cluster's file with this machine in the place of the cloud."""
    types = config["available_node_types"]
    types[FAKE_HEAD_NODE_TYPE] = types.pop(config["head_node_type"])
    for kind in types.values():
        kind["node_config"] = {}
        # Of this machine's memory, which all the nodes share.
        kind["resources"]["object_store_memory"] = 80_000_000
    return config | {
        "head_node_type": FAKE_HEAD_NODE_TYPE,
        "idle_timeout_minutes": 0.3,
        "auth": {},
        "file_mounts": {},
        "provider": {
            "type": "external",
            "module": "tests.actors.cluster_provider.LocalCloud",
            "gcs_address": address,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "use_node_id_as_ip": True,  # they all have one address
        },
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def run_cluster() -> Iterator[Address]:
    """A head with nothing else; its address, and the environment of whoever joins it."""
    address = f"127.0.0.1:{_free_port()}"
    folder = Path(tempfile.mkdtemp(prefix="rb-"))  # short: sockets below it have at most 107 bytes
    config = _local(yaml.safe_load((ROOT / "cluster.yaml").read_text()), address)
    (folder / "cluster.yaml").write_text(yaml.safe_dump(config))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_autoscaler_v2": "0",
        "RAY_AUTOSCALER_UTILIZATION_SCORER": "actors.spot_first.score",
    }
    of_head = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
        SOLD_OUT: "trainer_spot",
    }
    log = (folder / "head.log").open("w")
    head = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"),
            *("--num-cpus=0", "--num-gpus=0", '--resources={"head": 1}'),
            *("--include-dashboard=false", "--object-store-memory=80000000"),
            *(f"--temp-dir={folder / 'ray'}", f"--autoscaling-config={folder / 'cluster.yaml'}"),
        ],
        env=environment | of_head,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log.close()
    try:
        _wait_until_up(address, head, log=folder / "head.log")
        yield address, environment
    finally:
        _end(head)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[Address]:
    """A cluster for one test; see `run_cluster`."""
    with run_cluster() as address:
        yield address


def _wait_until_up(address: str, head: subprocess.Popen[bytes], *, log: Path) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and head.poll() is None:
        if "Ray runtime started" in log.read_text():
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def _end(head: subprocess.Popen[bytes]) -> None:
    """Ends the head and whatever came of it; its nodes are children of its autoscaler."""
    family = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
    head.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=10)
    for process in alive:
        process.kill()
    head.kill()
    head.wait()


@pytest.mark.timeout(900)
def test_nodes_come_for_actors_that_ask_and_go_after_them() -> None:
    # Ray's local provider never asks again for a node that a busy machine was too slow to start.
    for _ in range(2):
        with run_cluster() as (address, environment):
            done = subprocess.run(
                [sys.executable, str(ROOT / "tests/actors/cluster_driver.py"), address],
                env=environment,
                capture_output=True,
                text=True,
                timeout=360,
                check=False,
            )
        if done.returncode == 0:
            break

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])  # before it, Ray's news of nodes that went
    places = found["places"]
    assert found["before"] == 1  # from zero: nothing but the head
    for name, place in places.items():
        assert name.split("_")[0] in place["resources"], (name, place)
    assert places["trainer_0"]["node"] != places["trainer_1"]["node"]  # GPUs of its own
    assert places["rollout_0"]["node"] == places["rollout_1"]["node"]
    assert places["trainer_0"]["gpus"] == places["trainer_1"]["gpus"] == "0,1,2,3"
    assert places["grader"]["gpus"] == "0"
    assert found["after"] == 1  # back to zero


def test_a_stranger_is_not_let_in(cluster: Address) -> None:
    address, environment = cluster

    done = subprocess.run(
        [sys.executable, "-c", f"import ray; ray.init(address={address!r})"],
        env=environment | {"RAY_AUTH_TOKEN": "guessed"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode != 0
    assert "uthenticat" in done.stderr
