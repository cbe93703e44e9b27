"""The files that a bare Python needs: its executable, its standard library, shared libraries.

Nothing else of the machine is shown to a program. Installed packages are not: the data set itself,
tests included, may be one of them.
"""

import importlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LINKERS = ("/lib", "/lib64", "/usr/lib64")
"""Where a program header may say that the dynamic linker is."""
_LINKER_CACHE = Path("/etc/ld.so.cache")
_NATIVE = ("_bz2", "_ctypes", "_decimal", "_hashlib", "_lzma", "_sqlite3", "_ssl", "zlib")
"""Modules of the standard library that bring shared libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterFiles:
    """Where they are, as absolute paths.

    Attributes:
        executable: The interpreter itself, no link.
        library: Folder of the standard library.
        library_entries: What lies directly in it, without folders of installed packages.
        packages: Folders of installed packages within the folders named here, to be hidden.
        shared: Folders of shared libraries; they may hold ``library``.
        shared_files: The shared libraries of the standard library, no links.
        links: Links of the root folder that lead to such folders, and where they lead.
    """

    executable: Path
    library: Path
    library_entries: tuple[Path, ...]
    packages: tuple[Path, ...]
    shared: tuple[Path, ...]
    shared_files: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...]


def interpreter_files() -> InterpreterFiles:
    """The files of the Python that runs this, found out from what it has loaded."""
    library = Path(sysconfig.get_path("stdlib")).resolve()
    libraries = sorted(_loaded_libraries())
    linkers = [Path(path) for path in _LINKERS]
    shared = {path.parent for path in libraries if not path.is_relative_to(library)}
    shared |= {path for path in linkers if path.is_dir() and not path.is_symlink()}
    return InterpreterFiles(
        executable=Path(sys.executable).resolve(),
        library=library,
        library_entries=tuple(p for p in sorted(library.iterdir()) if not _is_packages(p)),
        packages=tuple(sorted({*_packages(library), *(p for s in shared for p in _packages(s))})),
        shared=tuple(sorted(shared)),
        shared_files=(*libraries, *(p for p in (_LINKER_CACHE,) if p.is_file())),
        links=tuple((p, str(p.readlink())) for p in linkers if p.is_symlink()),
    )


def _loaded_libraries() -> set[Path]:
    for name in _NATIVE:
        try:
            importlib.import_module(name)
        except ImportError:  # this Python was built without it
            continue
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")}
    return {path for path in paths if ".so" in path.name and path.is_file()}


def _packages(folder: Path) -> Iterator[Path]:
    for pattern in ("*-packages", "python3*/*-packages"):
        yield from (path for path in folder.glob(pattern) if _is_packages(path))


def _is_packages(path: Path) -> bool:
    return path.name in {"site-packages", "dist-packages"} and path.is_dir()
