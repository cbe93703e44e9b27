"""What each revision of a run's code changed, as lines for a page.

All diffs of a run come from one call of git. Git prints each revision's id before its diff, between
two NUL bytes; the ids are known beforehand and expected in their order, so that no content of a
file can pass for one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_bench.errors import RlBenchError
from rl_bench.lineage.git import run_git

MAX_CHARS = 20_000
"""Of one revision's diff."""
MAX_TOTAL_CHARS = 250_000
"""Of all diffs of a page."""
_OPTIONS = ("-r", "-p", "--root", "--text", "--no-renames", "--no-ext-diff", "--no-textconv")
Kind = Literal["file", "hunk", "added", "removed", "same"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class CodeDiffs:
    """By revision; ``problem`` says why there are none."""

    lines: dict[str, tuple[DiffLine, ...]]
    problem: str = ""


def code_diffs(history: Path, revisions: Sequence[str]) -> CodeDiffs:
    """The diffs of ``revisions``, each against the one before it.

    Args:
        history: The run's bare repository.
        revisions: Commit ids, oldest first.
    """
    wanted = list(dict.fromkeys(revisions))
    if not wanted:
        return CodeDiffs({})
    if not (history / "HEAD").is_file():
        return CodeDiffs({}, "The code history is not beside these results.")
    stdin = "".join(f"{name}\n" for name in wanted).encode()
    try:
        told = run_git(
            history,
            ["diff-tree", "--stdin", "--always", "--format=%x00%H%x00", *_OPTIONS],
            stdin=stdin,
        )
    except RlBenchError as error:
        return CodeDiffs({}, f"The code history cannot be read: {error.message}")
    texts = _split(told.decode("utf-8", "replace"), wanted)
    left = MAX_TOTAL_CHARS
    lines = {}
    for name, text in texts.items():
        lines[name] = _lines(text, min(left, MAX_CHARS))
        left = max(left - len(text), 0)
    return CodeDiffs(lines)


def _split(told: str, wanted: Sequence[str]) -> dict[str, str]:
    starts = []
    at = 0
    for name in wanted:
        mark = f"\0{name}\0"
        found = told.find(mark, at)
        if found < 0:
            continue
        at = found + len(mark)
        starts.append((name, found, at))
    ends = [*(start for _, start, _ in starts[1:]), len(told)][: len(starts)]
    return {
        name: told[begin:end].strip("\n")
        for (name, _, begin), end in zip(starts, ends, strict=True)
    }


def _lines(text: str, limit: int) -> tuple[DiffLine, ...]:
    shown = text[:limit].splitlines()
    lines = []
    in_hunk = False
    for line in shown:
        in_hunk = line.startswith("@@") or (in_hunk and not line.startswith("diff --git"))
        if line.startswith(("index ", "--- ", "+++ ")) and not in_hunk:
            continue
        lines.append(DiffLine(_kind(line, in_hunk=in_hunk), line))
    if len(text) > limit:
        lines.append(DiffLine("file", f"… {len(text) - limit:,} more characters"))
    return tuple(lines)


def _kind(line: str, *, in_hunk: bool) -> Kind:
    if not in_hunk:
        return "file"
    if line.startswith("@@"):
        return "hunk"
    return "added" if line.startswith("+") else "removed" if line.startswith("-") else "same"
