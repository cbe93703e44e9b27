"""What is to happen once a module is imported."""

import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from envs.after_import import after_import

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name of a module that can be imported and has not been."""
    name = f"{tmp_path.name}_module"
    (tmp_path / f"{name}.py").write_text("ready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_it_acts_once_and_after_the_module_is_ready(module: str) -> None:
    seen: list[bool] = []
    before = [*sys.meta_path]
    after_import(module, lambda: seen.append(sys.modules[module].ready))
    assert seen == []

    import_module(module)
    import_module(module)
    assert seen == [True]
    assert sys.meta_path == before

    after_import(module, lambda: seen.append(False))
    assert seen == [True, False]


def test_several_may_wait_for_one_module(module: str) -> None:
    seen: list[int] = []
    for number in (1, 2):
        after_import(module, partial(seen.append, number))
    import_module(module)
    assert sorted(seen) == [1, 2]


def test_what_goes_wrong_comes_out_of_the_import(module: str) -> None:
    def fail() -> None:
        raise ValueError("taken")

    after_import(module, fail)
    with pytest.raises(ValueError, match="taken"):
        import_module(module)


def test_a_module_that_is_not_installed_stays_so() -> None:
    after_import("no_such_module_at_all", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        import_module("no_such_module_at_all")


@pytest.mark.parametrize("names", ["envs, gymnasium", "gymnasium, envs"])
def test_environments_are_known_in_either_order(names: str) -> None:
    code = f"""
import sys
import {names}
print([name for name in gymnasium.registry if name.startswith("rl_bench/")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "rl_bench/ALFWorld-v0" in done.stdout, done.stderr


def test_the_package_alone_loads_no_gymnasium() -> None:
    code = "import envs, envs.plugins, sys; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
