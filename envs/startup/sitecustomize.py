"""Makes Gymnasium know this project's environments in every Python of an agent's workspace.

Gymnasium 1.x loads no plugins: an id is known once a module that registers it was imported. A
workspace has this file's folder on ``PYTHONPATH``, where Python imports ``sitecustomize`` as it
starts. Nothing happens until the program imports ``gymnasium``; the ids are registered then, so
that a bare ``gymnasium.make("rl_bench/ALFWorld-v0")`` works. A program with an ``envs`` of its own
is left alone. Elsewhere say ``gymnasium.make("envs:rl_bench/ALFWorld-v0")``, or import ``envs``.
"""

import importlib
import importlib.util
from types import ModuleType

_ENVS = __file__.removesuffix("startup/sitecustomize.py")


def _import_envs() -> None:
    from pathlib import Path

    spec = importlib.util.find_spec("envs")
    ours = Path(_ENVS, "__init__.py").resolve()
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == ours:
        importlib.import_module("envs")


def _load_after_import() -> ModuleType:
    """`envs.after_import` by its path, since the name ``envs`` may be the program's own."""
    spec = importlib.util.spec_from_file_location(
        "rl_bench_after_import", f"{_ENVS}after_import.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_load_after_import().after_import("gymnasium", _import_envs)
