"""The sandbox tried out by an agent of bad intent, in a throw-away workspace, before a sweep.

What it must not get is really there: a neighbour run's ledger, a listening port, an abstract
socket, and whatever the caller names.
"""

import json
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rl_bench.agents import leak_probe
from rl_bench.agents.leak_probe import Result as ProbeResult
from rl_bench.agents.leak_probe import Targets
from rl_bench.errors import SandboxError
from rl_bench.process.agent_process import AgentProcess, tail
from rl_bench.sandbox.base import PYTHON, Launch, Sandbox, View
from rl_bench.sandbox.bubblewrap import EVALUATION_DATA

LIMIT_S = 30.0
MAX_OUTPUT_BYTES = 1_000_000


def self_test(
    sandbox: Sandbox, targets: Targets, *, folder: Path | None = None
) -> list[ProbeResult]:
    """What an agent in ``sandbox`` tried to get, and what it got; takes well under a second.

    Args:
        sandbox: What confines it.
        targets: What must not be had, beside what every machine has.
        folder: Gets the workspace, and is empty of it afterwards: the results' folder, so that
            the test meets what runs will meet. None: the folder for temporary files.

    Raises:
        SandboxError: The sandbox or the test did not work.
        OSError: ``folder`` cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rl_bench-self-test-") as name:
        sweep = Path(name).resolve() / "sweep"
        secrets = _plant(sweep)
        with _listeners() as port:
            wanted = Targets(
                paths=(*targets.paths, *map(str, secrets), *_packaged()),
                ports=(*targets.ports, port),
                variables=targets.variables,
            )
            return _probe(sandbox, wanted, sweep / "runs" / "probe")


def leaks(results: list[ProbeResult]) -> list[str]:
    """What was got, a phrase each."""
    return [f"{result.tried}: {result.got}" for result in results if result.leaked]


def _plant(sweep: Path) -> list[Path]:
    """A neighbour's files."""
    secrets = [sweep / "runs" / "other" / "ledger.jsonl", sweep / "snapshots" / "0" / "config.json"]
    for path in secrets:
        path.parent.mkdir(parents=True)
        path.write_text("{}\n")
    return secrets


@contextmanager
def _listeners() -> Iterator[int]:
    """A port on loopback, which is yielded, and an abstract socket."""
    with socket.socket() as port, socket.socket(socket.AF_UNIX) as abstract:
        port.bind(("127.0.0.1", 0))
        port.listen()
        abstract.bind(f"\0rl_bench-self-test-{uuid.uuid4().hex}")
        abstract.listen()
        yield port.getsockname()[1]


def _packaged() -> Iterator[str]:
    """Evaluation data that installed packages hold."""
    for package, name in EVALUATION_DATA:
        spec = find_spec(package)  # nothing of the package is imported
        if spec is not None and spec.origin is not None:
            yield from map(str, sorted((Path(spec.origin).parent / name).glob("*")))


def _probe(sandbox: Sandbox, targets: Targets, run: Path) -> list[ProbeResult]:
    workspace = run / "workspace"
    folders = {name: workspace / name for name in ("data", "models", ".home", ".tmp")}
    for path in folders.values():
        path.mkdir(parents=True)
    settings = {
        key: {str(number): value for number, value in enumerate(values)}
        for key, values in targets._asdict().items()
    }
    env = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(folders[".home"]),
        "TMPDIR": str(folders[".tmp"]),
        "WORKSPACE": str(workspace),
        "DATA_PATH": str(folders["data"]),
        "MODEL_PATH": str(folders["models"]),
        "AGENT_SETTINGS": json.dumps(settings),
    }
    launch = sandbox.wrap(
        Launch(argv=(PYTHON, "-I", "-S", leak_probe.__file__), env=env, cwd=workspace),
        View(
            workspace=workspace,
            home=folders[".home"],
            tmp=folders[".tmp"],
            protected=(folders["data"], folders["models"]),
        ),
    )
    agent = AgentProcess.start(
        launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        stdout=run / "stdout",
        stderr=run / "stderr",
        is_wrapped=launch.is_wrapped,
        grace_s=0.0,
    )
    deadline = time.monotonic() + LIMIT_S
    exit_ = agent.wait(remaining_s=lambda: deadline - time.monotonic(), grace_s=0.0)
    output = tail(run / "stdout", max_bytes=MAX_OUTPUT_BYTES)
    try:
        return [ProbeResult(**result) for result in json.loads(output)]
    except (ValueError, TypeError) as error:
        why = exit_.sandbox_error or exit_.start_error or tail(run / "stderr", max_bytes=500)
        raise SandboxError(f"the sandbox's self-test did not work: {why or exit_}") from error
