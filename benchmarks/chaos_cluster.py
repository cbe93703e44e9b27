"""A Ray cluster on this machine, of several raylets, and the loss of one of its nodes."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from benchmarks.chaos_sweep import CHECKOUT

START_S = 180.0
NODE: Mapping[str, float] = {"grader": 1, "rollout": 2, "trainer": 3}
"""What a node has for actors that are placed by kind; either node could hold everything."""
RESOURCES = """
import json, sys, time
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
deadline = time.monotonic() + float(sys.argv[2])
while True:
    total, free = ray.cluster_resources(), ray.available_resources()
    held = {k: v - free.get(k, 0.0) for k, v in total.items() if ":" not in k and "memory" not in k}
    if not any(held.values()) or time.monotonic() > deadline:
        break
    time.sleep(0.5)
print(json.dumps({name: amount for name, amount in held.items() if amount}))
"""

FLAG = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class LocalCluster:
    """A head without CPUs, and nodes, each of them a `ray start` of its own.

    Args:
        folder: Of Ray's files and the logs; short, for sockets lie below it.

    Attributes:
        address: What ``cluster.address=`` takes.
        environment: Of whoever joins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{_free_port()}"
        self.environment = {
            "PYTHONPATH": str(CHECKOUT),
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            FLAG: "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node is given up sooner than in a cloud, where a network may only be slow.
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "10",
        }
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        port = self.address.rpartition(":")[2]
        head = (
            "--head",
            f"--port={port}",
            f"--temp-dir={self._folder / 'ray'}",
            "--include-dashboard=false",
        )
        try:
            self._start("head", {"head": 1}, *head, num_cpus=0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*reversed(self.nodes)]:
            self.kill_node(name)

    def add_node(self, name: str) -> None:
        """Starts a node with `NODE`; returns when it is up."""
        self._start(name, NODE, f"--address={self.address}", num_cpus=3)

    def kill_node(self, name: str) -> int:
        """SIGKILL to all that a node is, as when its power goes; how many processes that were."""
        family = self.processes(name)
        for process in family:
            with suppress(psutil.Error):
                process.kill()
        self.nodes[name].wait(timeout=30)
        return len(family)

    def processes(self, name: str) -> list[psutil.Process]:
        """A node's processes, its raylet's children among them."""
        with suppress(psutil.Error):
            root = psutil.Process(self.nodes[name].pid)
            return [root, *root.children(recursive=True)]
        return []

    def overrides(self) -> list[str]:
        """How a sweep joins it."""
        return [
            *("cluster=cloud", f"cluster.address={self.address}"),
            *("cluster.cpus_per_run=1", "cluster.gpus_per_run=0", "cluster.threads_per_run=1"),
        ]

    def held(self, *, limit_s: float = 60.0) -> dict[str, float]:
        """Resources that somebody still holds after that time; waits until all are free."""
        done = subprocess.run(
            [sys.executable, "-c", RESOURCES, self.address, str(limit_s)],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=START_S + limit_s,
            check=True,
        )
        # Ray prints the news of lost nodes too, before it.
        held: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return held

    def _start(self, name: str, resources: Mapping[str, float], *words: str, num_cpus: int) -> None:
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            self.nodes[name] = process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words),
                    *("--node-ip-address=127.0.0.1", f"--num-cpus={num_cpus}", "--num-gpus=0"),
                    f"--resources={json.dumps(dict(resources))}",
                    *("--object-store-memory=80000000", "--dashboard-agent-listen-port=0"),
                ],
                # Ray joins a node only with the flag; the address is stated, so none is replaced.
                env={**os.environ, **self.environment, FLAG: "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                process.send_signal(signal.SIGKILL)
                raise TimeoutError(f"node {name} does not come up: {log.read_text()[-2000:]}")
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
