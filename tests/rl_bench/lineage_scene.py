"""A folder of code with its shadow history, as tests write and read them."""

import subprocess
from pathlib import Path

from rl_bench.lineage.code_history import CodeHistory, Revision
from rl_bench.lineage.read import CodeReader


class Lab:
    """A folder of code and its history."""

    def __init__(self, root: Path) -> None:
        self.code = root / "code"
        self.code.mkdir()
        self.path = root / "code.git"
        self.history = CodeHistory(self.code, history=self.path)

    def write(self, name: str, text: str = "x = 1\n") -> None:
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def record(self) -> Revision:
        return self.history.record("change")

    def again(self, attempt: int = 0) -> CodeHistory:
        return CodeHistory(self.code, history=self.path, attempt=attempt)

    def reader(self) -> CodeReader:
        return CodeReader(self.path)

    def paths(self, revision: str = "main") -> list[str]:
        return [file.path for file in self.reader().files(revision)]

    def left_out(self) -> dict[str, tuple[str, int]]:
        entries = self.reader().revisions()[-1].note.left_out
        return {entry.path: (entry.reason, entry.num_bytes) for entry in entries}

    def fsck(self) -> str:
        done = subprocess.run(
            ["git", "--git-dir", str(self.path), "fsck", "--full", "--strict"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr
