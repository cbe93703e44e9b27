"""What the agent's `code/` held, kept where the agent cannot rewrite it: a shadow git history.

A bare repository outside the workspace with one commit a revision, on one branch over all attempts
at the run; `rl_bench.lineage.read` reads it, and so does git. Files are read by our own reader
(`rl_bench.lineage.code_files`) and handed to ``git fast-import``, so that git never runs in the
agent's folder. A commit is stored whole or not at all: a process that is killed meanwhile leaves a
history that the next one continues.
"""

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rl_bench.clone import open_fd, read_regular, remove_tree
from rl_bench.errors import WorkspaceError
from rl_bench.lineage.code_files import Content, LeftOut, read_code, shown
from rl_bench.lineage.commit import (
    BRANCH,
    MAX_CHANGED,
    MAX_LEFT_OUT,
    Cause,
    CommitNote,
    Tree,
    blob_id,
    import_stream,
)
from rl_bench.lineage.git import GitError, run_git

log = logging.getLogger(__name__)

MAX_HISTORY_BYTES = 1_000_000_000
"""Content of all revisions of a run together, before compression."""
LOCK_LIMIT_S = 30.0
_LEFTOVERS = ("**/*.lock", "objects/pack/tmp_*", "objects/??/tmp_*", "fast_import_crash_*")


class Revision(NamedTuple):
    """A state of the code.

    Attributes:
        id: The commit's id.
        changed: Paths that differ from the revision before, cut at a limit; ``num_changed`` is
            their whole number.
        num_files: Files that it holds.
        is_new: This call stored it; False: the code is as it was.
    """

    id: str
    changed: tuple[str, ...]
    num_changed: int
    num_files: int
    is_new: bool


class _Tip(NamedTuple):
    """The last revision; an empty id: there is none yet."""

    revision: str
    tree: Tree
    left_out: frozenset[tuple[str, str]]


_NOTHING = _Tip("", {}, frozenset())


class _State(NamedTuple):
    """The code as it was read just now."""

    files: dict[bytes, Content]
    tree: dict[bytes, tuple[int, str]]
    left_out: list[LeftOut]


def submission_tag(submission_id: int, *, attempt: int = 0) -> str:
    """The tag of a submission's revision: ``submission-3``, or ``attempt-1/submission-3``."""
    name = f"submission-{submission_id}"
    return f"attempt-{attempt}/{name}" if attempt else name


