"""What importing a part must not need; who may import whom is checked by `lint-imports`."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AGENT = ROOT / "rl_bench" / "agents" / "reference"


def imported(path: Path) -> Iterator[str]:
    """Names of everything that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def test_the_reference_agent_needs_nothing_of_the_runner() -> None:
    names = [name for path in sorted(AGENT.rglob("*.py")) for name in imported(path)]
    own = "rl_bench.agents.reference"
    assert names
    assert [n for n in names if n.startswith("rl_bench") and not n.startswith(own)] == []


@pytest.mark.parametrize(
    "module",
    [
        "envs",
        "rl_bench.config",
        "rl_bench.plan",
        "rl_bench.sweep",
        "rl_bench.evaluate",
        "rl_bench.prepare",
    ],
)
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "heavy = {'ray', 'torch', 'vllm', 'transformers', 'textworld'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
