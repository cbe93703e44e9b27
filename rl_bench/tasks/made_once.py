"""Folders that are made once in a cache and then shared by concurrent runs."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Makes the folder ``target`` unless it is there; safe under concurrent processes.

    Args:
        target: The finished folder.
        make: Fills the empty folder that it is given; what it raises leaves no trace.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(target.name + ".lock")):
        if target.is_dir():
            return target
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=target.name + ".partial-"))
        try:
            make(aside)
            aside.chmod(0o755)  # mkdtemp's own mode would hide it from the agent's user
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target
