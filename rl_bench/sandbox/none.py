"""No confinement: what that means is said, before a sweep and in each run's record."""

from rl_bench.sandbox.base import Launch, View


class NoSandbox:
    """The agent runs as the user that runs the sweep.

    Args:
        why: Why nothing better was to be had, for ``auto``.
    """

    kind = "none"
    version = ""

    def __init__(self, *, why: str = "") -> None:
        self._why = why

    def wrap(self, launch: Launch, view: View) -> Launch:
        """The command as it is."""
        return launch

    def warnings(self) -> tuple[str, ...]:
        warnings = (
            "sandbox=none: the agent can read every file of this user, test data, other runs and "
            "keys on disk among them",
            "sandbox=none: the agent can write through to shared files and reach the network",
        )
        return (f"sandbox=none: {self._why}", *warnings) if self._why else warnings
