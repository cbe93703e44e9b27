"""The agent's process: started under a supervisor, watched, and ended with its whole tree.

Output goes to files, so that a grandchild which keeps them open holds nobody up, and their size is
bounded. The exit code comes from the supervisor's report, not from ``wait``: in a process that
ignores SIGCHLD, as Ray's workers do, ``wait`` says 0 for every child. When the supervisor itself
was killed (an unconfined agent of the same user can do that), the tree is found by a mark in its
environment.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

from rl_bench.clone import open_regular
from rl_bench.errors import WorkspaceError
from rl_bench.process import supervisor, tree
from rl_bench.process.stall import StallWatch, cpu_s
from rl_bench.process.strays import end_strays

MAX_OUTPUT_BYTES = 64 * 1024 * 1024
POLL_S = 0.2
START_LIMIT_S = 60.0
STALL_CHECK_S = 5.0
_CHECKOUT = str(Path(__file__).resolve().parents[2])
_SUPERVISE = (
    f"import sys; sys.path.append({_CHECKOUT!r}); "
    "from rl_bench.process.supervisor import main; main()"
)


class Cause(StrEnum):
    """Why an agent, or what it had left running, was ended."""

    DEADLINE = "deadline"
    """Its budget was used up."""
    HUNG = "hung"
    """It had told the end of its work and did not exit."""
    LIMIT = "limit"
    """It had more processes or memory than it is allowed."""
    STOPPED = "stopped"
    """Whoever ran it wanted its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExit:
    """What became of an agent's process tree; nothing of it lives any more.

    Attributes:
        exit_code: Of the agent itself, negative for a signal as in `subprocess`; ``None`` when
            it was not seen to end.
        killed: We ended it, the agent was still running.
        deadline: It, or children that it had left, were ended because the budget was used up.
        cause: Why they were ended; None when they ended by themselves.
        reason: The same in words, empty for the deadline and for None.
        num_survivors_killed: Processes beside the agent that we ended.
        num_live_children: Processes that it had left running when it exited.
        children_wait_s: How long they were waited for.
        num_unkillable: Processes that even SIGKILL did not end within its limit.
        wall_s: From start to the end of the tree.
        start_error: Why the command could not be started; empty if it was.
        sandbox_error: How the sandbox around it failed; empty if it did not.
        supervisor_lost: The supervisor was killed, so exit code and counts are unknown.
    """

    exit_code: int | None = None
    killed: bool = False
    deadline: bool = False
    cause: Cause | None = None
    reason: str = ""
    num_survivors_killed: int = 0
    num_live_children: int = 0
    children_wait_s: float = 0.0
    num_unkillable: int = 0
    wall_s: float = 0.0
    start_error: str = ""
    sandbox_error: str = ""
    supervisor_lost: bool = False


