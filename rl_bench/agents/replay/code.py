"""Puts the agent's `code/` back to a revision of the recorded run's history, byte for byte."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from rl_bench.agents.replay.recording import ReplayError

_EXECUTABLE, _LINK = "100755", "120000"


class _File(NamedTuple):
    mode: str
    blob: str


class CodeRestorer:
    """Writes revisions into a folder. What it did not write itself it leaves alone.

    Args:
        history: The recorded run's bare repository.
        code: The folder.
    """

    def __init__(self, history: Path, code: Path) -> None:
        self._history = history
        self._code = os.fsencode(code)
        self._written: dict[bytes, _File] = {}

    def restore(self, revision: str) -> None:
        """Makes the folder what ``revision`` holds.

        Raises:
            ReplayError: The history does not hold it, or the folder cannot be written.
        """
        files = self._files(revision)
        contents = self._contents(revision, files)
        try:
            for path in self._written.keys() - files.keys():
                _clear(self._code + b"/" + path)
            for path, file in files.items():
                _write(self._code, path, file.mode, contents[path])
        except OSError as error:
            raise ReplayError(f"code/ cannot be restored to {revision[:12]}: {error}") from error
        self._written = files

    def _files(self, revision: str) -> dict[bytes, _File]:
        listed = self._git(revision, "ls-tree", "-r", "-z", "--full-tree", revision)
        found = {}
        for line in listed.split(b"\0")[:-1]:
            facts, path = line.split(b"\t", 1)
            mode, _, blob = facts.decode().split(" ")
            found[path] = _File(mode, blob)
        return found

    def _contents(self, revision: str, files: dict[bytes, _File]) -> dict[bytes, bytes]:
        names = "".join(f"{file.blob}\n" for file in files.values()).encode()
        data = self._git(revision, "cat-file", "--batch", stdin=names)
        found, at = {}, 0
        for path in files:
            end = data.index(b"\n", at)
            size = int(data[at:end].split()[2])
            found[path] = data[end + 1 : end + 1 + size]
            at = end + size + 2
        return found

    def _git(self, revision: str, *args: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", "--git-dir", str(self._history), "--no-replace-objects", *args],
            input=stdin,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise ReplayError(f"revision {revision[:12]} cannot be read: {said}")
        return done.stdout


def _write(root: bytes, path: bytes, mode: str, data: bytes) -> None:
    at = root
    for part in path.split(b"/")[:-1]:
        at += b"/" + part
        if os.path.islink(at) or not os.path.isdir(at):
            _clear(at)
            os.mkdir(at)
    target = root + b"/" + path
    if mode != _LINK and _holds(target, data):
        os.chmod(target, 0o755 if mode == _EXECUTABLE else 0o644)
        return
    _clear(target)
    if mode == _LINK:
        os.symlink(data, target)
        return
    with open(target, "wb") as file:
        file.write(data)
    os.chmod(target, 0o755 if mode == _EXECUTABLE else 0o644)


def _holds(target: bytes, data: bytes) -> bool:
    """Whether it is a file of that content; its time is then left alone."""
    if os.path.islink(target) or not os.path.isfile(target):
        return False
    with open(target, "rb") as file:
        return file.read(len(data) + 1) == data


def _clear(target: bytes) -> None:
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    elif os.path.lexists(target):
        os.unlink(target)