class CodeHistory:
    """The revisions of one run's code; thread-safe. Nothing is touched before the first `record`.

    Args:
        code: The agent's folder.
        history: The bare repository; made when missing, continued when it is there.
        attempt: The attempt at the run, from 0.
    """

    def __init__(self, code: Path, *, history: Path, attempt: int = 0) -> None:
        self._code = code
        self._history = history
        self._attempt = attempt
        self._mutex = threading.Lock()
        self._tip: _Tip | None = None
        self._stored: set[str] = set()
        self._stored_bytes = 0
        self.num_revisions = 0

    def record(
        self, cause: Cause, *, budget_used_s: float = 0.0, submission_id: int | None = None
    ) -> Revision:
        """Stores what changed; the revision that the code is at now.

        Args:
            cause: What it is taken for.
            budget_used_s: On the run's clock.
            submission_id: A submission that gets its tag.

        Raises:
            WorkspaceError: Git or the disk refused.
        """
        with self._locked() as lock:
            tip = self._current(lock)
            state = self._state()
            changed = _changed(tip, state)
            revision = tip.revision
            is_new = not revision or bool(changed)
            if is_new:
                note = CommitNote(
                    cause=cause,
                    attempt=self._attempt,
                    budget_used_s=round(budget_used_s, 3),
                    submission_id=submission_id,
                    num_files=len(state.tree),
                    num_changed=len(changed),
                    changed=tuple(changed[:MAX_CHANGED]),
                    num_left_out=len(state.left_out),
                    left_out=tuple(state.left_out[:MAX_LEFT_OUT]),
                )
                revision = self._commit(state, note, parent=tip.revision, lock=lock)
            if submission_id is not None:
                self._tag(submission_id, revision, lock=lock)
            shown_paths = tuple(changed[:MAX_CHANGED])
            return Revision(revision, shown_paths, len(changed), len(state.tree), is_new)

    def tag_submission(self, submission_id: int, revision: str) -> None:
        """Points a submission's tag at its revision; safe to repeat.

        Raises:
            WorkspaceError: Git refused, or there is no such revision.
        """
        with self._locked() as lock:
            self._tag(submission_id, revision, lock=lock)

    def _tag(self, submission_id: int, revision: str, *, lock: int) -> None:
        name = f"refs/tags/{submission_tag(submission_id, attempt=self._attempt)}"
        self._git("cat-file", "-e", f"{revision}^{{commit}}", lock=lock)
        self._git("update-ref", name, revision, lock=lock)

    def _state(self) -> _State:
        """The code as it is now, less what would make the whole history too large."""
        code = read_code(self._code)
        state = _State({}, {}, list(code.left_out))
        room = MAX_HISTORY_BYTES - self._stored_bytes
        for path, content in code.files.items():
            blob, size = blob_id(content.data), len(content.data)
            cost = 0 if blob in self._stored else size
            if cost > room:
                left = LeftOut(path=shown(path), reason="history_full", num_bytes=size)
                state.left_out.append(left)
                continue
            room -= cost
            state.files[path] = content
            state.tree[path] = (content.mode, blob)
        return state

    def _commit(self, state: _State, note: CommitNote, *, parent: str, lock: int) -> str:
        stream = import_stream(
            state.files,
            tree=state.tree,
            stored=self._stored,
            note=note,
            parent=parent,
            when=datetime.now(UTC),
        )
        try:
            # Told where the stream ends: one that breaks off stores nothing.
            printed = self._git("fast-import", "--quiet", "--done", stdin=stream, lock=lock)
            revision = printed.decode("ascii", "replace").strip()
            if not revision or self._resolve(BRANCH, lock=lock) != revision:
                raise WorkspaceError(f"git did not store a revision in {self._history}")
        except WorkspaceError:
            # Whatever is wrong with what is there: the next time all is handed over again.
            self._tip = None
            raise
        sizes = {blob: len(state.files[path].data) for path, (_, blob) in state.tree.items()}
        self._stored_bytes += sum(num for blob, num in sizes.items() if blob not in self._stored)
        self._stored |= set(sizes)
        left_out = frozenset((entry.path, entry.reason) for entry in state.left_out)
        self._tip = _Tip(revision, state.tree, left_out)
        self.num_revisions += 1
        return revision

    # The repository

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Holds the history against other threads and processes; gives the lock's descriptor."""
        with self._mutex:
            try:
                self._history.parent.mkdir(parents=True, exist_ok=True)
                path = self._history.with_name(f".{self._history.name}.lock")
                with open_fd(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW) as lock:
                    _take(lock, self._history)
                    self._make()
                    yield lock
            except OSError as error:
                raise WorkspaceError(
                    f"the code history {self._history} cannot be written: {error}",
                    cure="Check free space and permissions of the results folder",
                ) from error

    def _make(self) -> None:
        if (self._history / "HEAD").is_file():
            return
        _set_aside(self._history)
        self._tip = None
        draft = self._history.with_name(f".{self._history.name}.draft")
        remove_tree(draft)
        draft.mkdir()
        run_git(draft, ["init", "--bare", "--quiet", "--template="])
        (draft / "HEAD").write_text(f"ref: {BRANCH}\n", encoding="ascii")
        draft.rename(self._history)

    def _current(self, lock: int) -> _Tip:
        """Where the history stands; read anew when somebody else has written."""
        branch = self._history / BRANCH
        stored = read_regular(branch).decode(errors="replace").strip() if branch.exists() else ""
        if self._tip is None or self._tip.revision != stored:
            return self._load(lock)
        return self._tip

    def _load(self, lock: int) -> _Tip:
        """Where a history that is there stands; one that is damaged is set aside."""
        # With the lock held, nobody alive is writing these.
        for pattern in _LEFTOVERS:
            for path in self._history.glob(pattern):
                path.unlink(missing_ok=True)
        try:
            revision = self._resolve(BRANCH, lock=lock)
            if not revision and (self._history / BRANCH).exists():
                raise GitError(f"the branch of {self._history} is damaged")
            tip = self._read_tip(revision, lock=lock) if revision else _NOTHING
        except GitError as error:
            log.warning("%s: set aside, a new history begins: %s", self._history, error)
            _set_aside(self._history)
            self._make()
            tip = _NOTHING
        if not tip.revision:
            self.num_revisions = 0
        self._stored = {blob for _, blob in tip.tree.values()}
        self._stored_bytes = _size(self._history / "objects")
        self._tip = tip
        return tip

    def _read_tip(self, revision: str, *, lock: int) -> _Tip:
        listed = self._git("ls-tree", "-r", "-z", "--full-tree", revision, lock=lock)
        tree: dict[bytes, tuple[int, str]] = {}
        for line in listed.split(b"\0")[:-1]:
            facts, path = line.split(b"\t", 1)
            mode, _, blob = facts.split(b" ")
            tree[path] = (int(mode, 8), blob.decode())
        # Each content is looked for, so that a history with holes is noticed now.
        wanted = "\n".join(blob for _, blob in tree.values()).encode()
        checked = self._git("cat-file", "--batch-check", stdin=wanted, lock=lock)
        if b" missing" in checked:
            raise GitError(f"{self._history} lacks contents of its last revision")
        self.num_revisions = int(self._git("rev-list", "--count", revision, lock=lock))
        commit = self._git("cat-file", "commit", revision, lock=lock)
        left_out: frozenset[tuple[str, str]] = frozenset()
        # What no message tells, or tells only in part, is taken as a change once.
        with contextlib.suppress(WorkspaceError):
            note = CommitNote.parse(commit.split(b"\n\n", 1)[1])
            left_out = frozenset((entry.path, entry.reason) for entry in note.left_out)
        return _Tip(revision, tree, left_out)

    def _resolve(self, name: str, *, lock: int) -> str:
        printed = self._git("for-each-ref", "--format=%(refname) %(objectname)", name, lock=lock)
        lines = [line.split(" ") for line in printed.decode("ascii", "replace").splitlines()]
        return next((line[1] for line in lines if line[0] == name), "")

    def _git(self, *args: str, lock: int, stdin: bytes = b"") -> bytes:
        return run_git(self._history, args, stdin=stdin, keep_open=(lock,))


def _changed(tip: _Tip, state: _State) -> list[str]:
    """Paths whose content, mode or being left out differs; a left-out file may grow."""
    old, new = tip.tree, state.tree
    paths = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    left_out = frozenset((entry.path, entry.reason) for entry in state.left_out)
    fresh = sorted(path for path, _ in left_out - tip.left_out)
    return list(dict.fromkeys([*map(shown, paths), *fresh]))


def _take(lock: int, history: Path) -> None:
    deadline = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise WorkspaceError(f"the code history {history} has another writer") from error
            time.sleep(0.02)


def _set_aside(history: Path) -> None:
    """Moves what cannot be continued out of the way, and keeps it."""
    if not history.exists() and not history.is_symlink():
        return
    number = 1
    while (target := history.with_name(f"{history.name}.damaged-{number}")).exists():
        number += 1
    history.rename(target)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
