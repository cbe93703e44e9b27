"""What an environment raises when it, not the player, is at fault."""


class EnvironmentBroken(Exception):  # noqa: N818  names a state, like the callers' EnvironmentFailure
    """The environment cannot go on: a broken game file, a failing engine, a missing package.

    Never raised for an illegal action: that is answered with an observation.
    """
