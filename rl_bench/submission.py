"""Takes a submitted folder in: resolves its path, checks its headers, keeps a copy of its bytes.

A snapshot is named by the hash of its own bytes, computed on the copy, so that a verdict belongs to
exactly what was graded whatever the agent does to its folder meanwhile. Copies are reflinks or
plain copies, never hard links, which an in-place write to the original would reach. Equal content
is stored once for all runs of a sweep; several processes may store at the same time. Snapshots
survive the death of any process; they are not flushed to disk against the loss of the machine.
"""

import contextlib
import errno
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rl_bench.checkpoint import (
    CheckpointHeader,
    check_submission,
    content_hash,
    inspect,
)
from rl_bench.checkpoint_files import checkpoint_files, file_homes
from rl_bench.clone import OutsideError, clone_file
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.lineage.references import SnapshotReferences, draft_name, draft_prefix
from rl_bench.outline import write_outline
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
    folder = workspace / model_path
    try:
        # Existence is asked last: what is outside is refused there or not, and nothing told of it.
        for strict in (False, True):
            folder = folder.resolve(strict=strict)
            if not folder.is_relative_to(workspace) and folder != base_model:
                raise _bad_path(
                    f"model_path {shown} lies outside the workspace", "outside_workspace"
                )
    except (OSError, RuntimeError, ValueError) as error:
        raise _bad_path(f"model_path {shown} does not exist", "not_found") from error
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
        run_id: The run that refers to what is stored, see `rl_bench.lineage.references`; by default
            the name of the workspace's parent folder.
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
        run_id: str = "",
        check: Callable[[Path, CheckpointHeader], None] = check_submission,
    ) -> None:
        self._snapshots = snapshots
        self._workspace = workspace.resolve()
        self._references = SnapshotReferences(
            snapshots, run_id=run_id or self._workspace.parent.name
        )
        self.base_model = base_model.resolve()
        self._base = inspect(self.base_model)
        self._check = check
        self.base_hash = base_hash or content_hash(self.base_model)
        self._roots = (self._workspace, self.base_model, *file_homes(self.base_model))
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
        self._check_outline(folder)
        draft = self._snapshots / draft_name()
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

    def _check_outline(self, folder: Path) -> None:
        outline = self._snapshots / draft_name()
        try:
            with _attributed(folder):
                write_outline(folder, outline, roots=self._roots)
            self._check(outline, self._base)
        finally:
            shutil.rmtree(outline, ignore_errors=True)

    def _copy(self, folder: Path, draft: Path) -> None:
        with _attributed(folder):
            before = _states(folder)
            draft.mkdir()
            for state in before:
                target = draft / state.path.relative_to(folder)
                target.parent.mkdir(exist_ok=True)
                clone_file(state.path, target, roots=self._roots)
            after = _states(folder)
        if before != after:
            raise SubmissionError(
                "the folder was written to while it was being copied",
                cure="wait until the checkpoint is completely saved, then submit it",
                reason="changed_while_copying",
                status=409,
            )

    def _publish(self, draft: Path, digest: str) -> Path:
        try:
            return self._references.publish(draft, digest)
        except OSError as error:
            raise GraderError(f"the snapshot could not be stored: {error}") from error


@contextlib.contextmanager
def _attributed(folder: Path) -> Iterator[None]:
    """Says whose fault it is when files of ``folder`` cannot be read or copied."""
    try:
        yield
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


def _remove_stale_drafts(snapshots: Path) -> None:
    """Copies that a killed process of this host left half done."""
    for path in snapshots.glob(f"{draft_prefix()}*"):
        with contextlib.suppress(ValueError):
            pid = int(path.name.removeprefix(draft_prefix()).split("-")[0])
            if not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)
