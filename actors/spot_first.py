"""Which node type the cluster's autoscaler starts next: spot first, on demand where spot fails.

Ray asks `score` for each type that fits (`RAY_AUTOSCALER_UTILIZATION_SCORER`, set by cluster.yaml
on the head) and starts the highest. Ray's own order takes what fits best and is blind to starts
that failed, so that of two equal types it asks for the same one for as long as that one fails.
Types come in pairs, `X_spot` and `X_on_demand`, with equal resources.
"""

from typing import NamedTuple

from ray.autoscaler._private.node_provider_availability_tracker import NodeAvailabilitySummary
from ray.autoscaler._private.resource_demand_scheduler import _resource_based_utilization_scorer
from ray.autoscaler._private.util import ResourceDict

SPOT = "_spot"


class Score(NamedTuple):
    """Compared part by part, the highest wins."""

    fit: tuple[bool, int, float, float]
    is_available: bool
    is_spot: bool


def score(
    node_resources: ResourceDict,
    resources: list[ResourceDict],
    node_type: str,
    *,
    node_availability_summary: NodeAvailabilitySummary,
) -> Score | None:
    """Rates one node type for what is asked for.

    Args:
        node_resources: What a node of the type offers.
        resources: What actors ask for.
        node_type: Its name.
        node_availability_summary: How the last start of each type went, as far as Ray remembers:
            half an hour, after which a type counts as available again.

    Returns:
        None: nothing of it fits.
    """
    fit = _resource_based_utilization_scorer(
        node_resources, resources, node_availability_summary=node_availability_summary
    )
    if fit is None:
        return None
    known = node_availability_summary.node_availabilities.get(node_type)
    return Score(
        fit=fit,
        is_available=known is None or known.is_available,
        is_spot=node_type.endswith(SPOT),
    )
