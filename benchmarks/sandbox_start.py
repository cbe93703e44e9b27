"""What the sandbox adds to the start of an agent: ``true`` with and without it, in turns.

Each start is a whole one, supervisor and end included, as a run makes it; so the difference is what
bubblewrap and the first process in it cost, and the ratio what that is of a start.

    python -m benchmarks.sandbox_start
    python -m benchmarks.sandbox_start --starts 100
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rl_bench.config import SandboxConfig
from rl_bench.process.agent_process import AgentProcess
from rl_bench.sandbox.base import Launch, Sandbox, View
from rl_bench.sandbox.choose import make_sandbox

LIMIT_S = 60.0
CONFIGS = (SandboxConfig(name="none"), SandboxConfig(name="bwrap"))


def start_s(sandbox: Sandbox, workspace: Path) -> tuple[float, float]:
    """Seconds until ``true`` was started, and until nothing of it was left."""
    begin = time.monotonic()
    launch = sandbox.wrap(
        Launch(argv=("true",), env={"PATH": "/usr/bin:/bin"}, cwd=workspace),
        View(workspace=workspace, home=workspace / ".home", tmp=workspace / ".tmp"),
    )
    agent = AgentProcess.start(
        launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        stdout=workspace.parent / "stdout",
        stderr=workspace.parent / "stderr",
        is_wrapped=launch.is_wrapped,
    )
    started = time.monotonic()
    exit_ = agent.wait(remaining_s=lambda: begin + LIMIT_S - time.monotonic(), grace_s=0.0)
    if exit_.exit_code != 0:
        raise RuntimeError(f"{sandbox.kind}: {exit_}")
    return started - begin, time.monotonic() - begin


def main() -> int:
    """Runs the comparison and prints it."""
    parser = argparse.ArgumentParser(description="What the sandbox adds to an agent's start.")
    parser.add_argument("--starts", type=int, default=50, help="of each kind, one warm-up apart")
    starts: int = parser.parse_args().starts
    sandboxes = [make_sandbox(config) for config in CONFIGS]
    times = {sandbox.kind: list[tuple[float, float]]() for sandbox in sandboxes}
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(name).resolve() / "run" / "workspace"
        for inner in (".home", ".tmp"):
            (workspace / inner).mkdir(parents=True)
        for _ in range(starts + 1):
            for sandbox in sandboxes:
                times[sandbox.kind].append(start_s(sandbox, workspace))
    medians: dict[str, float] = {}
    for kind, found in times.items():
        begun, ended = (1000 * statistics.median(each[i] for each in found[1:]) for i in (0, 1))
        medians[kind] = begun
        sys.stdout.write(f"{kind:6} started {begun:6.1f} ms   ended {ended:6.1f} ms\n")
    added = medians["bwrap"] - medians["none"]
    ratio = medians["bwrap"] / medians["none"]
    sys.stdout.write(f"the sandbox adds {added:.1f} ms to a start: {ratio:.2f} times\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
