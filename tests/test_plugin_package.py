"""docs/extending.md to the letter: its package installed apart, and a real sweep with it."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rl_bench.config import DataSource, TaskConfig
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tests" / "plugin_package"
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SITE = Path(sysconfig.get_paths()["purelib"])
TOLD = "rl-bench-doors 0.3.1"
CLASS = "class LettersTask"


def test_the_page_shows_the_package_as_it_is() -> None:
    shown = dict(re.findall(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".toml", ".py", ".yaml"}]

    assert len(shown) == 8
    for name, code in shown.items():
        assert code == (PACKAGE / name).read_text(encoding="utf-8"), name
    left_out = {path.relative_to(PACKAGE).as_posix() for path in files} - set(shown)
    assert left_out == {"rl_bench_doors/__init__.py"}


class Answers:
    """An `EvalContext` whose checkpoint knows the first letter only."""

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        asked = [message["content"] for each in requests for message in each.messages or ()]
        return [
            Completion(
                text=" b\n" if question == "after a?" else "x",
                num_prompt_tokens=3,
                num_tokens=2,
                finish_reason=FinishReason.STOP,
            )
            for question in asked
        ]


def test_the_static_task_of_the_page_works() -> None:
    [code] = [
        block
        for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
        if CLASS in block
    ]
    scope: dict[str, Any] = {}
    exec(compile(code, "extending.md", "exec"), scope)  # noqa: S102  the page's own code
    task = scope["LettersTask"]()
    task.name, task.evaluator_version = "letters", "letters-1"
    task._config = TaskConfig(
        name="letters", kind="letters", level="L1", source=DataSource.BUILTIN, max_tokens=8
    )
    questions = {"after a?": "b", "after b?": "c"}
    task._rows = lambda split: [
        {"id": f"{split}-{question}", "question": question, "answer": answer}
        for question, answer in questions.items()
    ]

    result = asyncio.run(task.evaluate(Answers()))

    assert (result.score, result.num_items, result.num_errors) == (50.0, 2, 0)
    assert [item.score for item in result.items] == [1.0, 0.0]
    assert result.metrics["cut_off_percent"] == 0.0


def commands() -> list[list[str]]:
    """The page's commands, as words."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def run(*argv: str, limit_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def installed(folder: Path, words: list[str]) -> str:
    """A Python with what this one has and the plug-in, installed by the page's command."""
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "venv" / "lib" / version / "site-packages"
    # Not the system's packages: those of the environment that runs the tests, editable ones too.
    (site / "project.pth").write_text(f"import site; site.addsitedir({str(SITE)!r})\n")
    shutil.copytree(PACKAGE, folder / "source")  # what a build leaves behind stays out of tests/
    assert words[:4] == ["python", "-m", "pip", "install"]
    given = [str(folder / "source") if ROOT / word == PACKAGE else word for word in words[4:]]
    apart = ("--no-build-isolation", "--no-index", "--quiet")
    run(sys.executable, "-m", "pip", "--python", str(python), "install", *apart, *given)
    return str(python)


@pytest.mark.ray
@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_walk_through_runs_as_it_is_written(tmp_path: Path) -> None:
    pip, doctor, plan, sweep = commands()
    python = installed(tmp_path, pip)
    # This Python finds the libraries elsewhere than in its own folder, where agents may read.
    results = tmp_path / "results"
    own = (
        *(f"agent.read_only=[{sys.prefix}]", "cluster.num_cpus=2"),
        *(f"paths.results={results}", f"paths.cache={tmp_path / 'cache'}"),
    )

    told = subprocess.run(
        [python, *doctor[1:]], cwd=ROOT, env={**os.environ, "COLUMNS": "300"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "plug-in rl-bench-doors" in told.stdout, told.stderr
    assert "0.3.1: " in told.stdout
    planned = run(python, *plan[1:], *own)
    assert f"part of {TOLD}" in planned.stdout
    run(python, *sweep[1:], *own, limit_s=500.0)

    folder = results / "doors"
    [row] = pq.read_table(folder / "tables" / "runs").to_pylist()
    assert (row["end"], row["task"], row["agent"]) == ("completed", "doors", "door_opener")
    assert (row["plugins"], row["evaluator_version"]) == (TOLD, f"doors-1 ({TOLD})")
    items = pq.read_table(folder / "tables" / "items").to_pylist()
    scored = {item["item_id"]: item["score"] for item in items if item["submission_id"] == 1}
    assert sorted(scored) == [f"eval-{number}" for number in range(1, 7)]
    mean = 100 * sum(scored.values()) / len(scored)
    assert row["best_score"] == row["baseline_score"] == pytest.approx(mean)
    line = f"doors door_opener doors {row['best_score']}\n"
    assert (folder / "sinks" / "score_lines" / "doors.txt").read_text() == line
    played = (folder / "runs" / row["run_id"] / "logs" / "agent.stdout").read_text()
    assert "rewards [0.0, 1.0]" in played
