"""Reads a repository's objects one after another, all from one process of git.

To start git costs more than to read what an agent's code usually is, so a whole history is walked
through one `ObjectReader`: its commits, their trees, and the files that differ.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import NamedTuple, Self

from rl_bench.errors import WorkspaceError
from rl_bench.lineage.code_files import LINK
from rl_bench.lineage.git import TIMEOUT_S, GitError, open_git

_FOLDER = 0o040000
_ID_BYTES = 20


class GitObject(NamedTuple):
    """An object's id and content."""

    id: str
    data: bytes


class _TreeEntry(NamedTuple):
    mode: int
    id: str


class ObjectReader:
    """A process of git that tells what objects hold; use as a context manager.

    Args:
        repository: A bare repository.
        timeout_s: It is killed after this, whatever it has still to tell.

    Raises:
        WorkspaceError: Git could not be started.
    """

    def __init__(self, repository: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self.repository = repository
        self._git = open_git(repository, ["cat-file", "--batch"])
        self._timer = Timer(timeout_s, self._git.kill)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._git.kill()
        self._git.communicate()

    def find(self, name: str) -> GitObject | None:
        """The object of that name, which may be a ref's or ``ID^{tree}``; None: there is none.

        Raises:
            GitError: Git ended: the object is damaged, or it took too long.
        """
        asked, told = self._git.stdin, self._git.stdout
        assert asked is not None
        assert told is not None
        try:
            asked.write(f"{name}\n".encode())
            asked.flush()
            header = told.readline().split()
            if len(header) == 3:
                data = told.read(int(header[2]))
                if told.read(1) == b"\n":
                    return GitObject(header[0].decode(), data)
            elif header:
                return None
        except OSError:  # it ended before it could be asked
            pass
        raise GitError(f"git cat-file on {self.repository} ended at {name}: {self._last_words()}")

    def read(self, name: str) -> GitObject:
        """The object of that name.

        Raises:
            WorkspaceError: There is none, or see `find`.
        """
        found = self.find(name)
        if found is None:
            raise WorkspaceError(f"{self.repository} lacks object {name}")
        return found

    def _last_words(self) -> str:
        self._git.kill()  # it may have closed its output and live on
        said = self._git.stderr.read() if self._git.stderr is not None else b""
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[0][:300] if lines else "it was killed, or took too long"


def changed_files(
    objects: ObjectReader, old: str, new: str, *, folder: bytes = b""
) -> Iterator[tuple[bytes, str]]:
    """Path and blob of every file of tree ``new`` that is not so in tree ``old``, in git's order.

    A link is no file here, and a mode alone is no difference.

    Args:
        objects: Where they are read.
        old: The earlier tree's id; empty: nothing.
        new: The later one's.
        folder: Stands before paths.

    Raises:
        WorkspaceError: A tree is not there, or is damaged.
    """
    before = _entries(objects, old) if old else {}
    for name, entry in _entries(objects, new).items():
        was = before.get(name)
        if entry.mode == _FOLDER:
            was_id = was.id if was is not None and was.mode == _FOLDER else ""
            if entry.id != was_id:
                inner = folder + name + b"/"
                yield from changed_files(objects, was_id, entry.id, folder=inner)
        elif entry.mode != LINK and (was is None or was.mode == LINK or was.id != entry.id):
            yield folder + name, entry.id


def _entries(objects: ObjectReader, tree: str) -> dict[bytes, _TreeEntry]:
    """What lies in a tree, by name: ``MODE NAME NUL ID`` again and again."""
    data = objects.read(tree).data
    found = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        after = end + 1 + _ID_BYTES
        found[data[space + 1 : end]] = _TreeEntry(
            int(data[at:space], 8), data[end + 1 : after].hex()
        )
        at = after
    return found
