"""What goes wrong around a sweep: a disk that fills up, a server that never answers."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

DISK_BYTES = 3 * 2**30


@contextmanager
def small_disk(folder: Path, *, num_bytes: int = DISK_BYTES) -> Iterator[bool]:
    """A file system of its own, in memory, at ``folder``; False where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder)]
    try:
        is_there = (
            os.getuid() == 0
            and not subprocess.run(command, check=False, capture_output=True, timeout=10).returncode
        )
    except OSError:
        is_there = False
    try:
        yield is_there
    finally:
        if is_there:
            # Lazily: a process that is only just ending may still look at it.
            subprocess.run(["umount", "-l", str(folder)], check=False, timeout=10)


class FilledDisk:
    """Inside the context a disk has no more than ``left_bytes`` free."""

    def __init__(self, folder: Path, *, left_bytes: int) -> None:
        self._ballast = folder / "ballast"
        self._left = left_bytes

    def __enter__(self) -> Self:
        with self._ballast.open("wb") as file:
            for _ in range(3):  # others write meanwhile
                size = shutil.disk_usage(self._ballast).free - self._left
                if size <= 0:
                    break
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size + size)
        return self

    def __exit__(self, *_: object) -> None:
        self._ballast.unlink(missing_ok=True)


class SilentServer:
    """Takes connections on loopback and never says a word."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._taken = ExitStack()
        self._thread = threading.Thread(target=self._take, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)
        self._taken.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.enter_context(self._listener.accept()[0])
