"""A small catalogue for tests, and the command that prepares it in a process of its own."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rl_bench import prepare
from rl_bench.data.catalogue import DataFile, Dataset, Download
from rl_bench.data.records import RECORDS_FILE
from tests.rl_bench.data.file_server import FileServer

ROOT = Path(__file__).resolve().parents[3]
HOST = "public.example"
TRAIN = random.Random(1).randbytes(300_000)
TEST = b"one\ntwo\n"
RAW = b"upper"
PUBLIC = {"train.bin": TRAIN, "test.txt": TEST, "raw.txt": RAW, "more.txt": b"more", "x": b"x"}


def address(name: str) -> str:
    """Where the server stands in for a public file."""
    return f"/{HOST}/{name}"


def upper(downloads: Mapping[str, Path], target: Path) -> None:
    """A file that is made: its downloads in capitals."""
    target.write_bytes(b"".join(path.read_bytes() for path in downloads.values()).upper())


def download(name: str, *, content: bytes | None = None) -> Download:
    """A public file; pinned if its content is given."""
    return Download(
        name=name,
        url=f"https://{HOST}/{name}",
        num_bytes=None if content is None else len(content),
        sha256="" if content is None else hashlib.sha256(content).hexdigest(),
    )


LETTERS = Dataset(
    name="letters",
    licence="MIT",
    licence_url=f"https://{HOST}/LICENSE",
    files=(
        DataFile(
            path="letters/train.bin",
            content="300 kB to train on",
            downloads=(download("train.bin", content=TRAIN),),
            variants=("letters/train.bin.xz",),
        ),
        DataFile(
            path="letters/test.txt",
            content="two words",
            downloads=(download("test.txt"),),
            parts=("letters/first*.txt",),
        ),
        DataFile(
            path="letters/made.txt",
            content="a word in capitals",
            downloads=(download("raw.txt", content=RAW),),
            make=upper,
        ),
        DataFile(
            path="letters/made_too.txt",
            content="two words in capitals",
            downloads=(download("raw.txt", content=RAW), download("more.txt")),
            make=upper,
        ),
    ),
)
SPARE = Dataset(
    name="spare",
    licence="CC0",
    licence_url=f"https://{HOST}/spare",
    files=(
        DataFile(path="spare/x", content="another thing", downloads=(download("x", content=b"x"),)),
    ),
    is_extra=True,
)
CATALOGUE = {"letters": LETTERS, "spare": SPARE}
FILES = ("letters/made.txt", "letters/made_too.txt", "letters/test.txt", "letters/train.bin")
"""What preparing ``letters`` leaves in the data folder."""


def serve(server: FileServer) -> None:
    """Puts all public files on the server."""
    for name, content in PUBLIC.items():
        server.add(address(name), content)


def run(*words: str) -> int:
    """The command, in this process."""
    return prepare.main(words, catalogue=CATALOGUE)


def start(*words: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    code = (
        # A shell's background jobs, which tests may be, start with Ctrl-C ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import sys; from rl_bench.prepare import main; "
        "from tests.rl_bench.data.scene import CATALOGUE; sys.exit(main(catalogue=CATALOGUE))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Waits for it: its exit code and what it wrote."""
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def files_of(data: Path) -> list[str]:
    """Every file below a folder, by its path there."""
    return sorted(path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file())


def got(data: Path) -> list[str]:
    """The files of a data folder, without what the command keeps for itself."""
    return [name for name in files_of(data) if name not in {RECORDS_FILE, ".prepare.lock"}]
