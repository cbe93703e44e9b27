"""What the program inside a sandbox tells its supervisor: JSON lines on a pipe.

Standard library only: the supervisor takes it along.
"""

import json
import os
import select
from typing import TypedDict


class Line(TypedDict, total=False):
    """One of the three: it was started, it could not be, it has ended.

    ``pid`` is the agent's in the sandbox's own PID namespace.
    """

    pid: int
    start_error: str
    exit_code: int


class InsideStatus:
    """The read end of the status pipe; made before the sandbox, whose end is ``fd``.

    Attributes:
        pid: The agent's, as the sandbox counts; 0 until it was started.
        start_error: Why the command could not be started.
        exit_code: Of the agent; negative for a signal; None until it was told.
        is_over: Nothing more will be told.
    """

    def __init__(self, fd: int) -> None:
        self._pipe, write_end = os.pipe()
        os.dup2(write_end, fd)
        os.close(write_end)
        self._buffer = b""
        self.pid = 0
        self.start_error = ""
        self.exit_code: int | None = None
        self.is_over = False

    def read(self, *, timeout_s: float) -> None:
        """Takes what has been told, and waits for the first of it."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while not self.is_over and poll.poll(timeout_s * 1000):
            data = os.read(self._pipe, 65536)
            self.is_over = not data
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            timeout_s = 0.0

    def _take(self, line: Line) -> None:
        self.pid = line.get("pid", self.pid)
        self.start_error = line.get("start_error", self.start_error)
        self.exit_code = line.get("exit_code", self.exit_code)
