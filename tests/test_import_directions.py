"""Who may import whom: `envs` <- `rl_bench` <- `actors` <- the entry point; see ARCHITECTURE.md."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENTRY_POINTS = {ROOT / "rl_bench" / name for name in ("sweep.py", "evaluate.py")}
AGENT = ROOT / "rl_bench" / "agents" / "reference"


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def imported(path: Path) -> Iterator[str]:
    """Names of everything that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def offenders(paths: list[Path], *packages: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imported(path)
        if name.split(".")[0] in packages
    ]


def test_envs_stand_alone() -> None:
    assert not offenders(
        modules("envs"), "rl_bench", "actors", "analysis", "ray", "torch", "vllm", "transformers"
    )


def test_the_domain_knows_no_ray_and_no_actors() -> None:
    domain = [path for path in modules("rl_bench") if path not in ENTRY_POINTS]
    assert not offenders(domain, "ray", "actors", "analysis")


def test_analysis_reads_results_only() -> None:
    assert not offenders(modules("analysis"), "ray", "torch", "vllm", "actors")


def test_hydra_ends_at_composition() -> None:
    below = [
        path
        for folder in ("envs", "actors", "analysis", "rl_bench")
        for path in modules(folder)
        if not path.name.startswith("compose")
    ]
    assert not offenders(below, "hydra", "omegaconf")


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
