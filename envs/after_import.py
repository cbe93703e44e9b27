"""Acts as soon as a module has been imported, without importing it."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, act: Callable[[], object]) -> None:
    """Calls ``act`` once: now if the module was imported, else right after its first import.

    Args:
        name: A top-level module; that it is not installed is no error here.
        act: What it raises comes out of that import.
    """
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Steps aside once asked for the module, having attached the act to its loading."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenAct(spec.loader, self._act)
        return spec


class _ThenAct(Loader):
    """Loads a module by its own loader, then acts."""

    def __init__(self, loader: Loader, act: Callable[[], object]) -> None:
        self._loader, self._act = loader, act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._act()

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)  # e.g. get_data, get_source
