"""Grading without an agent: what a command line means, what is kept and what is shown."""

import io
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rl_bench import evaluate
from rl_bench.endpoint.served import ServedModel
from rl_bench.errors import ConfigError, SinkError
from rl_bench.evaluation import EvaluationPlan, EvaluationRecord, plan_evaluation, save_record
from rl_bench.evaluation_view import EvaluationProgress, show_records
from rl_bench.events import Evaluation
from rl_bench.grading_status import GradingStatus, Phase
from rl_bench.paths import EvaluationPaths
from rl_bench.records import ITEMS
from tests.rl_bench.conftest import make_evaluation

BOTH = "task=[gsm8k_mini,alfworld_mini]"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RL_BENCH_RESULTS", raising=False)
    return tmp_path


def record(plan: EvaluationPlan, evaluation: Evaluation) -> EvaluationRecord:
    return EvaluationRecord(
        name=plan.name,
        time_utc="2030-01-01T00:00:00+00:00",
        model=plan.model,
        checkpoint="/models/tiny",
        content_hash="ab12",
        task=plan.tasks[0],
        grader=plan.experiment.grader,
        evaluation=evaluation,
    )


def shown(*evaluations: Evaluation, folder: Path, width: int) -> str:
    plan = plan_evaluation(["task=gsm8k_mini"])
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    records = [record(plan, evaluation) for evaluation in evaluations]
    show_records(records, paths=EvaluationPaths(folder), console=console)
    return out.getvalue()


def test_overrides_hold_for_every_task_or_for_one(folder: Path) -> None:
    plan = plan_evaluation(
        [BOTH, "options.task.alfworld_mini.num_eval=7", "task.num_eval=5", "task.num_repeats=3"]
    )
    assert [(task.name, task.num_eval) for task in plan.tasks] == [
        ("gsm8k_mini", 5),
        ("alfworld_mini", 7),
    ]
    assert {task.num_repeats for task in plan.tasks} == {3}
    assert (plan.model.name, plan.checkpoint) == ("tiny", None)
    assert plan.paths.root == folder / "results" / "evaluations" / plan.name
    assert plan.name.startswith("tiny-2tasks-")


def test_one_task_takes_its_overrides_either_way(folder: Path) -> None:
    for word in ("task.num_eval=5", "options.task.gsm8k_mini.num_eval=5"):
        (task,) = plan_evaluation(["task=gsm8k_mini", word]).tasks
        assert task.num_eval == 5


def test_no_grader_is_idle_and_no_agent_takes_gpus(folder: Path) -> None:
    words = ["grader=gpu", "cluster=gpu_node"]
    one = plan_evaluation(["task=gsm8k_mini", *words]).experiment
    two = plan_evaluation([BOTH, *words]).experiment
    assert (one.grader.num_graders, two.grader.num_graders) == (1, 2)
    assert one.cluster.gpus_per_run == 0


def test_a_checkpoint_is_a_folder(folder: Path) -> None:
    (folder / "mine").mkdir()
    assert plan_evaluation(["task=gsm8k_mini", "checkpoint=mine"]).checkpoint == folder / "mine"
    with pytest.raises(ConfigError, match="checkpoint=other: no such folder"):
        plan_evaluation(["task=gsm8k_mini", "checkpoint=other"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no task is named. Write task=NAME or task=[A,B]: alfworld"),
        (["gsm8k_mini"], "'gsm8k_mini' has no value. Write task=gsm8k_mini"),
        (["task=gsm9k"], "task 'gsm9k' does not exist"),
        (["task=gsm8k_mini", "agent=codex"], "'agent' is no part of an evaluation"),
        (["task=gsm8k_mini", "options.agent.noop.version=1"], "is no part of an evaluation"),
        ([BOTH, "options.task.humaneval.num_eval=3"], "task 'humaneval', which is not evaluated"),
        (["task=gsm8k_mini", "task.num_evall=3"], "did you mean num_eval?"),
        (["task=gsm8k_mini", "num_eval=3"], "did you mean task.num_eval?"),
        (["task=gsm8k_mini", "taks.num_eval=3"], "did you mean task?"),
        (["task=gsm8k_mini", "name=../x"], "name '../x' cannot be a folder's"),
        (["task=gsm8k_mini", "checkpoint=/absent"], "checkpoint=/absent: no such folder"),
        (["task=gsm8k", "paths.data=/absent"], "task gsm8k: "),
        (["task=gsm8k_mini", "--foo"], "unknown flag '--foo'"),
    ],
)
def test_bad_input_exits_with_2_and_starts_nothing(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert all(line.startswith("error: ") for line in err.splitlines())
    assert not (folder / "results").exists()


def test_help_and_dry_run_start_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("gsm8k_mini", "checkpoint=FOLDER", "130", "qwen3_8b_base"))
    assert evaluate.main([BOTH, "name=x", "dry_run=true"]) == 0
    text = capsys.readouterr().out
    assert f"tiny on gsm8k_mini, alfworld_mini; to {folder}/results/evaluations/x" in text
    assert "task alfworld_mini" in text
    assert not (folder / "results").exists()


