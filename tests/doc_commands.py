"""Shell commands of the Markdown pages: where they stand, and why one is not run by tests.

A command is a line of a fenced shell block, or of an indented one, that begins with a program of
`PROGRAMS`; lines that a backslash continues are joined. A page says why a block's commands cannot
be run in a comment right above the block, which readers do not see::

    <!-- not run by tests: needs an account -->
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    *("python", "python3", "make", "ray", "rl-bench", "curl", "wandb", "duckdb", "pip", "git"),
    *("apt", "apt-get", ".", "source", "export", "cd", "bash", "sh", "sudo", "rm", "mkdir", "cp"),
    *("aws", "gcloud", "kubectl", "docker", "sbatch", "srun", "npm", "npx", "pytest", "ulimit"),
)
SHELLS = ("", "bash", "sh", "shell", "console", "text")
INDENT = "    "
_FENCE = re.compile(r"\s*(?:```|~~~)(?P<language>[^`]*)$")
_EXCUSE = re.compile(r"\s*<!-- not run by tests: (?P<reason>\S.*\S) -->\s*$")
_COMMAND = re.compile(
    r"(?:[A-Za-z_]\w*=(?!\$\()\S+ +)*(?:[A-Za-z_]\w*=\$\()?(?P<program>[\w.-]+)(?:\s|$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as a page shows it.

    Attributes:
        page: The page's path from the checkout's root.
        line: Where it begins, from 1.
        text: All of it on one line, its comment included.
        excuse: Why no test runs it; empty: one must.
    """

    page: str
    line: int
    text: str
    excuse: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def pages(root: Path) -> list[Path]:
    """The README and every page of the docs that somebody wrote."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def commands(page: Path, *, root: Path) -> list[Command]:
    """The commands of a page, in order."""
    name = page.relative_to(root).as_posix()
    found: list[Command] = []
    for excuse, block in _blocks(page.read_text(encoding="utf-8").splitlines()):
        found += [
            Command(page=name, line=number, text=text, excuse=excuse)
            for number, text in _joined(block)
            if (match := _COMMAND.match(text)) and match["program"] in PROGRAMS
        ]
    return found


def idle_excuses(page: Path) -> list[int]:
    """The lines of excuses that stand above no command."""
    lines = page.read_text(encoding="utf-8").splitlines()
    given = {n for n, line in enumerate(lines, 1) if _EXCUSE.match(line)}
    used = set()
    for command in commands(page, root=page.parent):
        above = [n for n in given if n < command.line]
        used |= {max(above)} if command.excuse else set()
    return sorted(given - used)


Line = tuple[int, str]


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[Line]]]:
    """Blocks of code, each with its excuse; fences of other languages are left out."""
    fence: str | None = None
    excuse, block = "", list[Line]()
    for number, line in enumerate([*lines, "end"], 1):
        mark = _FENCE.match(line)
        if not mark and (fence is not None or line.startswith(INDENT)):
            if fence in (None, *SHELLS):
                block.append((number, line.strip().removeprefix("$ ")))
            continue
        if not line.strip():
            continue
        if block:
            yield excuse, block
        is_begun = fence is None and mark is not None
        if block or not is_begun:
            excuse, block = "", []
        if mark:
            fence = mark["language"].strip() if is_begun else None
        elif said := _EXCUSE.match(line):
            excuse = said["reason"]


def _joined(block: Sequence[Line]) -> Iterator[Line]:
    """Lines with those that they go on in."""
    begun: Line | None = None
    for number, text in block:
        first, before = begun or (number, "")
        if text.endswith("\\"):
            begun = first, before + text[:-1].rstrip() + " "
        else:
            begun = None
            yield first, before + text
    if begun:
        yield begun
