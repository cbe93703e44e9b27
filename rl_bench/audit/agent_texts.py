"""The texts that an agent had in files: its code at every revision, and what lies in its workspace.

Text, JSON and CSV are read as they are, compressed ones too; Parquet and Arrow tables by a child
process with limits (`rl_bench.audit.table_process`). Everything is cut at bounds that are told.
"""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from rl_bench.audit.sources import Version, by_text, walk_files
from rl_bench.clone import open_regular

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 512 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
TABLE_TIMEOUT_S = 20.0
_TABLES = frozenset({".parquet", ".arrow", ".feather"})
_NO_TEXT = frozenset(
    {".safetensors", ".bin", ".pt", ".pth", ".npy", ".npz", ".so", ".png", ".jpg", ".zip", ".tar"}
)
_OURS = frozenset(
    {"description.md", "instructions.md", "run_meta.json", "scores.json"}
    | {"tokenizer.json", "vocab.json", "merges.txt"}
)
"""Files of the runner, and of tokenizers, which hold no texts of the agent's."""
_CHECKOUT = Path(__file__).resolve().parents[2]


class TextPiece(NamedTuple):
    """A part of a file, in order; ``is_last``: the file ends with it."""

    path: str
    revision: str
    text: str
    is_last: bool


@dataclass(slots=True)
class AgentTexts:
    """Reads the files of one run.

    Args:
        workspace: The agent's folder.
        versions: Its code over time.
        deadline: Monotonic; what is not read by then is left.

    Attributes:
        left_out: What was not read and why.
    """

    workspace: Path
    versions: Iterable[Version]
    deadline: float
    left_out: list[str] = field(default_factory=list)
    _total: int = 0

    def pieces(self) -> Iterator[TextPiece]:
        """All texts: first the code's, then the workspace's."""
        for text, version in by_text(self.versions).items():
            if self._is_over(len(text), version.path):
                return
            yield TextPiece(version.path, version.revision, text, is_last=True)
        for path in walk_files(self.workspace, skip=("code",), left_out=self.left_out):
            if path.name in _OURS or path.suffix in _NO_TEXT:
                continue
            if self._is_over(0, str(path)):
                return
            name = path.relative_to(self.workspace).as_posix().encode("utf-8", "replace").decode()
            with suppress(OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
                yield from self._of_file(path, name)

    def _is_over(self, num_bytes: int, what: str) -> bool:
        self._total += num_bytes
        if time.monotonic() > self.deadline or self._total > MAX_TOTAL_BYTES:
            self.left_out.append(f"{what} and what comes after it: no time or too much text")
            return True
        return False

    def _of_file(self, path: Path, name: str) -> Iterator[TextPiece]:
        if path.suffix in _TABLES:
            yield from self._of_table(path, name)
            return
        with open_regular(path) as raw, _unpacked(raw, path.suffix) as stream:
            if b"\0" in stream.read(4096):
                return
            stream.seek(0)
            yield from self._of_stream(stream, name)

    def _of_table(self, path: Path, name: str) -> Iterator[TextPiece]:
        left_s = min(TABLE_TIMEOUT_S, self.deadline - time.monotonic())
        if left_s <= 0 or not path.is_file():  # opening a named pipe would wait for its writer
            return
        child = subprocess.Popen(
            [sys.executable, "-m", "rl_bench.audit.table_process", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_CHECKOUT,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(_CHECKOUT)},
        )
        assert child.stdout is not None
        end = threading.Timer(left_s, child.kill)
        end.start()
        try:
            yield from self._of_stream(child.stdout, name)
        finally:
            end.cancel()
            child.kill()
            child.stdout.close()
            child.wait()

    def _of_stream(self, stream: IO[bytes] | io.BufferedIOBase, name: str) -> Iterator[TextPiece]:
        num_read = 0
        while True:
            data = stream.read(PIECE_BYTES)
            # Whole lines, so that no word is cut, unless a line has no end.
            rest = stream.readline(PIECE_BYTES) if len(data) == PIECE_BYTES else b""
            num_read += len(data) + len(rest)
            is_last = len(data) < PIECE_BYTES or num_read > MAX_FILE_BYTES
            if num_read > MAX_FILE_BYTES:
                self.left_out.append(f"{name} beyond {MAX_FILE_BYTES} bytes")
            yield TextPiece(name, "", (data + rest).decode("utf-8", "replace"), is_last)
            if is_last or self._is_over(len(data), name):
                return


def _unpacked(raw: io.BufferedReader, suffix: str) -> io.BufferedIOBase:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    return bz2.BZ2File(raw) if suffix == ".bz2" else raw