def test_a_dry_run_tells_what_a_start_would_refuse(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    (folder / "results/evaluations/x").mkdir(parents=True)
    words = ["task=gsm8k_mini", "name=x", "checkpoint=empty", "dry_run=true"]
    assert evaluate.main(words) == 0
    text = capsys.readouterr().out
    assert "A start would be refused: 2 checks failed." in text
    assert "dry run, nothing started" in text


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("prompt_too_long_percent", "gsm8k: 2 of 3 prompts do not fit the model's context"),
        ("context_window_percent", "gsm8k: 2 of 3 episodes ended since they outgrew the model's"),
    ],
)
def test_what_does_not_fit_the_context_is_told(metric: str, said: str, folder: Path) -> None:
    full = make_evaluation(0.0, task="gsm8k").model_copy(update={"metrics": {metric: 200 / 3}})
    assert said in shown(full, folder=folder, width=120)
    fits = full.model_copy(update={"metrics": {metric: 0.0}})
    assert "model.max_model_len" not in shown(fits, folder=folder, width=120)


def test_a_record_keeps_the_verdict_and_its_items_apart(folder: Path) -> None:
    plan = plan_evaluation(["task=gsm8k_mini", "name=mine"])
    kept = record(plan, make_evaluation(40.0, task="gsm8k_mini"))
    save_record(plan.paths, kept)
    save_record(plan.paths, record(plan, make_evaluation(None, task="alfworld_mini")))
    first, second = (
        EvaluationRecord.model_validate_json(line)
        for line in plan.paths.evaluations.read_text().splitlines()
    )
    assert first.evaluation == kept.evaluation.model_copy(update={"items": ()})
    assert second.evaluation.score is None
    table = pq.read_table(plan.paths.items("gsm8k_mini"))
    assert table.schema.equals(ITEMS)
    assert table["item_id"].to_pylist() == ["game0", "game1", "game2"]
    assert set(table["run_id"].to_pylist()) == {"mine"}


SERVED = [
    "grader=openai",
    "grader.endpoint.model_id=org/My Model",
    "grader.endpoint.base_url=http://127.0.0.1:9/v1",
]


