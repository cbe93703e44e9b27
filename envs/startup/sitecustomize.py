"""Makes Gymnasium know this project's environments in every Python of an agent's workspace.

Gymnasium 1.x loads no plugins: an id is known once a module that registers it was imported. A
workspace has this file's folder on ``PYTHONPATH``, where Python imports ``sitecustomize`` as it
starts. Nothing happens until the program imports ``gymnasium``; the ids are registered then, so
that a bare ``gymnasium.make("rl_bench/ALFWorld-v0")`` works. A program with an ``envs`` of its own
is left alone. Elsewhere say ``gymnasium.make("envs:rl_bench/ALFWorld-v0")``, or import ``envs``.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _GymnasiumFinder(MetaPathFinder):
    """Steps aside once asked for ``gymnasium``, having attached the import of ``envs`` to it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenEnvs(spec.loader)
        return spec


class _ThenEnvs(Loader):
    """Loads a module by its own loader, then imports ``envs``."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if _is_ours(importlib.util.find_spec("envs")):
            importlib.import_module("envs")

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)  # e.g. get_data, get_source


def _is_ours(spec: ModuleSpec | None) -> bool:
    from pathlib import Path

    ours = Path(__file__).resolve().parents[1] / "__init__.py"
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == ours


sys.meta_path.insert(0, _GymnasiumFinder())
