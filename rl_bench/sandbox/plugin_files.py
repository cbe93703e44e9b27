"""Which files of plug-ins an agent sees: what it works with, and nothing that grades it.

A plug-in lies beside the libraries that agents may read, so its packages are covered whole, and
only what it declares for agents is shown again: environments, protocols and agents' programs, each
with the ``__init__.py`` of the packages that lead to it. Tasks, annotators, sinks, options and data
stay out of sight, as this project's own do.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from envs.plugins import plugin_entries
from rl_bench.plugins import FOR_AGENTS, locate


def shown_files() -> tuple[Path, ...]:
    """Modules and packages that plug-ins declare for agents, and what leads to them."""
    found: dict[Path, None] = {}
    for entry in plugin_entries():
        path = locate(entry.module) if entry.group in FOR_AGENTS else None
        if path is None:
            continue
        found[path] = None
        for parent in list(path.parents)[: entry.module.count(".")]:
            found[parent / "__init__.py"] = None
    return tuple(path for path in found if path.exists())


def hidden_files() -> tuple[Path, ...]:
    """Every top-level package and module of plug-ins, wherever they are installed."""
    found: dict[Path, None] = {}
    for entry in plugin_entries():
        path = _root(entry.module)
        if path is not None:
            found[path] = None
    for name in dict.fromkeys(entry.distribution for entry in plugin_entries()):
        found.update(dict.fromkeys(_installed(name)))
    return tuple(path for path in found if path.exists())


def _root(module: str) -> Path | None:
    """The outermost package or module; one without ``__init__.py`` is shared with others."""
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        path = locate(".".join(parts[:number]))
        if path is None or path.is_file() or (path / "__init__.py").is_file():
            return path
    return path


def _installed(name: str) -> list[Path]:
    """What the installer put beside other packages; nothing where it only left a link."""
    try:
        dist = distribution(name)
    except PackageNotFoundError:
        return []
    found = []
    for file in dist.files or ():
        top = Path(str(dist.locate_file(file.parts[0])))
        is_package = len(file.parts) == 2 and file.name == "__init__.py"
        is_module = len(file.parts) == 1 and file.suffix == ".py"
        if (is_package or is_module) and not file.name.startswith("__editable__"):
            found.append(top)
    return found
