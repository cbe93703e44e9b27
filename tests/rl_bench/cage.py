"""An agent's workspace in a sandbox, and what goes on in it, for tests."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_bench.config import SandboxConfig
from rl_bench.process import tree
from rl_bench.process.agent_process import AgentExit, AgentProcess
from rl_bench.sandbox.base import Forward, Launch, View
from rl_bench.sandbox.choose import make_sandbox
from tests.needs import needs

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
Kind = Literal["bwrap", "none"]

DETACHED = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if "deaf" in sys.argv:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        open("code/pid", "w").write(f"{os.getpid()}\\n")
        while True:
            "busy" in sys.argv or time.sleep(0.05)
    os._exit(0)
os.wait()
"""
"""Leaves a process behind that has a session of its own and no parent."""


@dataclass(frozen=True, slots=True)
class Cage:
    """A run's folder with a workspace; ``kind`` confines what is started in it."""

    run: Path
    kind: Kind

    @property
    def workspace(self) -> Path:
        return self.run / "workspace"

    @property
    def code(self) -> Path:
        return self.workspace / "code"

    @property
    def stdout(self) -> Path:
        return self.run / "logs" / "stdout"

    @property
    def stderr(self) -> Path:
        return self.run / "logs" / "stderr"

    def view(
        self,
        *,
        forwards: tuple[Forward, ...] = (),
        read_only: tuple[Path, ...] = (),
        devices: tuple[Path, ...] = (),
    ) -> View:
        """What the agent sees."""
        return View(
            workspace=self.workspace,
            home=self.workspace / ".home",
            tmp=self.workspace / ".tmp",
            protected=(self.workspace / "data", self.workspace / "models"),
            forwards=forwards,
            read_only=read_only,
            devices=devices,
        )

    def start(
        self,
        *argv: str,
        env: Mapping[str, str] = ENV,
        forwards: tuple[Forward, ...] = (),
        read_only: tuple[Path, ...] = (),
        devices: tuple[Path, ...] = (),
        grace_s: float = 0.3,
        on_live_children: Literal["kill", "wait"] = "kill",
        max_processes: int | None = None,
        max_memory_bytes: int | None = None,
    ) -> AgentProcess:
        """Starts ``argv`` in the workspace."""
        launch = make_sandbox(SandboxConfig(name=self.kind)).wrap(
            Launch(argv=argv, env=env, cwd=self.workspace),
            self.view(forwards=forwards, read_only=read_only, devices=devices),
        )
        return AgentProcess.start(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdout=self.stdout,
            stderr=self.stderr,
            grace_s=grace_s,
            is_wrapped=launch.is_wrapped,
            on_live_children=on_live_children,
            max_processes=max_processes,
            max_memory_bytes=max_memory_bytes,
        )

    def run_to_end(self, *argv: str, env: Mapping[str, str] = ENV) -> str:
        """Runs ``argv``, which must succeed; its output."""
        exit_ = finish(self.start(*argv, env=env))
        assert exit_.exit_code == 0, (exit_, self.stderr.read_text())
        return self.stdout.read_text()


def make_cage(folder: Path, kind: Kind, *, name: str = "run") -> Cage:
    """A fresh workspace below ``folder``; skips the test where the sandbox does not work."""
    if kind == "bwrap":
        needs("bwrap")
    cage = Cage(run=(folder / "sweep" / "runs" / name).resolve(), kind=kind)
    for inner in ("code", "data", "models", "output", ".home", ".tmp"):
        (cage.workspace / inner).mkdir(parents=True)
    (cage.workspace / "data" / "train.jsonl").write_text("{}\n")
    return cage


def countdown(seconds: float) -> Callable[[], float]:
    deadline = time.monotonic() + seconds
    return lambda: max(0.0, deadline - time.monotonic())


def finish(agent: AgentProcess, *, budget_s: float = 30.0, grace_s: float = 0.3) -> AgentExit:
    return agent.wait(remaining_s=countdown(budget_s), grace_s=grace_s)


def wait_for(condition: Callable[[], bool], *, limit_s: float = 15.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def living(agent: AgentProcess) -> set[int]:
    """All processes below its supervisor now; the set that must be gone afterwards."""
    return set(tree.descendants(agent.supervisor_pid))


def none_left(pids: set[int]) -> bool:
    """Whether none of ``pids`` is there, not even as a zombie of ours."""
    return not any(pid in tree.parents() for pid in pids)


def is_root() -> bool:
    return os.geteuid() == 0
