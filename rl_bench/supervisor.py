"""The small program between a run and its agent: nothing that the agent started outlives it.

Run as a script in its own process, standard library only, so that it starts in milliseconds. It
declares itself the reaper of its whole tree (``PR_SET_CHILD_SUBREAPER``), so that children which
left by ``setsid``, ``nohup`` and a double fork come back to it; waits for the agent itself, never
for its output; ends the tree on command, at the agent's own end, or when the run's process is gone;
and reports once, as a line of JSON.

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
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TypedDict

MARK_VARIABLE = "RL_BENCH_PROCESS_MARK"
"""In the environment of everything an agent starts: finds strays when a supervisor was killed."""
POLL_S = 0.1
LINGER_S = 0.5
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


class Report(TypedDict, total=False):
    """A line of the report pipe: ``start_error``, or the two pids, then all others at the end."""

    start_error: str
    pid: int
    supervisor_pid: int
    exit_code: int | None
    killed: bool
    num_survivors_killed: int
    num_unkillable: int
    wall_s: float


def parents() -> dict[int, int]:
    """Parent by process id, for every process that is not a zombie."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  cheap, and pathlib is not wanted here
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path("/proc", name, "stat").read_bytes()
            state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
            if state not in (b"Z", b"X"):
                found[int(name)] = int(parent)
    return found


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or a zombie."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path("/proc", str(pid), "stat").read_bytes()
        fields = stat[stat.rindex(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X"):
            return int(fields[19])
    return None


def descendants(root: int) -> list[int]:
    """Living processes below ``root``, without itself."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], list(children.get(root, ()))
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue.extend(children.get(pid, ()))
    return found


def marked(mark: str) -> list[int]:
    """Living processes that carry ``mark`` in their environment, without this one."""
    needle = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for pid in parents():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and needle in variables:
                found.append(pid)
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signals each of ``pids``; one that is gone is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def is_readable(fd: int, *, timeout_s: float) -> bool:
    """Waits for data, or the end of a pipe."""
    # Not select(), which refuses descriptors from 1024 on, as a run with many files has them.
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def kill_groups(pids: Iterable[int]) -> None:
    """SIGKILL for the process groups of ``pids``, and for each of them.

    The kernel takes a group as a whole, so that a group that forks faster than it can be listed
    does not get away. The caller's own group is left out.
    """
    groups = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            groups.add(os.getpgid(pid))
    for group in groups - {os.getpgrp(), 0, 1}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    send(pids, signal.SIGKILL)


class Supervisor:
    """Runs one agent and its end.

    Args:
        spec: What `rl_bench.process` wrote: argv, env, cwd, output files and their limit.
        control: Read end of the pipe that carries the order to stop.
        report: Write end of the pipe that takes the report.
    """

    def __init__(self, spec: Spec, *, control: int, report: int) -> None:
        self._spec = spec
        self._control = control
        self._report = report
        self._outputs = (spec["stdout"], spec["stderr"])
        self._agent = 0
        self._exit_code: int | None = None

    def run(self) -> None:
        """The whole life of the agent, from start to report."""
        begin = time.monotonic()
        try:
            self._start()
        except (OSError, ValueError) as error:
            self._send({"start_error": f"{type(error).__name__}: {error}"})
            return
        self._send({"pid": self._agent, "supervisor_pid": os.getpid()})
        grace = self._wait()
        killed = self._exit_code is None
        survivors, left = self._end(grace_s=grace)
        self._cut_outputs()
        self._send(
            {
                "exit_code": self._exit_code,
                "killed": killed,
                "num_survivors_killed": survivors,
                "num_unkillable": left,
                "wall_s": time.monotonic() - begin,
            }
        )

    def _start(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [os.open(path, flags, 0o644) for path in self._outputs]
        process = subprocess.Popen(
            self._spec["argv"],
            env=self._spec["env"],
            cwd=self._spec["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=files[0],
            stderr=files[1],
            start_new_session=True,
            preexec_fn=_die_with_parent,  # safe: one thread only
        )
        for file in files:
            os.close(file)
        self._agent = process.pid
        process.returncode = 0  # this class reaps; Popen must not wait for it, nor warn

    def _wait(self) -> float:
        """Until the agent ends or is to be ended; the grace in seconds for what is left."""
        while True:
            self._reap()
            if self._exit_code is not None:
                return self._spec["grace_s"]
            if start_ticks(self._spec["parent"]) != self._spec["parent_start"]:
                return 0.0
            if is_readable(self._control, timeout_s=POLL_S):
                order = os.read(self._control, 64)
                return float(order) if order.strip() else 0.0
            self._cut_outputs()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._agent:
                    self._exit_code = os.waitstatus_to_exitcode(status)

    def _end(self, *, grace_s: float) -> tuple[int, int]:
        """Ends the tree; the number that had to be ended beside the agent, and that are left."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)  # a busy tree must not starve its end
        if self._exit_code is not None:
            self._until_empty(LINGER_S)
        rest = self._tree()
        survivors = len([pid for pid in rest if pid != self._agent])
        send(rest, signal.SIGTERM)
        send(rest, signal.SIGCONT)
        self._until_empty(grace_s)
        deadline = time.monotonic() + KILL_LIMIT_S
        while (rest := self._tree()) and time.monotonic() < deadline:
            kill_groups(rest)
            self._until_empty(0.05)
        return survivors, len(rest)

    def _until_empty(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._tree() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(0.02, left))

    def _tree(self) -> list[int]:
        self._reap()
        return descendants(os.getpid())

    def _cut_outputs(self) -> None:
        for path in self._outputs:
            with contextlib.suppress(OSError):
                if os.stat(path).st_size > self._spec["max_output_bytes"]:  # noqa: PTH116
                    _cut(path, self._spec["max_output_bytes"])

    def _send(self, message: Report) -> None:
        with contextlib.suppress(OSError):
            os.write(self._report, json.dumps(message).encode() + b"\n")


def _cut(path: str, limit: int) -> None:
    """Keeps the head and the newest part. The writers append, so they go on at the new end."""
    with open(path, "r+b") as file:  # noqa: PTH123
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
    control, report = int(sys.argv[1]), int(sys.argv[2])
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


if __name__ == "__main__":
    main()
