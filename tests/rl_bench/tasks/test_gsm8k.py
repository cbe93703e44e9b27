"""GSM8K: the rule, the rows, the evaluation through a scripted context."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_bench.config import DataSource, Setting, TaskConfig
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.gsm8k.data import read_rows
from rl_bench.tasks.gsm8k.prompts import spoken
from rl_bench.tasks.gsm8k.rules import RULES, RuleName, last_number, marked_answer
from rl_bench.tasks.gsm8k.task import GSM8KTask
from rl_bench.tasks.reasoning import without_reasoning
from tests.rl_bench.tasks.scene import ScriptedContext

PUBLISHED_PROMPT = "Question: {question}\nThink.\nAnswer:"


def make_config(
    *,
    source: DataSource = DataSource.BUILTIN,
    data_path: Path | None = None,
    num_eval: int | None = 20,
    num_train: int | None = 30,
    settings: dict[str, Setting | tuple[Setting, ...]] | None = None,
    protocol: str = "chat",
) -> TaskConfig:
    return TaskConfig(
        name="gsm8k_test",
        kind="gsm8k",
        level="L1",
        source=source,
        data_path=data_path,
        protocol=protocol,
        num_eval=num_eval,
        num_train=num_train,
        max_tokens=32,
        settings=settings or {},
    )


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
def test_marked_rule(text: str, answer: str | None) -> None:
    assert marked_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("6 + 6 = 12\nThe answer is 12\n", "12"),
        ("#### 3 and then 4", "4"),
        ("so 1,234", "234"),
        ("it is -2.50", "-2.50"),
        ("it is .5", "5"),
        ("The answer is 7\n\nQuestion: what is 8?", "7"),
        ("<think>9</think>The answer is 7", "7"),
        ("9, no, 10</think> 7", "7"),
        ("The answer is 7 <think>or 8", "8"),
        ("no number", None),
        ("Question: 5", None),
    ],
)
def test_opencompass_rule(text: str, answer: str | None) -> None:
    assert last_number(text) == answer


@pytest.mark.parametrize(
    ("prediction", "answer", "is_right"),
    [
        ("18", "so\n#### 18", True),
        ("18.0", "#### 18", True),
        ("18.0000001", "#### 18", True),
        ("18.1", "#### 18", False),
        ("1234", "#### 1,234", True),
        ("-5", "#### -5", True),
        ("5", "#### five", False),
        ("9" * 400, "#### 9", False),
    ],
)
def test_opencompass_comparison(prediction: str, answer: str, is_right: bool) -> None:
    rule = RULES[RuleName.OPENCOMPASS]
    assert rule.is_right(prediction, rule.gold(answer)) is is_right


def test_reasoning_is_cut_out_as_published() -> None:
    assert without_reasoning("<think>a</think> b <think>c</think> d") == "b  d"
    assert without_reasoning("a</think>b</think> c") == "c"
    assert without_reasoning("  a <think> b") == "  a <think> b"


def test_a_worked_answer_loses_its_notes() -> None:
    assert (
        spoken("2+3 = <<2+3=5>>5 apples.\n#### 1,005") == "2+3 = 5 apples.\nThe answer is 1,005\n"
    )


@pytest.mark.parametrize("protocol", ["chat", "base"])
async def test_worked_examples_come_before_the_question(protocol: str) -> None:
    settings: dict[str, Setting | tuple[Setting, ...]] = {
        "prompt": PUBLISHED_PROMPT,
        "shots": (2, 0),
        "answer_rule": "opencompass",
    }
    task = GSM8KTask(make_config(protocol=protocol, settings=settings))
    context = ScriptedContext(lambda _: "The answer is 7\n\nQuestion: 8")
    result = await task.evaluate(context)
    request, question = context.requests[0], task.eval_rows[0].question
    asked = PUBLISHED_PROMPT.replace("{question}", question)
    [(first, answer), (second, other)] = task.prompts.examples
    assert first != second
    if protocol == "chat":
        assert request.messages is not None
        assert [m["content"] for m in request.messages] == [first, answer, second, other, asked]
        assert [m["role"] for m in request.messages] == ["user", "assistant"] * 2 + ["user"]
    else:
        assert request.text == f"{first} {answer}\n{second} {other}\n{asked}"
        assert request.sampling.stop == ("\nQuestion:",)
    assert {item.detail["prediction"] for item in result.items} == {"7"}
    assert result.evaluator_version == f"gsm8k-1 opencompass {protocol} 2-shot"


def test_an_agent_can_ask_as_the_evaluation_does(tmp_path: Path) -> None:
    chat = GSM8KTask(make_config(settings={"prompt": PUBLISHED_PROMPT, "shots": (1,)}))
    base = GSM8KTask(
        make_config(protocol="base", settings={"prompt": PUBLISHED_PROMPT, "shots": (1,)})
    )
    for name, task in (("chat", chat), ("base", base)):
        task.write_train_data(tmp_path / name)
    shots = json.loads((tmp_path / "chat" / "shots.json").read_text())
    template = (tmp_path / "chat" / "prompt.txt").read_text()
    request = chat.prompts.request("Q?", max_tokens=5)
    assert request.messages == (
        *shots,
        {"role": "user", "content": template.replace("{question}", "Q?")},
    )
    text = (tmp_path / "base" / "prompt.txt").read_text().replace("{question}", "Q?")
    assert base.prompts.request("Q?", max_tokens=5).text == text
    assert not (tmp_path / "base" / "shots.json").exists()


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


def write_splits(folder: Path, *, also_train: Sequence[str] = ()) -> None:
    """One row a split; ``also_train`` are further questions of the train split."""
    for name, questions in (("train", ["1 and 1?", *also_train]), ("test", ["2 and 2?"])):
        rows = [json.dumps({"question": each, "answer": "#### 2"}) + "\n" for each in questions]
        (folder / f"{name}.jsonl").write_text("".join(rows))


def test_an_evaluated_question_in_the_train_file_is_left_out(tmp_path: Path) -> None:
    write_splits(tmp_path, also_train=["2 and 2? ", "3 and 3?"])
    config = make_config(source=DataSource.PATH, data_path=tmp_path, num_train=2, num_eval=1)
    task = GSM8KTask(config)
    task.check_data()
    task.write_train_data(tmp_path / "given")
    lines = (tmp_path / "given" / "train.jsonl").read_text().splitlines()
    assert [json.loads(line)["question"] for line in lines] == ["1 and 1?", "3 and 3?"]
    (tmp_path / "train.jsonl").write_bytes((tmp_path / "test.jsonl").read_bytes())
    with pytest.raises(PreflightError, match="0 train rows that are not evaluated found"):
        GSM8KTask(config).check_data()


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
    write_splits(tmp_path)
    config = make_config(source=DataSource.PATH, data_path=tmp_path, num_train=1, num_eval=2)
    with pytest.raises(
        PreflightError, match=r"1 eval rows found, 2 wanted.*task\.num_eval to 1, or"
    ):
        GSM8KTask(config).check_data()


@pytest.mark.parametrize(
    "line",
    [
        '{"question": "x"}',
        "[]",
        "[" * 100_000,
        "nonsense",
        '{"question":1,"answer":"#### 2"}',
        '{"question":"1?","answer":"2"}',
        '{"question":"1?","answer":"#### abc"}',
        '{"question":"1?","answer":"2 ####"}',
    ],
)
def test_broken_rows_name_file_and_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.jsonl").write_text(line + "\n")
    with pytest.raises(PreflightError, match=r"train\.jsonl, line 1"):
        read_rows(tmp_path, split="train")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"min_steps": 5}, r"settings\.min_steps=5.*one to three steps"),
        ({"min_steps": -1}, "one to three steps"),
        ({"max_steps": 100}, r"settings\.max_steps=100"),
        ({"max_number": 0}, "at least 10"),
        ({"max_number": 1e9}, r"settings\.max_number is a whole number"),
        ({"data_seed": True}, r"settings\.data_seed is a whole number"),
        ({"typo": 1}, r"settings\.typo does not exist.*max_steps"),
    ],
)
def test_settings_out_of_range_are_config_errors(settings: dict[str, Setting], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        GSM8KTask(make_config(settings=dict(settings))).check_data()


def test_config_mistakes_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="data_path"):
        GSM8KTask(make_config(source=DataSource.PATH))
    with pytest.raises(ConfigError, match="question"):
        GSM8KTask(make_config(settings={"prompt": "no placeholder"}))
    with pytest.raises(ConfigError, match=r"'few'.*chat, base"):
        GSM8KTask(make_config(protocol="few"))
    with pytest.raises(ConfigError, match="needs a heading"):
        GSM8KTask(make_config(protocol="base"))
    with pytest.raises(ConfigError, match="answer_rule: 'best'"):
        GSM8KTask(make_config(settings={"answer_rule": "best"}))
    with pytest.raises(ConfigError, match="shots lists row numbers"):
        GSM8KTask(make_config(settings={"shots": (-1,)}))


def test_an_example_that_does_not_exist_is_named(tmp_path: Path) -> None:
    write_splits(tmp_path)
    config = make_config(
        source=DataSource.PATH,
        data_path=tmp_path,
        num_train=1,
        num_eval=1,
        settings={"shots": (4,)},
    )
    with pytest.raises(PreflightError, match="train row 4 of 1"):
        GSM8KTask(config).check_data()


def test_public_rows_can_all_be_read_and_answered(real_data: Path) -> None:
    folder = real_data / "gsm8k"
    train, held_out = read_rows(folder, split="train"), read_rows(folder, split="eval")
    assert len(train) == 7473
    assert len(held_out) >= 400
    assert all(marked_answer(row.answer) is not None for row in [*train, *held_out])
    assert marked_answer(held_out[0].answer) == "18"
    assert marked_answer(held_out[2].answer) == "70000"


async def test_published_setting_on_public_rows(real_data: Path) -> None:
    config = make_config(
        source=DataSource.PATH,
        data_path=real_data / "gsm8k",
        num_eval=400,
        num_train=None,
        settings={
            "prompt": "Question: {question}\nAnswer:",
            "shots": (7364, 1708, 669, 6724),
            "answer_rule": "opencompass",
        },
    )
    task = GSM8KTask(config)
    task.check_data()
    answers = {f"Question: {row.question}\nAnswer:": spoken(row.answer) for row in task.eval_rows}
    context = ScriptedContext(lambda asked: answers[asked].replace(",", ""))
    result = await task.evaluate(context)
    assert result.score == 100.0
    assert context.requests[0].messages is not None
    starts = [m["content"][:16] for m in context.requests[0].messages[:8:2]]
    assert starts == [
        "Question: Angelo",
        "Question: Mark's",
        "Question: Bella ",
        "Question: A grou",
    ]
    last_words = [m["content"].splitlines()[-1] for m in context.requests[0].messages[1:8:2]]
    assert last_words == [f"The answer is {n}" for n in (4, 201, 140, 146)]
