"""The first process of a sandbox: starts the agent there, and stays until nothing of it is left.

A script of the standard library only, run by a bare interpreter that sees no package. As PID 1 of
its namespace it gets every orphan, cannot be killed from inside, and its end is the end of all. It
tells what becomes of the agent on a pipe, passes its output on, and carries bytes between the
forwarded ports on loopback and the run's sockets.

Its own descriptors and memory are closed to the agent, which is of the same user: neither the
status nor the raw output can be forged or cut by a process that it started.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from types import FrameType
from typing import TypedDict

SPEC_VARIABLE = "RL_BENCH_INSIDE"
"""With ``_0``, ``_1``, …: the spec as JSON, in parts, since one variable has a size limit."""
MAX_BUFFER_BYTES = 256 * 1024
BLOCK_BYTES = 64 * 1024
BACKLOG = 512
MAX_CONNECTIONS = 512
"""At one time, of all ports; more are reset, so that no agent can use up descriptors or memory."""
BUSY_S = 0.05
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_BPF_INSTRUCTION_BYTES = 8
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_RESET = struct.pack("ii", 1, 0)


class Spec(TypedDict):
    """What to start.

    ``forwards``: pairs of a port here and a socket's path. ``limits``: name, soft and hard value;
    each is lowered to what is in force already. ``filter``: of the agent's system calls, BPF
    instructions in hexadecimal; empty: none.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    status_fd: int
    forwards: list[tuple[int, str]]
    limits: list[tuple[str, int, int]]
    filter: str


class Flow:
    """One direction of a connection: what was read and is not yet written."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.data = bytearray()
        self.has_ended = False
        self.is_shut = False

    def read(self) -> None:
        """Takes what is there."""
        block = self.source.recv(BLOCK_BYTES)
        self.has_ended = not block
        self.data += block

    def write(self) -> None:
        """Passes on what the other side takes now; the end after the last byte."""
        if self.data:
            with contextlib.suppress(BlockingIOError):
                del self.data[: self.sink.send(self.data)]
        if self.has_ended and not self.data and not self.is_shut:
            self.is_shut = True
            self.sink.shutdown(socket.SHUT_WR)


class Connection:
    """A client inside and the service outside, until both have said all.

    Raises:
        OSError: No more of them can be watched.
    """

    num_open = 0

    def __init__(
        self, loop: selectors.BaseSelector, client: socket.socket, service: socket.socket
    ) -> None:
        self._loop = loop
        self._sockets = (client, service)
        self._flows = (Flow(client, service), Flow(service, client))
        self._watched: dict[socket.socket, int] = {}
        for each in self._sockets:
            each.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_open = True
        Connection.num_open += 1
        try:
            self._watch()
        except OSError:
            self._break_off()
            raise

    def _move(self, ready: socket.socket, events: int) -> None:
        if not self._is_open:  # by what its other side had in the same batch of events
            return
        try:
            for flow in self._flows:
                if flow.source is ready and events & selectors.EVENT_READ:
                    with contextlib.suppress(BlockingIOError):
                        flow.read()
                    flow.write()
                elif flow.sink is ready and events & selectors.EVENT_WRITE:
                    flow.write()
            if all(flow.is_shut for flow in self._flows):
                self._close()
            else:
                self._watch()
        except OSError:
            self._break_off()

    def _break_off(self) -> None:
        """One side broke off: so does the other, lest a cut answer looks like a whole one."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close()

    def _watch(self) -> None:
        """Waits for what can be used: input while there is room, room while there is output."""
        wanted = dict.fromkeys(self._sockets, 0)
        for flow in self._flows:
            if not flow.has_ended and len(flow.data) < MAX_BUFFER_BYTES:
                wanted[flow.source] |= selectors.EVENT_READ
            if flow.data:
                wanted[flow.sink] |= selectors.EVENT_WRITE
        for each, events in wanted.items():
            before = self._watched.get(each, 0)
            if events and not before:
                self._loop.register(each, events, lambda now, each=each: self._move(each, now))
            elif before and not events:
                self._loop.unregister(each)
            elif before != events:
                self._loop.modify(each, events, self._loop.get_key(each).data)
            self._watched[each] = events

    def _close(self) -> None:
        self._is_open = False
        Connection.num_open -= 1
        for each in self._sockets:
            if self._watched.get(each):
                self._loop.unregister(each)
            each.close()


class Door:
    """A port on loopback that leads to one of the run's sockets."""

    def __init__(self, loop: selectors.BaseSelector, port: int, path: str) -> None:
        self._loop = loop
        self._path = path
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        loop.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, events: int) -> None:
        try:
            client = self._listener.accept()[0]
        except BlockingIOError:
            return
        except OSError:  # no descriptor is free: others will be
            time.sleep(BUSY_S)
            return
        try:
            self._lead(client)
        except OSError:  # the service is gone or overrun, or there are too many: a reset says so
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()

    def _lead(self, client: socket.socket) -> None:
        if Connection.num_open >= MAX_CONNECTIONS:
            raise OSError("too many connections")
        service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            service.setblocking(False)
            service.connect(self._path)
            Connection(self._loop, client, service)
        except OSError:
            service.close()
            raise


