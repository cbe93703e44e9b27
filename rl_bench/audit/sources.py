"""The agent's text files over time: its code at every revision, and what else lies about.

Paths are relative to the workspace. A file's versions are in order of the run's clock; what was
found only at the end has the time 0, as if it had been there all along.
"""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl_bench.audit.commands import WrittenFile
from rl_bench.clone import open_regular
from rl_bench.errors import RlBenchError
from rl_bench.lineage.git import TIMEOUT_S
from rl_bench.lineage.objects import ObjectReader, changed_files
from rl_bench.lineage.read import RevisionInfo, list_revisions

MAX_HISTORY_BYTES = 128 * 1024 * 1024
MAX_REVISIONS = 2000
MAX_LOOSE_FILES = 400
MAX_LOOSE_BYTES = 1_000_000
MAX_WALKED = 50_000
MAX_DEPTH = 64
CODE_SUFFIXES = frozenset({".py", ".sh", ".bash", ".yaml", ".yml", ".ipynb"})
_NOT_THE_AGENTS = frozenset({"data", "models"})
"""Folders of the workspace that the runner fills."""
_SKIPPED = frozenset({"__pycache__", ".git", ".venv", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a file held from a time on; ``revision`` is empty outside the code history."""

    path: str
    text: str
    since_s: float
    revision: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The code history of one attempt; ``problem`` says why it is not whole, or not there."""

    versions: tuple[Version, ...] = ()
    problem: str = ""
    is_there: bool = True


def read_history(folder: Path, *, attempt: int, budget_s: float) -> History:
    """Every version of every text file under ``code/``."""
    if not (folder / "HEAD").is_file():
        return History(problem="there is no code history", is_there=False)
    versions: list[Version] = []
    try:
        with ObjectReader(folder, timeout_s=budget_s + TIMEOUT_S) as objects:
            revisions = [r for r in list_revisions(objects) if r.note.attempt == attempt]
            # What was read before a damaged revision stays.
            problem = _read_changes(
                objects,
                revisions[:MAX_REVISIONS],
                versions,
                deadline=time.monotonic() + budget_s,
            )
        if len(revisions) > MAX_REVISIONS:
            problem = problem or f"only {MAX_REVISIONS} of {len(revisions)} revisions were read"
    except (RlBenchError, OSError, ValueError, IndexError, KeyError) as error:
        problem = f"the code history cannot be read: {error}"
    return History(tuple(versions), problem)


def _read_changes(
    objects: ObjectReader,
    revisions: Sequence[RevisionInfo],
    into: list[Version],
    *,
    deadline: float,
) -> str:
    """Adds the text files that each revision added or changed; why not of all of them."""
    tree = ""
    total = 0
    for revision in revisions:
        if time.monotonic() > deadline:
            return "there was no time to read every revision"
        before, tree = tree, objects.read(f"{revision.id}^{{tree}}").id
        num_known = len(into)
        for path, blob in changed_files(objects, before, tree):
            data = objects.read(blob).data
            total += len(data)
            if total > MAX_HISTORY_BYTES:
                del into[num_known:]
                return f"revisions beyond {MAX_HISTORY_BYTES} bytes of changes were not read"
            if b"\0" not in data[:8192]:
                into.append(_version(path, data, revision))
    return ""


def _version(path: bytes, data: bytes, revision: RevisionInfo) -> Version:
    return Version(
        path=f"code/{_printable(path.decode('utf-8', 'surrogateescape'))}",
        text=data.decode("utf-8", "replace"),
        since_s=revision.note.budget_used_s,
        revision=revision.id,
    )


def loose_files(
    workspace: Path, *, skip: Iterable[str] = ("code",), left_out: list[str] | None = None
) -> Iterator[Version]:
    """Code that lies in the workspace outside the history, as it was at the end.

    Args:
        workspace: The folder.
        skip: Names at its top that are left out.
        left_out: Gets what was not read, in words.
    """
    told = [] if left_out is None else left_out
    found = 0
    for path in walk_files(workspace, skip=skip, left_out=told):
        if path.suffix not in CODE_SUFFIXES or _is_the_clis(path.relative_to(workspace)):
            continue
        if found == MAX_LOOSE_FILES:
            told.append(f"more than {MAX_LOOSE_FILES} files of code outside code/")
            return
        with suppress(OSError), open_regular(path) as file:
            if os.fstat(file.fileno()).st_size <= MAX_LOOSE_BYTES:
                text = file.read(MAX_LOOSE_BYTES).decode("utf-8", "replace")
                name = _printable(path.relative_to(workspace).as_posix())
                found += 1
                yield Version(path=name, text=text, since_s=0.0)


def _is_the_clis(path: Path) -> bool:
    """What an agent's CLI keeps of its own in its HOME: skills, settings, sessions."""
    return path.parts[0] == ".home" and any(part.startswith(".") for part in path.parts[1:-1])


def walk_files(
    workspace: Path, *, skip: Iterable[str] = (), left_out: list[str] | None = None
) -> Iterator[Path]:
    """Files of the agent's in its workspace, links not followed, up to a number and a depth.

    Folder by folder, the shallow ones first, so that no deep tree hides what lies beside it.

    Args:
        workspace: The folder.
        skip: Names at its top that are left out.
        left_out: Gets what was not looked at, in words.
    """
    told = [] if left_out is None else left_out
    outside = _NOT_THE_AGENTS | set(skip)
    folders = deque([(workspace, 0)])
    seen = 0
    while folders:
        folder, depth = folders.popleft()
        names = []
        for name, is_folder in _entries(folder, told):
            if not is_folder:
                names.append(name)
            elif name in _SKIPPED or (depth == 0 and name in outside):
                continue
            elif depth < MAX_DEPTH:
                folders.append((folder / name, depth + 1))
            else:
                told.append(f"{_printable(name)} and others, {MAX_DEPTH} folders deep")
        for name in names:
            seen += 1
            if seen > MAX_WALKED:
                told.append(f"more than {MAX_WALKED} files")
                return
            yield folder / name


def _entries(folder: Path, told: list[str]) -> list[tuple[str, bool]]:
    """Names in a folder, sorted, and whether each is a folder; without links."""
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) >= MAX_WALKED:
                    told.append(f"more than {MAX_WALKED} names in {_printable(folder.name)}")
                    break
                if not entry.is_symlink():
                    found.append((entry.name, entry.is_dir(follow_symlinks=False)))
    except OSError as error:  # a path that is too long, a folder that may not be read
        told.append(f"{_printable(folder.name)}: {error.strerror}")
    return sorted(found)


def written(files: Iterable[tuple[float, WrittenFile]], *, root: Path) -> Iterator[Version]:
    """Files that commands of the trace wrote."""
    for since_s, file in files:
        path = file.path.removeprefix(f"{root}/")
        yield Version(path=path, text=file.text, since_s=since_s)


def at_time(versions: Iterable[Version], used_s: float) -> dict[str, Version]:
    """The version of each file at a time: the last before, or the first at all."""
    found: dict[str, Version] = {}
    for version in versions:
        known = found.get(version.path)
        if known is None or known.since_s <= version.since_s <= used_s:
            found[version.path] = version
    return found


def as_python(version: Version) -> str | None:
    """The Python text of a script or notebook; None for other files."""
    if version.path.endswith(".ipynb"):
        return _notebook_code(version.text)
    is_script = version.path.endswith(".py") or version.text.startswith("#!/usr/bin/env python")
    return version.text if is_script else None


def _notebook_code(text: str) -> str | None:
    try:
        cells = json.loads(text)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    lines = "\n".join(code).split("\n")
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def by_text(versions: Iterable[Version]) -> Mapping[str, Version]:
    """One version of each different text, the first."""
    found: dict[str, Version] = {}
    for version in versions:
        found.setdefault(version.text, version)
    return found


def _printable(path: str) -> str:
    return path.encode("utf-8", "replace").decode("utf-8")
