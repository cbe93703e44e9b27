"""Runs recorded commands where they were run: in the workspace, one after the other.

Output goes to one log. What a command leaves running in the background stays, as it did then; this
process adopts it, so that it is known and can be waited for.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from rl_bench.agents.replay.recording import Command

POLL_S = 0.05
MIN_LIMIT_S = 120.0
SLOWER = 4.0
"""A command may take so much longer than it did when it was recorded."""
_PR_SET_CHILD_SUBREAPER = 36
_SCRIPTS = (".py", ".sh")
_ENDED_IN = "RL_BENCH_REPLAY_FOLDER"


class Outcome(NamedTuple):
    """How a command ended; no exit code: it was ended for taking too long."""

    exit_code: int | None
    duration_s: float


class Shell:
    """Runs commands in a workspace.

    Args:
        workspace: Where the first one starts.
        env: The whole environment.
        log: Takes all output.
        rewrite: Turns what a command says of the recorded run's places into this run's.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        env: Mapping[str, str],
        log: Path,
        rewrite: Callable[[str], str] = lambda text: text,
    ) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._workspace = workspace
        self._folder = workspace
        self._env = dict(env)
        self._log = log
        self._rewrite = rewrite
        self._before = frozenset(_living_children())

    def run(self, command: Command) -> Outcome:
        """Runs one to its end; what it started in the background may go on."""
        with tempfile.NamedTemporaryFile(prefix="replay-folder-") as ended_in:
            self._env[_ENDED_IN] = ended_in.name
            outcome = self._run(command)
            told = Path(ended_in.name).read_text(encoding="utf-8", errors="surrogateescape")
        if told.strip() and Path(told.rstrip("\n")).is_dir():
            self._folder = Path(told.rstrip("\n"))
        return outcome

    def background(self) -> list[int]:
        """Processes that earlier commands left running."""
        return [pid for pid in _living_children() if pid not in self._before]

    def wait_for_background(self, limit_s: float) -> None:
        """Returns when nothing runs in the background any more, or after ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self.background():
            time.sleep(POLL_S)

    def _argv(self, command: Command) -> list[str]:
        if command.is_agent:
            values = {"{python}": sys.executable, "{workspace}": str(self._workspace)}
            pattern = re.compile("|".join(map(re.escape, values)))
            return [pattern.sub(lambda match: values[match[0]], word) for word in command.argv]
        if command.argv:
            return [self._rewrite(word) for word in command.argv]
        text = self._rewrite(command.text)
        if command.keeps_folder:
            text = f"trap 'pwd -P > \"${_ENDED_IN}\"' EXIT\n{text}"
        return ["bash", "-c", text]

    def _start_folder(self, command: Command) -> Path:
        if command.keeps_folder:
            return self._folder
        return _folder_of(command.argv, self._workspace)

    def _run(self, command: Command) -> Outcome:
        argv = self._argv(command)
        began = time.monotonic()
        limit_s = None
        if command.duration_s is not None:
            limit_s = max(MIN_LIMIT_S, SLOWER * command.duration_s)
        with self._log.open("ab") as log:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=self._start_folder(command),
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{argv[0]} cannot be started: {error}\n".encode())
                return Outcome(127, time.monotonic() - began)
        try:
            exit_code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            exit_code = None
        return Outcome(exit_code, time.monotonic() - began)


def _folder_of(argv: Sequence[str], workspace: Path) -> Path:
    """Where a process was started: its record does not say, the files that it names do."""
    named = [word for word in argv[1:] if word.endswith(_SCRIPTS) and not word.startswith("/")]
    for folder in (workspace, workspace / "code", workspace / "output"):
        if all((folder / word).is_file() for word in named):
            return folder
    return workspace


def _living_children() -> list[int]:
    children = psutil.Process().children(recursive=True)
    return [process.pid for process in children if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