class AgentProcess:
    """One running agent. Made by `start`; `wait` or `stop` must be called once.

    Attributes:
        pid: Process id of the agent itself; 0 if it could not be started.
        supervisor_pid: All its processes are below this one; 0 if it could not be started.
        wrapper_pids: Processes below the supervisor that are its sandbox's, not the agent's.
        has_exited: The agent itself has ended; children of it may be waited for.
    """

    def __init__(
        self,
        *,
        control: int,
        report: int,
        mark: str,
        outputs: tuple[Path, Path],
    ) -> None:
        self._control = control
        self._report = report
        self._mark = mark
        self._outputs = outputs
        self._buffer = b""
        self._begin = time.monotonic()
        self._stopping = False
        self._exit: AgentExit | None = None
        self.pid = 0
        self.supervisor_pid = 0
        self.wrapper_pids: tuple[int, ...] = ()
        self.has_exited = False
        self._greet()

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdout: Path,
        stderr: Path,
        grace_s: float = 5.0,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        is_wrapped: bool = False,
        on_live_children: Literal["kill", "wait"] = "kill",
        max_processes: int | None = None,
        max_memory_bytes: int | None = None,
    ) -> Self:
        """Starts ``argv`` in ``cwd`` with exactly ``env`` and with /dev/null as its input.

        Args:
            argv: The command, never through a shell.
            env: The whole environment; nothing is inherited.
            cwd: The folder to start in.
            stdout: Output file, appended to.
            stderr: The same for errors.
            grace_s: From SIGTERM to SIGKILL for children that outlive the agent.
            max_output_bytes: The most each output file keeps: its head and its newest part.
            is_wrapped: As `rl_bench.sandbox.base.Launch` says.
            on_live_children: What happens to processes that the agent has left running when it
                exits: they are ended, or waited for until `stop`.
            max_processes: More at one time end the tree.
            max_memory_bytes: More resident memory together ends the tree.

        Raises:
            WorkspaceError: The supervisor could not be started.
        """
        mark = uuid.uuid4().hex
        spec: supervisor.Spec = {
            "argv": list(argv),
            "env": {**env, supervisor.MARK_VARIABLE: mark},
            "cwd": str(cwd),
            "stdout": str(stdout),
            "stderr": str(stderr),
            "grace_s": grace_s,
            "max_output_bytes": max_output_bytes,
            "parent": os.getpid(),
            "parent_start": tree.start_ticks(os.getpid()) or 0,
            "is_wrapped": is_wrapped,
            "on_live_children": on_live_children,
            "max_processes": max_processes,
            "max_memory_bytes": max_memory_bytes,
        }
        stdout.parent.mkdir(parents=True, exist_ok=True)
        stderr.parent.mkdir(parents=True, exist_ok=True)
        control_read, control = os.pipe()
        report, report_write = os.pipe()
        try:
            subprocess.run(
                [
                    *(sys.executable, "-I", "-S", "-c", _SUPERVISE),
                    *(f"{control_read}", f"{report_write}"),
                ],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(control_read, report_write),
                start_new_session=True,
                check=False,
            )
        except OSError as error:
            os.close(control)
            os.close(report)
            raise WorkspaceError(f"cannot start the agent's supervisor: {error}") from error
        finally:
            os.close(control_read)
            os.close(report_write)
        with contextlib.suppress(BrokenPipeError), open(control, "wb", closefd=False) as pipe:
            pipe.write(json.dumps(spec).encode() + b"\n")
        return cls(control=control, report=report, mark=mark, outputs=(stdout, stderr))

    def poll(self) -> AgentExit | None:
        """The end, if it has come."""
        if self._exit is None:
            self._collect(timeout_s=0.0)
        return self._exit

    def wait(
        self,
        *,
        remaining_s: Callable[[], float],
        grace_s: float,
        should_abort: Callable[[], bool] = lambda: False,
        stall_s: float = 600.0,
        on_stall: Callable[[float], None] = lambda seconds: None,
        is_done: Callable[[], bool] = lambda: False,
        linger_s: float = 60.0,
    ) -> AgentExit:
        """Waits for the agent's end, and ends it when ``remaining_s()`` reaches 0. Blocks.

        With ``on_live_children="wait"`` it also waits for what the agent has left running, under
        the same conditions.

        Args:
            remaining_s: The run's clock; asked again and again, since credit moves the deadline.
            grace_s: From SIGTERM at the deadline to SIGKILL.
            should_abort: Asked at every poll; true ends the agent before its deadline.
            stall_s: No output and no CPU time for this long is a stall.
            on_stall: Told once a stall, with its length in seconds.
            is_done: Whether the agent's output has told the end of its work; asked at every poll.
            linger_s: An agent that is done and does not exit is ended after so long.
        """
        watch = StallWatch(limit_s=stall_s)
        next_check = time.monotonic() + STALL_CHECK_S
        done_since: float | None = None
        while self._exit is None:
            left = remaining_s()
            if left <= 0:
                return self.stop(grace_s=grace_s, cause=Cause.DEADLINE)
            if should_abort():
                return self.stop(grace_s=grace_s)
            if not self.has_exited and is_done():
                done_since = done_since or time.monotonic()
                if time.monotonic() - done_since >= linger_s:
                    reason = f"it did not exit within {linger_s:g} s after its final event"
                    return self.stop(grace_s=grace_s, cause=Cause.HUNG, reason=reason)
            self._collect(timeout_s=min(POLL_S, left))
            if time.monotonic() >= next_check:
                next_check += STALL_CHECK_S
                stalled = watch.see(self._activity(), now=time.monotonic())
                if stalled is not None:
                    on_stall(stalled)
        return self._exit

    def stop(
        self,
        *,
        grace_s: float,
        deadline: bool = False,
        cause: Cause = Cause.STOPPED,
        reason: str = "",
    ) -> AgentExit:
        """Ends the tree: SIGTERM, ``grace_s``, SIGKILL. Returns within the grace and a few seconds.

        Args:
            grace_s: Time between the two signals.
            deadline: Short for ``cause=Cause.DEADLINE``.
            cause: Recorded, if there was anything left to end.
            reason: The same in words.
        """
        if deadline:
            cause = Cause.DEADLINE
        if self._exit is None and not self._stopping:
            self._stopping = True
            with contextlib.suppress(OSError):
                os.write(self._control, f"{grace_s}\n".encode())
        limit = time.monotonic() + grace_s + supervisor.KILL_LIMIT_S + 5.0
        while self._exit is None:
            if time.monotonic() > limit:
                self._lost()
                break
            self._collect(timeout_s=POLL_S)
        assert self._exit is not None
        if self._exit.cause is Cause.STOPPED and not self._exit.reason:
            is_deadline = cause is Cause.DEADLINE
            self._exit = replace(self._exit, cause=cause, reason=reason, deadline=is_deadline)
        return self._exit

    def _greet(self) -> None:
        """Takes the first line: the agent's process id, or why it has none."""
        try:
            first = self._read_line(timeout_s=START_LIMIT_S)
        except EOFError:
            first = None
        if first is None:
            self._lost()
        elif "start_error" in first:
            self._finish(AgentExit(start_error=first["start_error"]))
        elif "sandbox_error" in first:
            self._finish(AgentExit(sandbox_error=self._with_stderr(first["sandbox_error"])))
        else:
            self.pid = first["pid"]
            self.supervisor_pid = first["supervisor_pid"]
            self.wrapper_pids = tuple(first["wrapper_pids"])

    def _collect(self, *, timeout_s: float) -> None:
        try:
            report = self._read_line(timeout_s=timeout_s)
        except EOFError:
            self._lost()
            return
        if report is None:
            return
        self.has_exited = True
        if "killed" in report:
            self._finish(self._as_exit(report))

    def _as_exit(self, report: supervisor.Report) -> AgentExit:
        cut = Cause.STOPPED if report["was_cut"] else None
        broken = report["sandbox_error"]
        return AgentExit(
            exit_code=report["exit_code"],
            killed=report["killed"],
            cause=Cause.LIMIT if report["limit"] else cut,
            reason=report["limit"],
            num_survivors_killed=report["num_survivors_killed"],
            num_live_children=report["num_live_children"],
            children_wait_s=report["children_wait_s"],
            num_unkillable=report["num_unkillable"],
            wall_s=report["wall_s"],
            sandbox_error=self._with_stderr(broken) if broken else "",
        )

    def _with_stderr(self, problem: str) -> str:
        said = tail(self._outputs[1], max_bytes=500).strip().splitlines()
        return f"{problem}: {said[-1]}" if said else problem

    def _read_line(self, *, timeout_s: float) -> supervisor.Report | None:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not supervisor.readable(self._report, timeout_s=left):
                return None
            data = os.read(self._report, 65536)
            if not data:
                raise EOFError
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        report: supervisor.Report = json.loads(line)
        return report

    def _lost(self) -> None:
        """The supervisor is gone or hangs: find its tree by the mark and end it from here."""
        known = self._tree() | set(self.wrapper_pids)
        ended = end_strays(known, supervisor=self.supervisor_pid, mark=self._mark)
        self._finish(
            AgentExit(
                killed=True,
                cause=Cause.STOPPED,
                reason="its supervisor was killed",
                num_survivors_killed=ended.num_ended,
                num_unkillable=ended.num_left,
                wall_s=time.monotonic() - self._begin,
                supervisor_lost=True,
            )
        )

    def _finish(self, exit_: AgentExit) -> None:
        self._exit = exit_
        os.close(self._control)
        os.close(self._report)

    def _activity(self) -> tuple[int, float]:
        size = sum(path.stat().st_size for path in self._outputs if path.exists())
        return size, cpu_s(sorted(self._tree()))

    def _tree(self) -> set[int]:
        known = self.supervisor_pid
        return set(tree.descendants(known)) if known else set()


def tail(path: Path, *, max_bytes: int = 4000) -> str:
    """The end of an output file as text; empty when there is none."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes))
        return file.read().decode("utf-8", errors="replace")
    return ""
