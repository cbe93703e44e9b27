"""Takes a submitted folder in: resolves its path, checks its headers, keeps a copy of its bytes.

A snapshot is named by the hash of its own bytes, computed on the copy, so that a verdict belongs to
exactly what was graded whatever the agent does to its folder meanwhile. Copies are reflinks or
plain copies, never hard links, which an in-place write to the original would reach. Equal content
is stored once for all runs of a sweep; several processes may store at the same time. Snapshots
survive the death of any process; they are not flushed to disk against the loss of the machine.
"""

import contextlib
import errno
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rl_bench.checkpoint import (
    CheckpointHeader,
    check_submission,
    checkpoint_files,
    content_hash,
    inspect,
)
from rl_bench.clone import OutsideError, clone_file
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.tensor_bytes import same_weights

MAX_PATH_CHARS = 1024
_OUR_FAULT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE})


class Snapshot(NamedTuple):
    """An accepted checkpoint.

    Attributes:
        folder: The copy, which nobody changes.
        content_hash: Of the copy's bytes.
        model_path: The submitted folder, relative to the workspace where it lies in it.
        unchanged: The weights are the base model's, bit for bit.
    """

    folder: Path
    content_hash: str
    model_path: str
    unchanged: bool


class _State(NamedTuple):
    """What tells that a file was written meanwhile."""

    path: Path
    inode: int
    num_bytes: int
    mtime_ns: int


def resolve_model_path(model_path: str, *, workspace: Path, base_model: Path) -> Path:
    """The folder that ``model_path`` names, links followed.

    Args:
        model_path: Absolute, or relative to ``workspace``.
        workspace: Resolved; the folder must lie in it.
        base_model: Resolved; the one folder outside that is allowed.

    Raises:
        SubmissionError: Status 400, with the reason.
    """
    shown = model_path if len(model_path) <= 200 else model_path[:200] + "…"
    if not model_path.strip():
        raise _bad_path("model_path is empty", "empty_path")
    if len(model_path) > MAX_PATH_CHARS:
        raise _bad_path(f"model_path has {len(model_path)} characters", "path_too_long")
    if not model_path.isprintable():
        raise _bad_path("model_path holds control characters", "bad_path")
    if model_path.startswith("~"):
        raise _bad_path(f"model_path {shown} begins with ~, which is not expanded", "bad_path")
    if ".." in Path(model_path).parts:
        raise _bad_path(f"model_path {shown} contains ..", "traversal")
    try:
        folder = (workspace / model_path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise _bad_path(f"model_path {shown} does not exist", "not_found") from error
    if not folder.is_relative_to(workspace) and folder != base_model:
        raise _bad_path(f"model_path {shown} lies outside the workspace", "outside_workspace")
    if not folder.is_dir():
        raise _bad_path(f"model_path {shown} is not a folder", "not_a_folder")
    return folder


class SubmissionStore:
    """Turns submitted folders of one run into snapshots.

    Args:
        snapshots: The sweep's folder of snapshots.
        workspace: The run's workspace.
        base_model: The base model's folder.
        base_hash: The base model's content hash, if it is known.
        check: Header-level check of a folder against the base; see `check_submission`.

    Attributes:
        base_model: The base model's folder, resolved.
        base_hash: Its content hash.
    """

    def __init__(
        self,
        snapshots: Path,
        *,
        workspace: Path,
        base_model: Path,
        base_hash: str | None = None,
        check: Callable[[Path, CheckpointHeader], None] = check_submission,
    ) -> None:
        self._snapshots = snapshots
        self._workspace = workspace.resolve()
        self.base_model = base_model.resolve()
        self._base = inspect(self.base_model)
        self._check = check
        self.base_hash = base_hash or content_hash(self.base_model)
        # A hub cache keeps a model's files as links into a folder beside it.
        homes = {path.resolve().parent for path in checkpoint_files(self.base_model)}
        self._roots = (self._workspace, self.base_model, *sorted(homes))
        snapshots.mkdir(parents=True, exist_ok=True)
        _remove_stale_drafts(snapshots)

    def take(self, model_path: str) -> Snapshot:
        """Checks and copies what ``model_path`` names. Blocks while it copies and hashes.

        Raises:
            SubmissionError: The path or the checkpoint is at fault.
            GraderError: The snapshot could not be stored.
        """
        folder = resolve_model_path(
            model_path, workspace=self._workspace, base_model=self.base_model
        )
        self._check(folder, self._base)
        draft = self._snapshots / f"{_draft_prefix()}{os.getpid()}-{uuid.uuid4().hex}"
        try:
            self._copy(folder, draft)
            # Again, on the copy: this is what will be graded.
            self._check(draft, self._base)
            digest = content_hash(draft)
            target = self._publish(draft, digest)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        inside = folder.is_relative_to(self._workspace)
        return Snapshot(
            folder=target,
            content_hash=digest,
            model_path=str(folder.relative_to(self._workspace) if inside else folder),
            unchanged=digest == self.base_hash
            or same_weights(target, self.base_model, names=sorted(self._base.weights())),
        )

    def folder(self, digest: str) -> Path:
        """Where the snapshot with that content hash lies."""
        return self._snapshots / digest

    def _copy(self, folder: Path, draft: Path) -> None:
        try:
            before = _states(folder)
            draft.mkdir()
            for state in before:
                target = draft / state.path.relative_to(folder)
                target.parent.mkdir(exist_ok=True)
                clone_file(state.path, target, roots=self._roots)
            after = _states(folder)
        except OutsideError as error:
            name = Path(str(error.filename)).name
            raise SubmissionError(
                f"{name} is a link to a place outside the workspace",
                cure="copy the file itself into the submitted folder",
                reason="outside_workspace",
                file=name,
                status=400,
            ) from error
        except OSError as error:
            if error.errno in _OUR_FAULT:
                raise GraderError(f"the snapshot could not be stored: {error}") from error
            raise SubmissionError(
                f"{error.filename or folder} cannot be read: {error.strerror}",
                cure="leave the folder alone until the submission is accepted",
                reason="unreadable",
            ) from error
        if before != after:
            raise SubmissionError(
                "the folder was written to while it was being copied",
                cure="wait until the checkpoint is completely saved, then submit it",
                reason="changed_while_copying",
                status=409,
            )

    def _publish(self, draft: Path, digest: str) -> Path:
        target = self.folder(digest)
        try:
            draft.rename(target)
        except OSError as error:
            if not target.is_dir():
                raise GraderError(f"the snapshot could not be stored: {error}") from error
        return target


def _bad_path(message: str, reason: str) -> SubmissionError:
    return SubmissionError(
        message,
        cure="give the folder of a whole checkpoint inside the workspace, e.g. output/my_model",
        reason=reason,
        status=400,
    )


def _states(folder: Path) -> Sequence[_State]:
    found = []
    for path in checkpoint_files(folder):
        status = path.stat()
        found.append(_State(path, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _draft_prefix() -> str:
    return f".draft-{socket.gethostname()}-"


def _remove_stale_drafts(snapshots: Path) -> None:
    """Copies that a killed process of this host left half done."""
    for path in snapshots.glob(f"{_draft_prefix()}*"):
        with contextlib.suppress(ValueError):
            pid = int(path.name.removeprefix(_draft_prefix()).split("-")[0])
            if not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)
