"""Runs a recorded run again: its revisions of the code, its commands, its submissions.

    python -m rl_bench.agents.replay

runs inside a workspace, like any agent. ``AGENT_SETTINGS`` holds ``run``, the recorded run's
folder, of which it reads `recording.json` and `code.git` only.
"""

import os
import sys

from rl_bench.agents.replay.recording import ReplayError
from rl_bench.agents.replay.session import Place, Replay


def main() -> int:
    """Replays; 0: every recorded score has its counterpart, 1: not all, 2: not set up properly."""
    try:
        report = Replay(Place.of(dict(os.environ))).run()
    except ReplayError as error:
        sys.stderr.write(f"replay: {error}\n")
        return 2
    sys.stdout.write(f"{report.table()}\n")
    if report.problem:
        sys.stderr.write(f"replay: {report.problem}\n")
    return 0 if report.is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
