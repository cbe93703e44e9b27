"""Reads a run's code history: its revisions, their files, and what changed between two.

For audits, for replay and for reports. Plumbing only; what comes back is bounded by what the writer
lets in. Paths are text with surrogate escapes, so that every name can be asked for again;
`rl_bench.lineage.code_files.shown` makes one printable.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rl_bench.errors import WorkspaceError
from rl_bench.lineage.code_files import EXECUTABLE, LINK
from rl_bench.lineage.commit import BRANCH, CommitNote
from rl_bench.lineage.git import run_git
from rl_bench.lineage.objects import ObjectReader

MAX_DIFF_CHARS = 200_000
_REVISION = re.compile(r"[0-9a-f]{7,64}|(attempt-[0-9]+/)?submission-[0-9]+|main")
_TAGS = "refs/tags/"
_STATUS = {"A": "added", "D": "deleted", "M": "modified", "T": "modified"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionInfo:
    """A revision and what its commit says.

    Attributes:
        id: The commit's id; ``parent``: of the one before, empty for the first.
        time_utc: When it was stored.
        note: Cause, attempt, clock, changed paths, what was left out.
    """

    id: str
    parent: str
    time_utc: datetime
    note: CommitNote


class FileInfo(NamedTuple):
    """A file of a revision; ``blob`` names its content."""

    path: str
    mode: int
    num_bytes: int
    blob: str

    @property
    def is_link(self) -> bool:
        """Its content is a link's text."""
        return self.mode == LINK

    @property
    def is_executable(self) -> bool:
        return self.mode == EXECUTABLE


class FileChange(NamedTuple):
    """``status``: ``added``, ``deleted`` or ``modified``."""

    path: str
    status: str


class CodeReader:
    """One run's code history.

    A revision is named by a commit's id, by a tag such as ``submission-3``, or by ``main``, the
    last one. Every method raises `WorkspaceError` for a name that is none, or that is not there.

    Args:
        history: The bare repository.

    Raises:
        WorkspaceError: There is none.
    """

    def __init__(self, history: Path) -> None:
        if not (history / "HEAD").is_file():
            raise WorkspaceError(f"there is no code history at {history}")
        self._history = history
        self._commits: frozenset[str] = frozenset()

    def revisions(self) -> tuple[RevisionInfo, ...]:
        """All of them, oldest first."""
        with ObjectReader(self._history) as objects:
            found = list_revisions(objects)
        self._commits = frozenset(revision.id for revision in found)
        return found

    def submissions(self) -> dict[str, str]:
        """The revision of each tag, e.g. of ``submission-3``."""
        args = ["for-each-ref", "--format=%(refname) %(objectname)", _TAGS]
        lines = run_git(self._history, args).decode().splitlines()
        return {name.removeprefix(_TAGS): commit for name, commit in map(str.split, lines)}

    def files(self, revision: str) -> tuple[FileInfo, ...]:
        """The files of a revision, by path."""
        args = ["ls-tree", "-r", "-l", "-z", "--full-tree", self._resolve(revision)]
        found = []
        for line in run_git(self._history, args).split(b"\0")[:-1]:
            facts, path = line.split(b"\t", 1)
            mode, _, blob, size = facts.split()
            found.append(FileInfo(_text(path), int(mode, 8), int(size), blob.decode()))
        return tuple(found)

    def read(self, revision: str, path: str) -> bytes:
        """A file's content.

        Raises:
            WorkspaceError: The revision has no such file.
        """
        wanted = [file for file in self.files(revision) if file.path == path]
        if not wanted:
            raise WorkspaceError(f"revision {revision} has no file {path!r}")
        return next(self.contents(wanted))[1]

    def contents(self, files: Iterable[FileInfo]) -> Iterator[tuple[FileInfo, bytes]]:
        """The content of each of ``files``, in order."""
        with ObjectReader(self._history) as objects:
            for file in files:
                yield file, objects.read(file.blob).data

    def changes(self, old: str | None, new: str) -> tuple[FileChange, ...]:
        """Every path that differs between two revisions; ``old`` None: all of ``new`` is added."""
        args = ["diff-tree", "-r", "-z", "--name-status", "--no-renames", *self._pair(old, new)]
        fields = run_git(self._history, args).split(b"\0")[:-1]
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return tuple(FileChange(_text(path), _STATUS[kind.decode()]) for kind, path in pairs)

    def diff(
        self,
        old: str | None,
        new: str,
        *,
        paths: Sequence[str] = (),
        max_chars: int = MAX_DIFF_CHARS,
    ) -> str:
        """A unified diff as text.

        Args:
            old: The earlier revision; None: nothing.
            new: The later one.
            paths: Only of these files or folders; empty: of all.
            max_chars: Cut here, and said so.
        """
        options = ("-r", "-p", "--text", "--no-renames", "--no-ext-diff", "--no-textconv")
        only = [f":(literal){path}".encode("utf-8", "surrogateescape") for path in paths]
        args = ["diff-tree", *options, *self._pair(old, new), "--"]
        names = [name.decode("utf-8", "surrogateescape") for name in only]
        text = run_git(self._history, [*args, *names]).decode("utf-8", "replace")
        return text if len(text) <= max_chars else text[:max_chars] + "\n… cut here\n"

    def _pair(self, old: str | None, new: str) -> tuple[str, str]:
        if old is not None:
            return self._resolve(old), self._resolve(new)
        empty = run_git(self._history, ["hash-object", "-t", "tree", "--stdin"]).decode().strip()
        return empty, f"{self._resolve(new)}^{{tree}}"

    def _resolve(self, revision: str) -> str:
        if revision in self._commits:  # git need not be asked again: what is stored stays
            return revision
        if not _REVISION.fullmatch(revision):
            raise WorkspaceError(f"{revision[:100]!r} names no revision")
        name = f"{_TAGS}{revision}" if "submission" in revision else revision
        args = [
            "rev-parse",
            "--verify",
            "--quiet",
            f"{BRANCH if name == 'main' else name}^{{commit}}",
        ]
        try:
            found = run_git(self._history, args).decode().strip()
        except WorkspaceError as error:
            raise WorkspaceError(f"{self._history} has no revision {revision}") from error
        if not found:
            raise WorkspaceError(f"{self._history} has no revision {revision}")
        return found


def list_revisions(objects: ObjectReader) -> tuple[RevisionInfo, ...]:
    """All revisions of a code history, oldest first.

    Raises:
        WorkspaceError: One is not there, is damaged, or is none of ours.
    """
    found = []
    tip = objects.find(BRANCH)
    if tip is None:  # nothing was stored yet, unless git says what is wrong
        run_git(objects.repository, ["for-each-ref", BRANCH])
    while tip is not None:
        revision = _parse_commit(*tip)
        found.append(revision)
        tip = objects.read(revision.parent) if revision.parent else None
    return tuple(reversed(found))


def _parse_commit(name: str, data: bytes) -> RevisionInfo:
    head, message = data.split(b"\n\n", 1)
    lines = [line.split(b" ", 1) for line in head.splitlines()]
    parents = [rest.decode() for key, rest in lines if key == b"parent"]
    seconds = next(int(rest.split()[-2]) for key, rest in lines if key == b"committer")
    return RevisionInfo(
        id=name,
        parent=parents[0] if parents else "",
        time_utc=datetime.fromtimestamp(seconds, UTC),
        note=CommitNote.parse(message),
    )


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
