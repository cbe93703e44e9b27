"""A program on a cluster: actors ask for kinds of nodes, tell where they are, and go again.

    python tests/actors/cluster_driver.py ADDRESS

Prints, as JSON in the last line, how many nodes there were before and are after, and of each actor
its node's resources and the GPUs that it sees.
"""

import json
import os
import sys
import time
from typing import Any

import ray

WAIT_S = 150.0
IDLE_S = 90.0
WANTED: dict[str, dict[str, Any]] = {
    "head": {"num_cpus": 0, "resources": {"head": 0.01}},
    "grader": {"num_cpus": 0, "num_gpus": 1, "resources": {"grader": 1}},
    "trainer_0": {"num_cpus": 16, "num_gpus": 4, "resources": {"trainer": 1}},
    "trainer_1": {"num_cpus": 16, "num_gpus": 4, "resources": {"trainer": 1}},
    "rollout_0": {"num_cpus": 0, "resources": {"rollout": 1}},
    "rollout_1": {"num_cpus": 0, "resources": {"rollout": 1}},
}


class Place:
    """Tells where it is."""

    def tell(self) -> tuple[str, str]:
        """Its node's id, and the GPUs that it sees."""
        return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _nodes() -> dict[str, dict[str, float]]:
    """The resources of each node that is up, by its id."""
    listed = ray.nodes()
    return {node["NodeID"]: node["Resources"] for node in listed if node["Alive"]}


def _main(address: str) -> None:
    ray.init(address=address, log_to_driver=False)
    before = len(_nodes())
    actors: dict[str, Any] = {
        name: ray.remote(Place).options(**options).remote() for name, options in WANTED.items()
    }
    told = ray.get([actor.tell.remote() for actor in actors.values()], timeout=WAIT_S)
    nodes = _nodes()
    places = {
        name: {"node": node, "gpus": gpus, "resources": nodes[node]}
        for name, (node, gpus) in zip(actors, told, strict=True)
    }
    for actor in actors.values():
        ray.kill(actor)
    deadline = time.monotonic() + IDLE_S
    while len(_nodes()) > before and time.monotonic() < deadline:
        time.sleep(1)
    json.dump({"before": before, "after": len(_nodes()), "places": places}, sys.stdout)


if __name__ == "__main__":
    _main(sys.argv[1])
