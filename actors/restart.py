"""What an actor can know of its own past."""

import ray


def is_first_start() -> bool:
    """Whether the actor that this runs in was not made before: False after Ray started it again."""
    return not ray.get_runtime_context().was_current_actor_reconstructed
