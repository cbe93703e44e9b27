"""Every claim of the threat model names a test that exists, and every table row names one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "threat_model.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def test_every_claim_names_a_test_that_exists() -> None:
    claims = PAGE.read_text().partition("## Claims")[2].partition("## What is not")[0]
    rows = [line for line in claims.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| claim ")]
    assert len(rows) > 30
    for row in rows:
        found = NAMED.findall(row)
        assert found, row
        for name, test in found:
            assert test in functions(ROOT / name), f"{name}::{test}"


def test_no_test_is_named_twice() -> None:
    found = NAMED.findall(PAGE.read_text())
    assert len(set(found)) == len(found)
