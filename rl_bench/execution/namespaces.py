"""A root of its own: an empty, read-only file system with a bare Python in it, and nothing else.

There is no ``/proc``, no ``/tmp``, no ``/dev``; the interpreter's files are at their usual paths.
Run in a child that has its own mount namespace; other mounts of the machine are not touched.
"""

import os
from pathlib import Path

from rl_bench.execution import libc
from rl_bench.execution.interpreter import InterpreterFiles

OWN = (
    libc.CLONE_NEWNS
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWNET
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWCGROUP
)
"""Mounts, processes, network, System V objects, host name, cgroups."""
HOME = "/empty"
_UID_INSIDE = 1000


def map_ids(uid: int, gid: int) -> None:
    """Makes this user an ordinary one in the user namespace that it has just entered.

    Args:
        uid: Its uid outside.
        gid: Its gid outside.
    """
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{_UID_INSIDE} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{_UID_INSIDE} {gid} 1")


def enter_root(files: InterpreterFiles) -> None:
    """Leaves this process in `HOME` of a new root that holds ``files`` only.

    Raises:
        OSError: The kernel refuses a mount.
    """
    os.umask(0o022)
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    # /proc is there on every machine, and none of `files` is in it.
    root = Path("/proc")
    libc.mount("tmpfs", str(root), "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "size=1m,mode=755")
    for folder in (*files.shared, files.library):
        _show_folder(folder, root=root)
    for file in (files.executable, *files.shared_files):
        _show_file(file, root=root)
    for folder in files.packages:
        hidden = str(_below(root, folder))
        libc.mount("tmpfs", hidden, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "size=4k,mode=755")
    for link, target in files.links:
        _below(root, link).symlink_to(target)
    _below(root, Path(HOME)).mkdir()
    libc.pivot_into(str(root))
    libc.make_read_only("/")
    os.chdir(HOME)


def _show_folder(folder: Path, *, root: Path) -> None:
    place = _below(root, folder)
    if place.is_dir():  # within one that was shown before
        return
    place.mkdir(parents=True)
    libc.mount(str(folder), str(place), "", libc.MS_BIND | libc.MS_REC)


def _show_file(file: Path, *, root: Path) -> None:
    place = _below(root, file)
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    libc.mount(str(file), str(place), "", libc.MS_BIND)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
