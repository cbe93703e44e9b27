"""The agent's process and all that watches it, from its first start until nothing of it lives.

    view      what the agent sees, and the services that are forwarded into its sandbox
    process   started, waited for, started again when its background work has ended, ended
    watches   its output, its code and its processes, told to the ledger as they happen

`rl_bench.run` decides what comes before and after; how each part works is told by the module that
is named after it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl_bench.agents.program import read_only_folders
from rl_bench.agents.stream_watch import StreamWatch
from rl_bench.checkpoint_files import file_homes
from rl_bench.clock import RunClock
from rl_bench.disk_watch import DiskWatch
from rl_bench.driver_link import DriverLink
from rl_bench.errors import LedgerError
from rl_bench.events import AgentExited, AgentStarted, Event, SandboxReady
from rl_bench.instructions import go_on
from rl_bench.ledger import EventLog
from rl_bench.paths import RunPaths
from rl_bench.process.agent_process import AgentExit, AgentProcess, tail
from rl_bench.process.census import Census
from rl_bench.sandbox.base import Forward, Launch, Sandbox, View
from rl_bench.sandbox.gpus import gpu_devices
from rl_bench.workspace import Workspace

MAX_SESSIONS = 20
"""How often an agent is started in one attempt."""
MIN_LEFT_S = 10.0
"""With less budget left it is not started again."""
CAP_GRACE_S = 60.0
"""After its driver's cap an agent has this long to end by itself."""
GIB = 1024**3
MAX_PATH_CHARS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """One attempt's agent. Everything it needs is open already.

    Attributes:
        stream: Watches its output; not started yet.
        grading: Its grading API's URL, and how a sandbox reaches it.
        agents_dir: Where the agents' CLIs are installed.
        warn: Takes a topic and words.
    """

    workspace: Workspace
    paths: RunPaths
    clock: RunClock
    ledger: EventLog
    sandbox: Sandbox
    driver: DriverLink
    stream: StreamWatch
    grading_url: str
    grading: Forward
    disk: DiskWatch
    agents_dir: Path
    num_threads: int
    warn: Callable[[str, str], None]

    def run(self) -> AgentExit:
        """Starts the agent and waits until nothing of it is left; its last session's end.

        Raises:
            WorkspaceError: Its files could not be written, or its supervisor not be started.
            SandboxError: The sandbox refuses what it must show.
        """
        self.ledger.append(
            SandboxReady(
                kind=self.sandbox.kind,
                version=self.sandbox.version,
                warnings=self.sandbox.warnings(),
            )
        )
        self.workspace.start_clock(self.clock)
        with self.stream:
            for session in range(MAX_SESSIONS):
                exit_ = self._session(session)
                if not self._goes_on(exit_):
                    break
                self.stream.forget_result()
        return exit_

    def _session(self, number: int) -> AgentExit:
        spec, stream = self.workspace.spec, self.stream
        launch = self._launch(number)
        wrapped = self.sandbox.wrap(launch, self._view(launch))
        memory_gib = spec.sandbox.max_memory_gib
        process = AgentProcess.start(
            wrapped.argv,
            env=wrapped.env,
            cwd=wrapped.cwd,
            stdout=self.paths.logs / "agent.stdout",
            stderr=self.paths.logs / "agent.stderr",
            grace_s=spec.budget.kill_grace_s,
            is_wrapped=wrapped.is_wrapped,
            on_live_children="kill" if spec.agent.on_live_children == "kill" else "wait",
            max_processes=spec.sandbox.max_processes,
            max_memory_bytes=None if memory_gib is None else int(memory_gib * GIB),
        )
        try:
            self.ledger.append(AgentStarted(pid=process.pid, argv=launch.argv, session=number))
            with Census(
                process.supervisor_pid,
                ignore=process.wrapper_pids,
                used_s=lambda: self.clock.used_s,
                on_seen=self._tell,
            ):
                exit_ = process.wait(
                    remaining_s=lambda: self.clock.remaining_s,
                    grace_s=spec.budget.kill_grace_s,
                    should_abort=self._must_stop,
                    on_stall=self._note_stall,
                    is_done=lambda: stream.since_result_s is not None,
                    linger_s=spec.agent.linger_s,
                )
        except BaseException:
            process.stop(grace_s=0.0)
            raise
        stream.poll()
        self._record(exit_, final_event=stream.since_result_s is not None)
        return exit_

    def _launch(self, number: int) -> Launch:
        message = "" if number == 0 else go_on(remaining_s=self.clock.remaining_s)
        return self.workspace.launch(
            self.grading_url,
            agents_dir=self.agents_dir,
            driver_url=self.driver.url,
            num_threads=self.num_threads,
            message=message,
        )

    def _goes_on(self, exit_: AgentExit) -> bool:
        """Whether the agent is to be told that what it had left running has ended."""
        return (
            self.workspace.spec.agent.on_live_children == "resume"
            and exit_.num_live_children > 0
            and exit_.exit_code == 0
            and exit_.cause is None
            and self.clock.remaining_s > MIN_LEFT_S
        )

    def _must_stop(self) -> bool:
        return self.disk.is_full() or self.driver.is_capped_for(CAP_GRACE_S)

    def _view(self, launch: Launch) -> View:
        workspace = self.workspace
        agent = workspace.spec.agent
        # A large base model is a link out of the workspace.
        base = workspace.base_model if workspace.model.is_symlink() else None
        return View(
            workspace=workspace.root,
            home=workspace.home,
            tmp=workspace.tmp,
            protected=(workspace.data, workspace.model.parent),
            read_only=(
                *read_only_folders(agent, self.agents_dir),
                *_named_files(launch.argv, outside=workspace.root),
                *((base, *file_homes(base)) if base is not None else ()),
            ),
            forwards=(self.grading, *self.driver.forwards),
            devices=gpu_devices(),
        )

    def _record(self, exit_: AgentExit, *, final_event: bool) -> None:
        self.ledger.append(
            AgentExited(
                exit_code=exit_.exit_code,
                killed=exit_.killed,
                budget_used_s=self.clock.used_s,
                reason=exit_.reason,
                num_survivors_killed=exit_.num_survivors_killed,
                num_live_children=exit_.num_live_children,
                children_wait_s=exit_.children_wait_s,
                final_event=final_event,
                stderr_tail=tail(self.paths.logs / "agent.stderr"),
            )
        )

    def _tell(self, event: Event) -> None:
        with suppress(LedgerError):  # the watch goes on; the run sees the error at its next entry
            self.ledger.append(event)

    def _note_stall(self, seconds: float) -> None:
        self.warn("stall", f"the agent has neither written nor computed for {seconds:.0f} s")


def _named_files(argv: tuple[str, ...], *, outside: Path) -> tuple[Path, ...]:
    """Files that a command names by an absolute path, e.g. a script of the user's."""
    paths = [Path(word) for word in argv if word.startswith("/") and len(word) < MAX_PATH_CHARS]
    return tuple(
        path.resolve() for path in paths if path.is_file() and not path.is_relative_to(outside)
    )
