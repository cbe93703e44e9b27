"""A cloud on this machine: Ray's own provider of local nodes, where some types are sold out."""

import os

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.tags import TAG_RAY_USER_NODE_TYPE

SOLD_OUT = "RL_BENCH_TEST_SOLD_OUT"
"""Node types, separated by spaces, that cannot be had."""


class LocalCloud(FakeMultiNodeProvider):
    """Starts a raylet for each node, with the resources of its type."""

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, object],
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],
        labels: dict[str, str],
    ) -> None:
        """Starts nodes of one type, or refuses to as AWS does."""
        kind = tags[TAG_RAY_USER_NODE_TYPE]
        if kind in os.environ[SOLD_OUT].split():
            raise NodeLaunchException("InsufficientInstanceCapacity", f"no {kind}", None)
        start = super().create_node_with_resources_and_labels
        start(node_config, tags, count, resources, labels)  # type: ignore[no-untyped-call]  # Ray's
