"""What is known of a judge before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from rl_bench.compose import compose
from rl_bench.config import JudgeConfig
from rl_bench.errors import PreflightError
from rl_bench.judges.check import check_judge
from rl_bench.paths import SweepPaths
from rl_bench.plan import expand
from rl_bench.preflight import Verdict, preflight


def config(**fields: object) -> JudgeConfig:
    return JudgeConfig.model_validate({"name": "j", "annotator": "a", "model_id": "m"} | fields)


def test_what_can_be_asked_passes(tmp_path: Path) -> None:
    check_judge(config(base_url="http://localhost:8000/v1"))
    check_judge(
        config(base_url="https://api.openai.com/v1", key_variable="KEY"), environ={"KEY": "k"}
    )
    (tmp_path / "config.json").write_text("{}")
    check_judge(config(kind="vllm", path=tmp_path))


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}, {"KEY": "  "}])
def test_a_missing_key(environ: dict[str, str]) -> None:
    with pytest.raises(PreflightError, match="KEY is not set") as caught:
        check_judge(config(base_url="https://x.org/v1", key_variable="KEY"), environ=environ)
    assert "Export KEY" in caught.value.cure


def test_a_cure_names_the_judge_that_it_is_for() -> None:
    judge = config(base_url="https://x.org/v1", key_variable="KEY")
    with pytest.raises(PreflightError) as caught:
        check_judge(judge, environ={}, where="audit.judge")
    assert "audit.judge.kind=vllm audit.judge.path=FOLDER" in caught.value.cure
    assert "task.judge" not in caught.value.cure


def test_a_key_in_the_place_of_its_variable_is_not_shown() -> None:
    judge = config(base_url="https://x.org/v1", key_variable="sk-1234-abcd")
    with pytest.raises(PreflightError, match="looks like a key") as caught:
        check_judge(judge, environ={})
    assert "sk-1234-abcd" not in str(caught.value)


@pytest.mark.parametrize("url", ["api.openai.com/v1", "ftp://x.org", "https://", "http://[x", "x"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(PreflightError, match="is not an address"):
        check_judge(config(base_url=url))


def test_a_folder_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"no config\.json"):
        check_judge(config(kind="vllm", path=tmp_path / "nothing"))


def test_preflight_checks_each_judge_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RL_BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))
    experiment = compose(["agent=noop", "task=gsm8k_mini", "sweep.seeds=[0,1]"]).experiment
    judge = config(base_url="https://x.org/v1", key_variable="RL_BENCH_NO_SUCH_KEY")
    plan = [
        spec.model_copy(update={"tasks": (spec.tasks[0].model_copy(update={"judge": judge}),)})
        for spec in expand(experiment)
    ]
    paths = SweepPaths(tmp_path / "results" / "s")
    checks = preflight(experiment, plan=plan, paths=paths)
    (check,) = [check for check in checks if check.name.startswith("judge ")]
    assert (check.name, check.verdict) == ("judge j", Verdict.FAILED)
    assert check.detail == "RL_BENCH_NO_SUCH_KEY is not set in the environment"


def test_the_client_is_imported_when_a_question_is_asked() -> None:
    code = (
        "import sys, rl_bench.preflight, rl_bench.judges.pool\n"
        "print([name for name in ('openai', 'vllm', 'torch') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
