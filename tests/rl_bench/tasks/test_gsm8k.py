"""GSM8K: the rule, the rows, the evaluation through a scripted context."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rl_bench.config import DataSource, Setting, TaskConfig
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.base import Episode, ItemOutcome
from rl_bench.tasks.gsm8k import GSM8KTask, extract_answer, read_rows


def make_config(
    *,
    source: DataSource = DataSource.BUILTIN,
    data_path: Path | None = None,
    num_eval: int | None = 20,
    num_train: int | None = 30,
    settings: dict[str, Setting] | None = None,
) -> TaskConfig:
    return TaskConfig(
        name="gsm8k_test",
        kind="gsm8k",
        level="L1",
        source=source,
        data_path=data_path,
        num_eval=num_eval,
        num_train=num_train,
        max_tokens=32,
        settings=settings or {},
    )


class ScriptedContext:
    """Answers each question with what ``answer`` says."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer
        self.requests: list[GenerationRequest] = []

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.requests = list(requests)
        texts = [self.answer(r.messages[0]["content"]) for r in requests if r.messages]
        return [
            Completion(
                text=text, num_prompt_tokens=5, num_tokens=7, finish_reason=FinishReason.STOP
            )
            for text in texts
        ]

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        raise AssertionError("a static task plays no episodes")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("6 + 6 = 12\n#### 12", "12"),
        ("She pays 3 and has 4 left", "4"),
        ("#### 1,000", "1000"),
        ("so 1,234.50 dollars", "1234.5"),
        ("#### $18.00 in 3 days", "18"),
        ("#### -7", "-7"),
        ("first #### 3 no, #### 4", "4"),
        ("The answer is 70000.", "70000"),
        ("it is .5", "0.5"),
        ("#### none", None),
        ("no number", None),
        ("", None),
    ],
)
def test_extract_answer(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


async def test_a_perfect_and_a_silent_model_get_100_and_0() -> None:
    task = GSM8KTask(make_config())
    gold = {row.question: row.answer for row in task.eval_rows}
    perfect = await task.evaluate(ScriptedContext(gold.__getitem__))
    silent = await task.evaluate(ScriptedContext(lambda _: ""))
    assert perfect.score == 100.0
    assert silent.score == 0.0
    assert perfect.num_items == silent.num_items == 20
    assert silent.metrics["answered_percent"] == 0.0
    assert silent.items[0].detail["prediction"] is None
    assert perfect.items[0].detail["prediction"] == perfect.items[0].detail["gold"]


async def test_requests_are_greedy_chat_made_from_the_template() -> None:
    task = GSM8KTask(make_config(settings={"prompt": "Q: {question} {x}"}))
    context = ScriptedContext(lambda _: "1")
    await task.evaluate(context)
    request = context.requests[0]
    assert request.sampling.temperature == 0.0
    assert request.sampling.max_tokens == 32
    assert request.messages == (
        {"role": "user", "content": f"Q: {task.eval_rows[0].question} {{x}}"},
    )


def test_train_data_hold_no_evaluated_question(tmp_path: Path) -> None:
    task = GSM8KTask(make_config())
    task.check_data()
    task.write_train_data(tmp_path / "data")
    lines = (tmp_path / "data" / "train.jsonl").read_text().splitlines()
    questions = {json.loads(line)["question"] for line in lines}
    assert len(questions) == 30
    assert not questions & {row.question for row in task.eval_rows}
    assert "{question}" in (tmp_path / "data" / "prompt.txt").read_text()
    assert "####" in (tmp_path / "data" / "README.md").read_text()


def test_missing_rows_name_folder_source_and_cure(tmp_path: Path) -> None:
    task = GSM8KTask(make_config(source=DataSource.PATH, data_path=tmp_path))
    with pytest.raises(PreflightError, match=r"train data not found.*grade-school-math"):
        task.check_data()


def test_fewer_rows_than_asked_for_are_an_error(tmp_path: Path) -> None:
    row = json.dumps({"question": "1 and 1?", "answer": "#### 2"}) + "\n"
    for name in ("train.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(row)
    config = make_config(source=DataSource.PATH, data_path=tmp_path, num_train=1, num_eval=2)
    with pytest.raises(PreflightError, match="1 eval rows found, 2 wanted"):
        GSM8KTask(config).check_data()


@pytest.mark.parametrize(
    "line", ['{"question": "x"}', "[]", "nonsense", '{"question":1,"answer":"2"}']
)
def test_broken_rows_name_file_and_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.jsonl").write_text(line + "\n")
    with pytest.raises(PreflightError, match=r"train\.jsonl, line 1"):
        read_rows(tmp_path, split="train")


def test_config_mistakes_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="data_path"):
        GSM8KTask(make_config(source=DataSource.PATH))
    with pytest.raises(ConfigError, match="question"):
        GSM8KTask(make_config(settings={"prompt": "no placeholder"}))


def test_public_rows_can_all_be_read_and_answered(real_data: Path) -> None:
    folder = real_data / "gsm8k"
    train, held_out = read_rows(folder, split="train"), read_rows(folder, split="eval")
    assert len(train) == 7473
    assert len(held_out) >= 400
    assert all(extract_answer(row.answer) is not None for row in [*train, *held_out])
    assert extract_answer(held_out[0].answer) == "18"
    assert extract_answer(held_out[2].answer) == "70000"
