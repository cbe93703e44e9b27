"""``wandb/mirrored.json``: which runs were mirrored to their end, so that none is mirrored twice.

A run counts while its mirror is there: offline, W&B's files of it in this folder. Files that were
seen to be synced may go, as may those of online runs, since W&B itself has these. Of files that go
before anybody saw a sign of their sync, nothing is known: their runs are mirrored again, under the
same ids.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rl_bench.clone import read_regular
from rl_bench.whole_file import write_whole

log = logging.getLogger(__name__)
COMPARISON = "comparison"
"""The name of the mirror of the sweep itself; its mark is empty."""
_OFFLINE = "offline-run-"


class _Done(NamedTuple):
    mark: str
    is_online: bool


class Mirrored:
    """What W&B has of a sweep, as its folder tells.

    Args:
        folder: A sweep's ``wandb/``.
        sweep: Its name, with which ids in W&B begin.
    """

    def __init__(self, folder: Path, *, sweep: str) -> None:
        self._folder = folder
        self._path = folder / "mirrored.json"
        found = _read(self._path)
        there = {file.stem: file for file in _offline_files(folder)} if found else {}
        self._done: dict[str, _Done] = {}
        for name, done in found.items():
            file = there.get(f"run-{sweep}-{name}")
            if done.is_online or (file is not None and _is_synced(file)):
                self._done[name] = _Done(done.mark, is_online=True)
            elif file is not None:
                self._done[name] = done
        if self._done != found:
            try:
                self._write()
            except OSError as error:
                log.warning("cannot note what W&B has: %s", error)

    def has(self, name: str, mark: str = "") -> bool:
        """Whether the run ``name`` was mirrored to its end, which is at ``mark``."""
        done = self._done.get(name)
        return done is not None and done.mark == mark

    def note(self, name: str, mark: str = "", *, is_online: bool) -> None:
        """Notes that it was.

        Raises:
            OSError: The disk refused.
        """
        self._done[name] = _Done(mark, is_online)
        self._write()

    def forget(self, name: str) -> None:
        """Notes that it is mirrored anew.

        Raises:
            OSError: The disk refused.
        """
        if self._done.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        write_whole(self._path, json.dumps(self._done))


def _read(path: Path) -> dict[str, _Done]:
    try:
        found = json.loads(read_regular(path)).items()
        return {str(name): _Done(str(mark), bool(online)) for name, (mark, online) in found}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}  # Nothing was mirrored to the end yet: mirror again.


def _offline_files(folder: Path) -> Iterator[Path]:
    """W&B's own file of each offline run: ``offline-run-DATE_TIME-ID/run-ID.wandb``."""
    for run in folder.glob(f"{_OFFLINE}*"):
        wandb_id = run.name.removeprefix(_OFFLINE).partition("-")[2]
        file = run / f"run-{wandb_id}.wandb"
        if file.is_file():
            yield file


def _is_synced(file: Path) -> bool:
    """Whether ``wandb sync`` has left its sign."""
    return file.with_suffix(".wandb.synced").exists()
