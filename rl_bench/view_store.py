"""Views of finished runs, kept beside their ledgers, so that a resume need not read those again.

A view is taken from here only while its ledger is the very file that it was read from, of the same
size and unchanged since. One that grew, was damaged or put back from a copy is read. The store is
derived: without it, or with one of another version, every ledger is read and it is written anew.
"""

import hashlib
import logging
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rl_bench.clone import read_regular
from rl_bench.config import Frozen
from rl_bench.errors import LedgerError
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.run_view import RunView, fold_all
from rl_bench.whole_file import write_whole

log = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """What tells a file from every other, and from itself after any change."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class _Known(NamedTuple):
    stamp: Stamp
    view: RunView


class _Stored(Frozen):
    version: str
    runs: dict[str, _Known]


class ViewStore:
    """Where the runs of a sweep stand, by their ledgers.

    Args:
        paths: Of the sweep.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        self._runs = _read(paths.views)
        self._has_news = False

    def view(self, run_id: str) -> RunView:
        """Where a run stands; an empty view if it never started.

        Raises:
            LedgerError: Its ledger is damaged, or cannot be read.
        """
        ledger = self._paths.run(run_id).ledger
        stamp = _stamp(ledger)
        if stamp is None:
            return RunView(run_id=run_id)
        known = self._runs.get(run_id)
        if known is not None and known.stamp == stamp and known.view.run_id == run_id:
            return known.view
        view = fold_all(run_id, read_ledger(ledger, with_items=False))
        # The stamp is older than what was read: should the file have grown, it is read again.
        if view.is_final:
            self._runs[run_id] = _Known(stamp, view)
            self._has_news = True
        return view

    def save(self) -> None:
        """Writes what was read from ledgers, if anything was; a disk that refuses is only noted."""
        if not self._has_news:
            return
        try:
            content = _Stored(version=_version(), runs=self._runs).model_dump_json()
            write_whole(self._paths.views, content, is_shared=True)
        except (OSError, ValueError) as error:
            log.warning("cannot keep views of finished runs: %s", error)
        else:
            self._has_news = False


def _stamp(path: Path) -> Stamp | None:
    """None if there is no such file.

    Raises:
        LedgerError: It cannot be looked at.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error}") from error
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _read(path: Path) -> dict[str, _Known]:
    try:
        stored = _Stored.model_validate_json(read_regular(path))
    except (OSError, ValidationError):
        return {}  # None there, or damaged.
    return stored.runs if stored.version == _version() else {}


@cache
def _version() -> str:
    """Of all code that a view could come from: another release, or a checkout that was changed."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(f"{path}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