class Output:
    """The agent's standard output or error, passed on into the run's own file."""

    def __init__(self, loop: selectors.BaseSelector, target: int) -> None:
        self._loop = loop
        self._target = target
        self._pipe, self.write_end = os.pipe()
        os.set_blocking(self._pipe, False)
        loop.register(self._pipe, selectors.EVENT_READ, lambda events: self.drain())

    def drain(self) -> None:
        """Passes on what was written so far; what others write meanwhile has its next time."""
        left = max(1, _num_readable(self._pipe))
        while left > 0:
            try:
                block = os.read(self._pipe, min(left, BLOCK_BYTES))
            except BlockingIOError:
                return
            if not block:
                with contextlib.suppress(KeyError):
                    self._loop.unregister(self._pipe)
                return
            left -= len(block)
            with contextlib.suppress(OSError):  # a full disk is the run's to notice
                _write(self._target, block)


class Inside:
    """Runs the agent of ``spec`` and waits for its whole tree."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._loop = selectors.DefaultSelector()
        self._outputs = [Output(self._loop, target) for target in (1, 2)]
        self._agent = 0

    def run(self) -> None:
        """Returns when nothing is left, or nothing could be started."""
        self._wake_on_signals()
        for port, path in self._spec["forwards"]:
            Door(self._loop, port, path)
        error = self._start()
        if error:
            self._tell({"start_error": error})
            return
        self._tell({"pid": self._agent})
        while self._reap():
            for key, events in self._loop.select():
                act: Callable[[int], None] = key.data
                act(events)
        for output in self._outputs:
            output.drain()

    def _wake_on_signals(self) -> None:
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)
        self._loop.register(
            read_end, selectors.EVENT_READ, lambda events: _discard(os.read(read_end, 4096))
        )

    def _start(self) -> str:
        """Starts the agent; why it could not be started, or an empty string."""
        told, tell = os.pipe()
        self._agent = os.fork()
        if self._agent == 0:
            try:
                self._become_agent()
            except BaseException as problem:  # noqa: BLE001  whatever it is, the parent tells it
                os.write(tell, f"{type(problem).__name__}: {problem}".encode())
            finally:
                os._exit(127)
        os.close(tell)
        for output in self._outputs:
            os.close(output.write_end)
        error = b""
        while block := os.read(told, 4096):
            error += block
        os.close(told)
        return error.decode(errors="replace")

    def _become_agent(self) -> None:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for output, fd in zip(self._outputs, (1, 2), strict=True):
            os.dup2(output.write_end, fd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs do not
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for name, soft, hard in self._spec["limits"]:
            _lower(getattr(resource, name), soft, hard)
        if self._spec["filter"]:
            _apply_filter(bytes.fromhex(self._spec["filter"]))
        os.chdir(self._spec["cwd"])
        argv = self._spec["argv"]
        os.execvpe(argv[0], argv, self._spec["env"])  # noqa: S606  this is what it is for

    def _reap(self) -> bool:
        """Takes the dead; whether anything lives."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._agent:
                    for output in self._outputs:
                        output.drain()
                    self._tell({"exit_code": os.waitstatus_to_exitcode(status)})
        return False

    def _tell(self, line: dict[str, int] | dict[str, str]) -> None:
        with contextlib.suppress(OSError):
            _write(self._spec["status_fd"], json.dumps(line).encode() + b"\n")


def _num_readable(fd: int) -> int:
    """Bytes that wait in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0])


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _discard(data: bytes) -> None:
    """Takes a wake-up's bytes, which say nothing."""


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler: without one PID 1 would get the signal from outside, and die of it."""


def _lower(kind: int, soft: int, hard: int) -> None:
    """Sets a limit, but no higher than what is in force."""
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        hard = min(hard, ceiling)
    resource.setrlimit(kind, (min(soft, hard), hard))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _apply_filter(instructions: bytes) -> None:
    """Filters system calls of this process and all that it starts, for good."""
    program = _Program(len(instructions) // _BPF_INSTRUCTION_BYTES, instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def _seclude() -> None:
    """Closes this process to the agent, and leaves the keys of who started the run behind."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _take_spec() -> Spec:
    text, number = "", 0
    while (part := os.environ.get(f"{SPEC_VARIABLE}_{number}")) is not None:
        text += part
        number += 1
    spec: Spec = json.loads(text)
    return spec


def main() -> None:
    """Takes the spec from the environment and runs it."""
    spec = _take_spec()
    _seclude()
    os.set_inheritable(spec["status_fd"], False)
    os.closerange(3, spec["status_fd"])
    Inside(spec).run()


if __name__ == "__main__":
    main()
    sys.exit(0)
