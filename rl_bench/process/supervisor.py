"""The small program between a run and its agent: nothing that the agent started outlives it.

Run in its own process, standard library only, so that it starts in milliseconds. It declares itself
the reaper of its whole tree (``PR_SET_CHILD_SUBREAPER``), so that children which left by
``setsid``, ``nohup`` and a double fork come back to it; waits for the agent itself, never for its
output; ends the tree on command, at the agent's own end, over a limit, or when the run's process is
gone; and reports in lines of JSON.

An agent in a sandbox has a wrapper around it, of which two processes are not the agent's: they are
signalled last, since the whole sandbox goes with them, and what the agent did is told by a program
inside (see `rl_bench.sandbox.inside`), on `STATUS_FD`.

It leaves its parent at once by a fork of its own, since Ray kills the direct children of a worker
that ends, and this child is needed then. The run's death is seen by its process id and start time
and by the end of the command pipe. ``PR_SET_PDEATHSIG`` is not used for it, because that fires when
the *thread* that started a process ends; the supervisor has one thread only, so its agent can have
that signal as a second net.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from types import FrameType
from typing import Literal, TypedDict

from rl_bench.process.inside_status import InsideStatus
from rl_bench.process.limits import LimitWatch
from rl_bench.process.tree import descendants, kill_groups, outer_pid, send, start_ticks

MARK_VARIABLE = "RL_BENCH_PROCESS_MARK"
"""In the environment of everything an agent starts: finds strays when a supervisor was killed."""
STATUS_FD = 198
"""Where the program inside a sandbox tells what becomes of the agent."""
POLL_S = 0.1
LINGER_S = 0.5
INSIDE_START_S = 45.0
"""The sandbox and the program inside it must be up by then."""
LAST_WORDS_S = 0.3
"""After SIGKILL to the agent, its sandbox may still tell of it for so long."""
KILL_LIMIT_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Spec(TypedDict):
    """What to start and how to end it: the control pipe's first line, as JSON."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    stdout: str
    stderr: str
    grace_s: float
    max_output_bytes: int
    parent: int
    parent_start: int
    is_wrapped: bool
    on_live_children: Literal["kill", "wait"]
    max_processes: int | None
    max_memory_bytes: int | None


class Report(TypedDict, total=False):
    """A line of the report pipe.

    First ``start_error``, ``sandbox_error`` or the pids; then, when children are waited for,
    ``exit_code`` and ``num_live_children`` alone; at the end all from ``exit_code`` on.
    """

    start_error: str
    sandbox_error: str
    pid: int
    supervisor_pid: int
    wrapper_pids: list[int]
    exit_code: int | None
    num_live_children: int
    children_wait_s: float
    killed: bool
    was_cut: bool
    limit: str
    num_survivors_killed: int
    num_unkillable: int
    wall_s: float


class Failed(Exception):  # noqa: N818  a state of the start, told in the report
    """The agent was not started; the report says why."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def readable(*fds: int, timeout_s: float) -> set[int]:
    """Those of ``fds`` that have data, or are a pipe's end; waits for the first of them."""
    # Not select(), which refuses descriptors from 1024 on, as a run with many files has them.
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_s * 1000)}


