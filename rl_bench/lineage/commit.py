"""A revision's commit: the message that carries its facts, and the stream that makes git store it.

The message is a line for people and a line of JSON, `CommitNote`. Names in it are for reading; the
commit's tree has the exact ones.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from pydantic import ValidationError

from rl_bench.config import Frozen
from rl_bench.counts import plural
from rl_bench.errors import WorkspaceError
from rl_bench.lineage.code_files import Content, LeftOut

BRANCH = "refs/heads/main"
MAX_CHANGED = 100
MAX_LEFT_OUT = 50
Cause = Literal["change", "submission", "end"]
Tree = Mapping[bytes, tuple[int, str]]
"""Mode and blob id by path."""


class CommitNote(Frozen):
    """What a commit says of itself.

    Attributes:
        attempt: The attempt at the run, from 0.
        budget_used_s: On the run's clock.
        submission_id: The submission that it was taken for.
        changed: Paths that differ from the revision before, cut at `MAX_CHANGED`.
        left_out: Of `num_left_out` things that are not kept, the first `MAX_LEFT_OUT`.
    """

    cause: Cause
    attempt: int = 0
    budget_used_s: float = 0.0
    submission_id: int | None = None
    num_files: int
    num_changed: int
    changed: tuple[str, ...] = ()
    num_left_out: int = 0
    left_out: tuple[LeftOut, ...] = ()

    def message(self) -> bytes:
        """The commit's message."""
        of = "" if self.submission_id is None else f" {self.submission_id}"
        changed = plural(self.num_changed, "file")
        subject = f"{self.cause}{of}: {changed} changed, {self.num_files} kept"
        return f"{subject}\n\n{self.model_dump_json(exclude_defaults=True)}\n".encode()

    @classmethod
    def parse(cls, message: bytes) -> "CommitNote":
        """Reads a commit's message.

        Raises:
            WorkspaceError: It is none of ours.
        """
        try:
            return cls.model_validate_json(message.split(b"\n\n", 1)[-1])
        except ValidationError as error:
            raise WorkspaceError("a commit of the code history has a foreign message") from error


def blob_id(data: bytes) -> str:
    """Git's name for a file's content."""
    header = b"blob %d\0" % len(data)
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()


def import_stream(
    files: Mapping[bytes, Content],
    *,
    tree: Tree,
    stored: Iterable[str],
    note: CommitNote,
    parent: str,
    when: datetime,
) -> bytes:
    """Input of ``git fast-import`` that adds one commit and prints its id once it is stored.

    Args:
        files: All files of the commit.
        tree: The same as modes and blob ids.
        stored: Blob ids that the repository has already.
        note: Its facts.
        parent: The commit before; empty for none.
        when: Its date, with an offset.
    """
    known = set(stored)
    message = note.message()
    stamp = b"rl_bench <rl_bench@localhost> %d +0000" % int(when.timestamp())
    parts = [
        b"commit %s\nmark :1\ncommitter %s\n" % (BRANCH.encode(), stamp),
        b"data %d\n%s\n" % (len(message), message),
        b"from %s\n" % parent.encode() if parent else b"",
        b"deleteall\n",
    ]
    for path, content in files.items():
        mode, blob = tree[path]
        if blob in known:
            parts.append(b"M %o %s %s\n" % (mode, blob.encode(), _quoted(path)))
        else:
            parts.append(b"M %o inline %s\ndata %d\n" % (mode, _quoted(path), len(content.data)))
            parts.append(content.data + b"\n")
    parts.append(b"\ncheckpoint\n\nget-mark :1\ndone\n")
    return b"".join(parts)


def _quoted(path: bytes) -> bytes:
    safe = frozenset(range(0x20, 0x7F)) - {0x22, 0x5C}
    return b'"%s"' % b"".join(b"%c" % c if c in safe else b"\\%03o" % c for c in path)