def test_a_served_model_needs_no_model_and_takes_no_checkpoint(folder: Path) -> None:
    plan = plan_evaluation(["task=gsm8k_mini", *SERVED])
    assert plan.subject == "org/My Model as served at http://127.0.0.1:9/v1"
    assert plan.name.startswith("My_Model-gsm8k_mini-")
    assert not plan.names_model
    assert plan_evaluation(["task=gsm8k_mini", "model=smollm2_135m", *SERVED]).names_model
    (folder / "mine").mkdir()
    with pytest.raises(ConfigError, match="cannot be loaded where org/My Model is served"):
        plan_evaluation(["task=gsm8k_mini", "checkpoint=mine", *SERVED])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (SERVED[:2], "missing key 'grader.endpoint.base_url'"),
        ([*SERVED, "grader.gpus_per_grader=1"], "gpus_per_grader has no effect with engine=openai"),
        (["grader.engine=openai"], "endpoint names the served model for engine=openai"),
        ([*SERVED, "grader.engine=vllm"], "endpoint names the served model for engine=openai"),
        ([*SERVED, "grader.endpoint.key_variable=NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (SERVED, "nothing answers at http://127.0.0.1:9/v1"),
    ],
)
def test_a_served_model_that_cannot_be_asked_is_refused(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main(["task=gsm8k_mini", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "results").exists()


def test_a_dry_run_tells_that_a_served_models_weights_are_not_seen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        words = [*SERVED, f"grader.endpoint.base_url={url}", "dry_run=true"]
        assert evaluate.main(["task=gsm8k_mini", *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "no key needed; its weights are not seen" in text
    assert "model tiny" not in text
    assert "would be refused" not in text


def test_the_record_of_a_served_model_claims_no_checkpoint(folder: Path) -> None:
    plan = plan_evaluation(["task=gsm8k_mini", "name=mine", *SERVED])
    served = ServedModel(base_url="http://127.0.0.1:9/v1", model_id="org/My Model", root="/m")
    kept = record(plan, make_evaluation(40.0, task="gsm8k_mini")).model_copy(
        update={"model": None, "checkpoint": "", "content_hash": "", "served": served}
    )
    save_record(plan.paths, kept)
    (line,) = plan.paths.evaluations.read_text().splitlines()
    again = EvaluationRecord.model_validate_json(line)
    assert (again.model, again.checkpoint, again.content_hash) == (None, "", "")
    assert again.served == served
    assert again.grader.endpoint is not None


def test_a_verdict_that_cannot_be_kept_is_told(folder: Path) -> None:
    plan = plan_evaluation(["task=gsm8k_mini", "name=mine"])
    plan.paths.root.parent.mkdir(parents=True)
    plan.paths.root.write_text("a file")
    with pytest.raises(SinkError, match="evaluation of gsm8k_mini cannot be kept"):
        save_record(plan.paths, record(plan, make_evaluation(40.0, task="gsm8k_mini")))


def test_the_table_has_scores_failures_and_metrics(folder: Path) -> None:
    repeated = make_evaluation(40.0, task="gsm8k").model_copy(
        update={"noise_floor": 2.5, "repeat_scores": (39.0, 41.0)}
    )
    broken = make_evaluation(None, task="humaneval", failure="GraderError: the engine died")
    broken = broken.model_copy(update={"num_errors": 0, "num_items": 0, "metrics": {}})
    text = shown(repeated, broken, folder=folder, width=120)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "task n score noise seconds failures metrics" in lines
    assert "gsm8k 3 40.0 2.5 2.0 1 of 3 env_error mean_steps 4" in lines
    assert "humaneval 0 – – 2.0 no score –" in lines
    assert "humaneval has no score: GraderError: the engine died" in text
    assert str(EvaluationPaths(folder).evaluations) in text


def test_metrics_that_do_not_fit_stand_below_the_table(folder: Path) -> None:
    many = make_evaluation(40.0, task="alfworld").model_copy(
        update={"metrics": {f"success/type_{n}": 10.0 * n for n in range(6)}}
    )
    text = shown(many, folder=folder, width=80)
    assert "noise" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("alfworld metrics: "))
    assert "success/type_5 50" in line


@pytest.fixture
def times() -> dict[str, float]:
    return {"now": 100.0}


def test_long_work_shows_what_is_graded(times: dict[str, float]) -> None:
    out = io.StringIO()
    clock: Callable[[], float] = lambda: times["now"]  # noqa: E731  named for its type
    with EvaluationProgress(["a", "b", "c"], console=Console(file=out), clock=clock) as progress:
        progress.begin("a")
        times["now"] = 105.0
        progress.tick()
        times["now"] = 136.0
        progress.tick([GradingStatus(run_id="x/a", task="a", phase=Phase.LOADING)])
        times["now"] = 167.0
        count = GradingStatus(run_id="x/a", task="a", phase=Phase.JUDGING, done=310, total=805)
        progress.tick([count])
        progress.end(make_evaluation(40.0, task="a"))
        progress.begin("b")
        progress.end(make_evaluation(None, task="b", failure="it broke"))
    told = [line[21:] for line in out.getvalue().splitlines()]
    assert told == [
        "a: grading",
        "waiting for a grader and its engine: 5 s so far",
        "waiting for a grader and its engine: 36 s so far",
        "0 of 3 tasks done · grading a 1:07 (judging 310 of 805) · waiting b, c · elapsed 1:07",
        "a: score 40.0 after 1:07 (1 of 3 env_error)",
        "b: grading",
        "b: score – after 0:00 (it broke, 1 of 3 env_error)",
    ]


def test_on_a_terminal_the_line_is_live() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with EvaluationProgress(["a"], console=console) as progress:
        progress.begin("a")
        progress.tick()
    assert "0 of 1 task done" in out.getvalue()