class Supervisor:
    """Runs one agent and its end.

    Args:
        spec: What `AgentProcess` wrote: argv, env, cwd, output files, limits.
        control: Read end of the pipe that carries the order to stop.
        report: Write end of the pipe that takes the report.
    """

    def __init__(self, spec: Spec, *, control: int, report: int) -> None:
        self._spec = spec
        self._control = control
        self._report = report
        self._outputs = (spec["stdout"], spec["stderr"])
        self._agent = 0
        self._started = 0
        """The direct child: the agent, or the wrapper around it."""
        self._awaited = [control]
        """What ends a wait: an order, and where the kernel can tell it the direct child's end."""
        self._wrapper: tuple[int, ...] = ()
        self._inside: InsideStatus | None = None
        self._exit_code: int | None = None
        self._num_live = 0
        self._children_since: float | None = None
        self._broken = ""
        self._limits = LimitWatch(
            os.getpid(),
            max_processes=spec["max_processes"],
            max_memory_bytes=spec["max_memory_bytes"],
        )
        self._limit = ""
        self._ordered = False

    def run(self) -> None:
        """The whole life of the agent, from start to report."""
        begin = time.monotonic()
        try:
            self._start()
        except Failed as failed:
            self._end(grace_s=0.0)
            self._send(failed.report)
            return
        self._send(
            {
                "pid": self._agent,
                "supervisor_pid": os.getpid(),
                "wrapper_pids": list(self._wrapper),
            }
        )
        grace = self._wait()
        killed = self._exit_code is None and not self._broken
        waited_s = time.monotonic() - self._children_since if self._children_since else 0.0
        survivors, left = self._end(grace_s=grace)
        self._cut_outputs()
        self._send(
            {
                "exit_code": self._exit_code,
                "num_live_children": self._num_live,
                "children_wait_s": waited_s,
                "killed": killed,
                "was_cut": killed or (self._ordered and survivors > 0),
                "limit": self._limit,
                "sandbox_error": self._broken,
                "num_survivors_killed": survivors,
                "num_unkillable": left,
                "wall_s": time.monotonic() - begin,
            }
        )

    def _start(self) -> None:
        wrapped = self._spec["is_wrapped"]
        try:
            if wrapped:
                self._inside = InsideStatus(STATUS_FD)
            self._launch(pass_fds=(STATUS_FD,) if wrapped else ())
        except (OSError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            raise Failed({"sandbox_error": why} if wrapped else {"start_error": why}) from error
        finally:
            if wrapped:
                os.close(STATUS_FD)
        if self._inside is None:
            self._agent = self._started
        else:
            self._await_inside(self._inside)

    def _launch(self, *, pass_fds: tuple[int, ...]) -> None:
        files = [_opened(path) for path in self._outputs]
        try:
            process = subprocess.Popen(
                self._spec["argv"],
                env=self._spec["env"],
                cwd=self._spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=files[0],
                stderr=files[1],
                pass_fds=pass_fds,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # safe: one thread only
            )
        finally:
            for file in files:
                os.close(file)
        self._started = process.pid
        with contextlib.suppress(AttributeError, OSError):
            self._awaited.append(os.pidfd_open(process.pid))
        process.returncode = 0  # this class reaps; Popen must not wait for it, nor warn

    def _await_inside(self, inside: InsideStatus) -> None:
        """Until the program inside has started the agent."""
        deadline = time.monotonic() + INSIDE_START_S
        while not inside.pid:
            if inside.is_over or time.monotonic() > deadline or self._is_orphan():
                reason = "it ended" if inside.is_over else "it did not start"
                raise Failed({"sandbox_error": f"{reason} before it had started the agent"})
            inside.read(timeout_s=POLL_S)
            if inside.start_error:
                raise Failed({"start_error": inside.start_error})
        below = descendants(os.getpid())
        self._agent = (
            outer_pid(inside.pid, among=below) or self._started
        )  # one that is gone already
        init = [pid for pid in descendants(self._started) if outer_pid(1, among=[pid])]
        self._wrapper = (self._started, *init)

    def _wait(self) -> float:
        """Until the tree is to be ended; the grace in seconds for what is left of it."""
        while True:
            if self._is_empty():
                self._note_break()
                return self._spec["grace_s"]
            if self._exit_code is not None and self._children_since is None:
                self._until_empty(LINGER_S)
                self._num_live = len(self._agents_tree())
                if not self._num_live or self._spec["on_live_children"] == "kill":
                    return self._spec["grace_s"]
                self._children_since = time.monotonic()
                self._send({"exit_code": self._exit_code, "num_live_children": self._num_live})
            if self._is_orphan():
                return 0.0
            self._limit = self._limits.exceeded(now=time.monotonic(), ignore=self._wrapper)
            if self._limit:
                return 0.0
            if self._has_order():
                self._ordered = True
                order = os.read(self._control, 64)
                return float(order) if order.strip() else 0.0
            self._cut_outputs()

    def _has_order(self) -> bool:
        """Waits for one until the next look is due, or until the direct child ends."""
        ready = readable(*self._awaited, timeout_s=POLL_S)
        for ended in ready - {self._control}:
            # Its end is told once: a process that traces it can keep it from being reaped.
            self._awaited.remove(ended)
            os.close(ended)
        return self._control in ready

    def _note_break(self) -> None:
        if self._inside is not None and self._exit_code is None:
            self._broken = "it ended before it had told how the agent ended"

    def _is_orphan(self) -> bool:
        return start_ticks(self._spec["parent"]) != self._spec["parent_start"]

    def _is_empty(self) -> bool:
        """Whether nothing lives below; takes note of the agent's end on the way.

        Whatever loses its parent becomes a child of this process, so without a child it has no
        tree.
        """
        is_empty = False
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._started and self._inside is None:
                    self._exit_code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            is_empty = True
        if self._inside is not None:
            self._inside.read(timeout_s=0.0)
            self._exit_code = self._inside.exit_code
        return is_empty

    def _end(self, *, grace_s: float) -> tuple[int, int]:
        """Ends the tree; the number that had to be ended beside the agent, and that are left."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)  # a busy tree must not starve its end
        rest = self._agents_tree()
        survivors = len([pid for pid in rest if pid != self._agent])
        if not self._limit:
            send(rest, signal.SIGTERM)
            send(rest, signal.SIGCONT)
            self._until_empty(grace_s)
            if self._wrapper and self._exit_code is None:
                kill_groups(self._agents_tree())
                self._until_empty(LAST_WORDS_S)
        deadline = time.monotonic() + KILL_LIMIT_S
        while not self._is_empty() and time.monotonic() < deadline:
            kill_groups(descendants(os.getpid()))
            self._until_empty(0.05)
        return survivors, 0 if self._is_empty() else len(descendants(os.getpid()))

    def _until_empty(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_empty() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(0.02, left))
            self._cut_outputs()

    def _agents_tree(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if pid not in self._wrapper]

    def _cut_outputs(self) -> None:
        for path in self._outputs:
            with contextlib.suppress(OSError):
                if os.lstat(path).st_size > self._spec["max_output_bytes"]:
                    _cut(path, self._spec["max_output_bytes"])

    def _send(self, message: Report) -> None:
        with contextlib.suppress(OSError):
            os.write(self._report, json.dumps(message).encode() + b"\n")


def _opened(path: str) -> int:
    """An output file to append to. What an agent put in its place is removed, not written to."""
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)  # noqa: PTH108  the path is text
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)


def _cut(path: str, limit: int) -> None:
    """Keeps the head and the newest part. The writers append, so they go on at the new end.

    Raises:
        OSError: There is something else in its place, such as a link, which is not followed.
    """
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit // 4))
        tail = file.read(limit // 4)
        file.truncate(limit // 2)
        file.seek(limit // 2)
        file.write(b"\n[... output over the limit was cut here ...]\n" + tail)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler, since an ignored SIGCHLD, as Ray's workers hand down, loses exit codes."""


def main() -> None:
    """Reads the spec from the control pipe's first line and supervises."""
    # The place of the status pipe is kept free.
    fds = [int(word) for word in sys.argv[1:3]]
    control, report = (os.dup(fd) if fd == STATUS_FD else fd for fd in fds)
    if os.fork():
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, _ignore)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The agent may signal everything of its user; only the run's order or end counts.
        signal.signal(number, _ignore)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line = b""
    # Nothing follows the line before the first report, so that whole blocks may be read.
    while not line.endswith(b"\n"):
        block = os.read(control, 65536)
        if not block:
            return
        line += block
    spec: Spec = json.loads(line)
    Supervisor(spec, control=control, report=report).run()
