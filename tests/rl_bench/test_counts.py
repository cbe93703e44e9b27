"""Counts in words; and that no message of ours says ``1 runs``."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_bench.counts import plural

ROOT = Path(__file__).resolve().parents[2]
COUNTED = re.compile(
    r"^ (runs|submissions|snapshots|checks|tasks|graders|commands|findings|attempts|votes)\b"
)
COUNTING = re.compile(r"^(len\(|num_|sum\()|\.num_|\.total\(\)$")
MANY = {
    ("rl_bench/audit/recorded.py", "len(fitting)"),
    ("rl_bench/audit/__main__.py", "len(folders)"),
    ("rl_bench/plan_view.py", "len(spec.tasks)"),
    ("rl_bench/sandbox/check.py", "len(tried)"),
    ("rl_bench/agents/leak_probe.py", "len(results)"),
}
"""Counts that are never 1."""


@pytest.mark.parametrize(
    ("num", "noun", "several", "told"),
    [
        (0, "run", "", "0 runs"),
        (1, "run", "", "1 run"),
        (2, "run", "", "2 runs"),
        (12_345, "run", "", "12,345 runs"),
        (1, "process", "processes", "1 process"),
        (3, "process", "processes", "3 processes"),
        (1.0, "GPU", "", "1 GPU"),
        (0.5, "GPU", "", "0.5 GPUs"),
    ],
)
def test_counts(num: float, noun: str, several: str, told: str) -> None:
    assert plural(num, noun, several) == told


def bare_counts(source: str) -> Iterator[str]:
    """Expressions of f-strings that count and stand before a plural of their own."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                counted = ast.unparse(value.value)
                if COUNTED.match(str(text.value)) and COUNTING.search(counted):
                    yield counted


def test_a_bare_count_is_found() -> None:
    source = "f'{len(a)} runs, {name} runs, {plural(len(b), noun)} left'"
    assert list(bare_counts(source)) == ["len(a)"]


def test_messages_count_with_one_helper() -> None:
    found = {
        (str(path.relative_to(ROOT)), counted)
        for folder in ("rl_bench", "actors", "analysis", "envs")
        for path in (ROOT / folder).rglob("*.py")
        for counted in bare_counts(path.read_text(encoding="utf-8"))
    }
    assert found - MANY == set()
