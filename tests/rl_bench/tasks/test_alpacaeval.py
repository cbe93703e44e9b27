"""AlpacaEval: from completions to a score, with judges of ours, a real pool and a real endpoint."""

import csv
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rl_bench.config import DataSource, JudgeConfig, Setting, TaskConfig
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.judges.base import Judged, JudgeReply, JudgeRequest, JudgeUsage, Votes
from rl_bench.judges.pool import JudgePool
from rl_bench.tasks.alpacaeval.data import builtin_instructions, builtin_train
from rl_bench.tasks.alpacaeval.task import AlpacaEvalTask
from rl_bench.tasks.base import ItemStatus
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge
from tests.rl_bench.tasks.scene import ScriptedContext

T = TypeVar("T")

JUDGE = JudgeConfig(
    name="test", annotator="weighted_logprobs", model_id="judge-1", base_url="http://127.0.0.1:1/v1"
)
REFERENCES = {row.text: row.reference for row in builtin_instructions()}


def make_config(
    *,
    judge: JudgeConfig | None = JUDGE,
    source: DataSource = DataSource.BUILTIN,
    data_path: Path | None = None,
    num_eval: int | None = 40,
    num_train: int | None = None,
    protocol: str = "chat",
    max_error_fraction: float = 0.05,
    **settings: Setting,
) -> TaskConfig:
    return TaskConfig(
        name="alpacaeval_test",
        kind="alpacaeval",
        level="L2",
        source=source,
        data_path=data_path,
        protocol=protocol,
        num_eval=num_eval,
        num_train=num_train,
        max_tokens=32,
        max_error_fraction=max_error_fraction,
        judge=judge,
        settings=settings,
    )


@dataclass
class Taste:
    """A judge that sees both outputs and answers with log-probabilities; ``None``: nonsense."""

    p_first: Callable[[str, str], float | None]
    num_votes: int = 1
    requests: list[JudgeRequest] = field(default_factory=list)

    async def ask(
        self,
        requests: Sequence[JudgeRequest],
        *,
        parse: Callable[[JudgeReply], T],
        repeat: int = 0,
    ) -> Judged[T]:
        self.requests += requests
        votes = [self._vote(request, parse) for request in requests]
        usage = JudgeUsage(num_requests=len(requests) * self.num_votes)
        return Judged(votes=tuple(votes), usage=usage)

    def _vote(self, request: JudgeRequest, parse: Callable[[JudgeReply], T]) -> Votes[T]:
        likely = logprobs(self.p_first(*outputs(request.messages[-1]["content"])))
        try:
            vote = parse(JudgeReply(text="", top_logprobs=(likely,)))
        except ValueError as error:
            return Votes(values=(), failures=(str(error),))
        return Votes(values=(vote,) * self.num_votes)

    async def close(self) -> None:
        raise AssertionError("the judge is not the task's to close")


def logprobs(p_first: float | None) -> Mapping[str, float]:
    """Alternatives for the first token; the rest of the probability goes to another one."""
    if p_first is None:
        return {"Neither": -0.1}
    return (
        {"m": p_first - 1.0, "M": -p_first, "The": -9.0}
        if 0 < p_first < 1
        else {"m" if p_first else "M": -0.01}
    )


def outputs(prompt: str) -> tuple[str, str]:
    """Both outputs in a prompt of either annotator."""
    first, second = (part.split('"""')[0] for part in prompt.split('"output": """')[1:])
    return first, second


def likes(text: str) -> Callable[[str, str], float]:
    """A judge's taste: who says ``text`` wins, if only one does."""
    return lambda first, second: 0.5 + ((text in first) - (text in second)) / 2


async def test_who_is_always_or_never_preferred_gets_about_100_or_0() -> None:
    task = AlpacaEvalTask(make_config())
    judge = Taste(likes("WELL"))
    best = await task.evaluate(ScriptedContext(lambda q: f"WELL {q}", judge))
    assert best.score is not None
    assert best.score > 99.0
    assert best.metrics["win_rate"] == 100.0
    worst = await task.evaluate(
        ScriptedContext(lambda q: f"no {q}", Taste(lambda a, b: float(b.startswith("no "))))
    )
    assert worst.score is not None
    assert worst.score < 1.0
    assert worst.metrics["num_losses"] == 40
    assert [item.score for item in worst.items] == [0.0] * 40


async def test_a_judge_that_knows_only_places_gives_even_chances() -> None:
    task = AlpacaEvalTask(make_config(score="win_rate"))
    result = await task.evaluate(ScriptedContext(str.upper, Taste(lambda a, b: 1.0)))
    assert result.metrics["judge/first_percent"] == 100.0
    assert result.score is not None
    assert 25 < result.score < 75
    orders = {item.detail["order"] for item in result.items}
    assert orders == {"model_first", "reference_first"}
    for item in result.items:
        assert item.score == float(item.detail["order"] == "model_first")


async def test_a_repeat_shows_outputs_in_another_order() -> None:
    task = AlpacaEvalTask(make_config())
    orders = []
    for repeat in (0, 0, 1):
        context = ScriptedContext(str.upper, Taste(lambda a, b: 0.5), repeat=repeat)
        result = await task.evaluate(context)
        orders.append([item.detail["order"] for item in result.items])
    assert orders[0] == orders[1] != orders[2]
    other = AlpacaEvalTask(make_config(order_seed=1))
    result = await other.evaluate(ScriptedContext(str.upper, Taste(lambda a, b: 0.5)))
    assert orders[0] != [item.detail["order"] for item in result.items]


async def test_equal_outputs_draw_and_empty_ones_lose_unasked() -> None:
    task = AlpacaEvalTask(make_config(score="win_rate"))
    texts = list(REFERENCES)
    said = {texts[0]: f" {REFERENCES[texts[0]]}\n", texts[1]: " \n"}
    judge = Taste(lambda a, b: 1.0)
    result = await task.evaluate(ScriptedContext(lambda q: said.get(q, "other"), judge))
    assert len(judge.requests) == 38
    same, empty, third = result.items[:3]
    assert (same.score, same.detail["decided_by"]) == (0.5, "identical")
    assert (empty.score, empty.detail["decided_by"]) == (0.0, "empty")
    assert third.detail["decided_by"] == "judge"
    assert same.detail["judge_p_first"] is None
    assert result.metrics["num_draws"] == 1
    assert result.metrics["num_empty"] == 1


async def test_a_silent_model_scores_nothing_and_asks_nobody() -> None:
    task, judge = AlpacaEvalTask(make_config()), Taste(lambda a, b: 1.0)
    result = await task.evaluate(ScriptedContext(lambda _: "", judge))
    assert judge.requests == []
    assert result.score is not None
    assert result.score < 1.0
    assert result.num_errors == 0


async def test_empty_outputs_can_be_judged() -> None:
    task = AlpacaEvalTask(make_config(empty_output="judge"))
    judge = Taste(lambda a, b: 1.0)
    result = await task.evaluate(ScriptedContext(lambda _: "", judge))
    assert len(judge.requests) == 40
    assert result.evaluator_version.endswith("/empty_judged")


async def test_unjudged_items_have_no_score_and_void_a_result_above_the_limit() -> None:
    broken = list(REFERENCES.values())[:3]

    def taste(first: str, second: str) -> float | None:
        return None if first in broken or second in broken else float("WELL" in first)

    context = ScriptedContext(lambda q: "WELL", Taste(taste))
    few = await AlpacaEvalTask(make_config(max_error_fraction=0.1)).evaluate(context)
    assert few.num_items == 40
    assert few.num_errors == 3
    assert few.metrics["num_judged"] == 37
    assert few.score is not None
    assert few.score > 99.0, "unjudged items are no losses"
    assert few.items[0].status is ItemStatus.UNJUDGED
    assert few.items[0].score is None
    assert "neither m nor M" in str(few.items[0].detail["error"])
    many = await AlpacaEvalTask(make_config(max_error_fraction=0.05)).evaluate(context)
    assert many.score is None
    assert "3 unjudged" in many.failure


@pytest.mark.parametrize("score", ["lc_win_rate", "win_rate"])
async def test_without_any_vote_there_is_no_score_whatever_the_limit(score: str) -> None:
    task = AlpacaEvalTask(make_config(max_error_fraction=1.0, score=score))
    result = await task.evaluate(ScriptedContext(lambda _: "x", Taste(lambda a, b: None)))
    assert result.score is None
    assert result.failure
    assert result.num_errors == 40


async def test_items_hold_what_another_statistic_needs() -> None:
    task = AlpacaEvalTask(make_config())
    result = await task.evaluate(ScriptedContext(str.upper, Taste(likes("A"), num_votes=2)))
    detail = result.items[3].detail
    assert detail["output"] == list(REFERENCES)[3].upper()
    assert detail["num_chars"] == len(list(REFERENCES)[3])
    assert detail["num_chars_reference"] == len(list(REFERENCES.values())[3])
    assert detail["num_votes"] == 2
    assert detail["reference_generator"] == "rl_bench"
    assert result.items[3].score is not None
    assert detail["preference"] == 1 + result.items[3].score
    assert result.metrics["judge/num_requests"] == 80
    assert result.metrics["judge/agreement"] == 1.0
    assert {"lc_win_rate", "lc_win_rate_se", "lc_win_rate_jackknife_se"} <= set(result.metrics)
    assert result.score == result.metrics["lc_win_rate"]
    assert result.evaluator_version == (
        "alpacaeval-1/weighted_logprobs/judge-1/lc_win_rate/length_only"
    )


async def test_prompts_are_greedy_chats_or_plain_text() -> None:
    context = ScriptedContext(lambda _: "x", Taste(likes("x")))
    await AlpacaEvalTask(make_config()).evaluate(context)
    first = next(iter(REFERENCES))
    assert context.requests[0].messages == ({"role": "user", "content": first},)
    assert context.requests[0].sampling.temperature == 0.0
    assert context.requests[0].sampling.max_tokens == 32
    await AlpacaEvalTask(make_config(protocol="base")).evaluate(context)
    text = context.requests[0].text
    assert text is not None
    assert first in text
    assert context.requests[0].sampling.stop


def weighted(asked: Asked) -> Answer:
    first, _ = outputs(asked.text)
    return Answer(
        text="m",
        top_logprobs=[{"m": -0.105, "M": -2.303}, {"x": -1.0}]
        if first.isupper()
        else [{"M": -0.105, "m": -2.303}],
    )


def ranking(asked: Asked) -> Answer:
    first, _ = outputs(asked.text)
    best, other = ("m", "M") if first.isupper() else ("M", "m")
    rows = [{"model": best, "rank": 1}, {"model": other, "rank": 2}]
    return Answer(arguments=json.dumps({"ordered_models": rows}))


@pytest.mark.parametrize(
    ("annotator", "rule", "won"),
    [("weighted_logprobs", weighted, 0.9), ("function_call", ranking, 1.0)],
)
async def test_over_http_with_a_faltering_judge(
    annotator: str, rule: Callable[[Asked], Answer], won: float, tmp_path: Path
) -> None:
    with StandInJudge(rule) as judge:
        judge.spoil = lambda asked: Fault.MALFORMED_VERDICT if asked.number % 7 == 0 else None
        if annotator == "weighted_logprobs":
            judge.spoil = lambda asked: Fault.OTHER_LOGPROBS if asked.number % 7 == 0 else None
        config = judge.config(annotator=annotator, num_retries=3, timeout_s=5.0)
        pool = JudgePool.from_config(
            config, cache=tmp_path / "cache", log_folder=tmp_path, first_wait_s=0.01
        )
        task = AlpacaEvalTask(make_config(judge=config))
        result = await task.evaluate(ScriptedContext(str.upper, pool))
        await pool.close()
    assert result.num_errors == 0
    assert [item.score for item in result.items] == pytest.approx([won] * 40, abs=1e-3)
    assert result.score is not None
    assert result.score > 100 * won - 1, "shorter answers, and no worse for it"
    assert result.metrics["judge/num_requests"] > 40


async def test_over_http_with_a_judge_that_is_down(tmp_path: Path) -> None:
    with StandInJudge(ranking) as judge:
        judge.spoil = lambda asked: Fault.UNAUTHORIZED
        config = judge.config(annotator="function_call", num_retries=1)
        pool = JudgePool.from_config(
            config, cache=tmp_path / "cache", log_folder=tmp_path, first_wait_s=0.01
        )
        task = AlpacaEvalTask(make_config(judge=config))
        result = await task.evaluate(ScriptedContext(str.upper, pool))
        await pool.close()
    assert result.score is None
    assert {item.status for item in result.items} == {ItemStatus.UNJUDGED}
    assert "40 unjudged" in result.failure


def write_public(folder: Path, *, num: int = 25) -> None:
    """A folder in the public layout, with made-up rows."""
    rows = [
        {"instruction": f"Do {i}.", "output": f"Done {i}.", "generator": "ref", "dataset": "d"}
        for i in range(num)
    ]
    packed = lzma.compress(json.dumps(rows).encode())
    (folder / "model_outputs_gpt4_1106_preview.json.xz").write_bytes(packed)
    train = [
        {"instruction": "Add.", "input": "1 and 1", "output": "2"},
        {"instruction": "Sing.", "input": "", "output": "La."},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in train)
    (folder / "alpaca_train.jsonl").write_text(lines)


def public(folder: Path, **fields: Any) -> TaskConfig:
    defaults: dict[str, Any] = {"source": DataSource.PATH, "data_path": folder, "num_eval": None}
    return make_config(**(defaults | fields))


def test_train_data_are_questions_and_answers(tmp_path: Path) -> None:
    write_public(tmp_path)
    task = AlpacaEvalTask(public(tmp_path))
    task.check_data()
    task.write_train_data(tmp_path / "data")
    lines = (tmp_path / "data" / "train.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"question": "Add.\n\n1 and 1", "answer": "2"},
        {"question": "Sing.", "answer": "La."},
    ]
    assert (tmp_path / "data" / "prompt.txt").read_text() == "{question}"
    readme = (tmp_path / "data" / "README.md").read_text()
    assert "judge-1" in readme
    assert "length_only" in readme


def test_train_rows_can_be_left_out_only_on_purpose(tmp_path: Path) -> None:
    write_public(tmp_path)
    (tmp_path / "alpaca_train.jsonl").unlink()
    with pytest.raises(PreflightError, match=r"train rows not found.*train_file= task"):
        AlpacaEvalTask(public(tmp_path)).check_data()
    task = AlpacaEvalTask(public(tmp_path, train_file=""))
    task.check_data()
    task.write_train_data(tmp_path / "data")
    assert not (tmp_path / "data" / "train.jsonl").exists()
    with pytest.raises(ConfigError, match="num_train=null"):
        AlpacaEvalTask(public(tmp_path, train_file="", num_train=5))


def test_the_builtin_train_rows_are_not_evaluated(tmp_path: Path) -> None:
    task = AlpacaEvalTask(make_config(num_train=24))
    task.check_data()
    task.write_train_data(tmp_path)
    assert len((tmp_path / "train.jsonl").read_text().splitlines()) == 24
    assert not {row.question for row in builtin_train()} & set(REFERENCES)


def test_the_best_table_decides_the_method(tmp_path: Path) -> None:
    write_public(tmp_path)

    def method() -> str:
        task = AlpacaEvalTask(public(tmp_path))
        task.check_data()
        return task.evaluator_version.rpartition("/")[2]

    assert method() == "length_only"
    table = "index,instruction_difficulty\n" + "".join(f"{i},-1.5\n" for i in range(25))
    (tmp_path / "instruction_difficulty_reconstructed.csv").write_text(table)
    assert method() == "reconstructed_difficulty"
    (tmp_path / "instruction_difficulty.csv").write_text(table)
    assert method() == "official_difficulty"
    with (tmp_path / "df_gamed.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "index", "instruction_difficulty", "preference", "std_delta_len"])
        writer.writerows([["concise", i, -1.5, 0.5 if i else "", 0.3] for i in range(25)])
    assert method() == "official"
    explicit = AlpacaEvalTask(public(tmp_path, length_control="reconstructed_difficulty"))
    assert explicit.evaluator_version.endswith("/reconstructed_difficulty")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model_outputs_gpt4_1106_preview.json", '{"a": 1}', "not as its source has it"),
        ("model_outputs_gpt4_1106_preview.json", '[{"instruction": 1}]', "not text"),
        ("model_outputs_gpt4_1106_preview.json.xz", "no archive", "LZMAError"),
        ("alpaca_train.jsonl", "{", "alpaca_train.jsonl"),
        ("alpaca_train.jsonl", "[" * 100_000, "nested too deeply"),
        ("instruction_difficulty.csv", "a,b\n1,much\n", "instruction_difficulty.csv"),
        ("instruction_difficulty.csv", "a,b\n1,0.5\n", "no difficulty of 24 instructions"),
        ("instruction_difficulty.csv", "a,b\n1,nan\n", "nan is no number"),
        ("instruction_difficulty.csv", "a,b\n", "a table without rows"),
        ("df_gamed.csv", "model,index\n", "a table without rows"),
        ("df_gamed.csv", "model,index\nx,1\n", "df_gamed.csv"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: str, why: str) -> None:
    write_public(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(PreflightError, match=why):
        AlpacaEvalTask(public(tmp_path)).check_data()


def test_missing_and_scarce_data_are_preflight_errors(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"reference outputs not found.*rl_bench\.prepare"):
        AlpacaEvalTask(public(tmp_path)).check_data()
    write_public(tmp_path)
    with pytest.raises(PreflightError, match="25 eval rows found, 26 wanted"):
        AlpacaEvalTask(public(tmp_path, num_eval=26)).check_data()
    with pytest.raises(PreflightError, match="2 train rows found, 3 wanted"):
        AlpacaEvalTask(public(tmp_path, num_train=3)).check_data()
    with pytest.raises(PreflightError, match=r"needs 20 instructions.*score=win_rate"):
        AlpacaEvalTask(public(tmp_path, num_eval=19)).check_data()
    AlpacaEvalTask(public(tmp_path, num_eval=19, score="win_rate")).check_data()
    with pytest.raises(PreflightError, match=r"task\.settings\.train_file= task\.num_train=null"):
        AlpacaEvalTask(public(tmp_path, train_file="absent.jsonl")).check_data()
    with pytest.raises(PreflightError, match="'official' not found"):
        AlpacaEvalTask(public(tmp_path, length_control="official")).check_data()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"judge": None}, "there is no judge"),
        ({"source": DataSource.PATH}, "data_path is not set"),
        (
            {"judge": JUDGE.model_copy(update={"annotator": "gpt4"})},
            "judge annotator 'gpt4' does not exist for alpacaeval",
        ),
        ({"protocol": "react"}, r"protocol is 'react'.*chat, base"),
        ({"score": "elo"}, r"settings\.score is 'elo'.*lc_win_rate, win_rate"),
        ({"empty_output": "draw"}, r"empty_output is 'draw'.*lose, judge"),
        ({"length_control": "exact"}, r"length_control is 'exact'.*official"),
        ({"order_seed": "x"}, "order_seed"),
        ({"sead": 1}, r"unknown setting sead.*order_seed"),
    ],
)
def test_config_mistakes_are_config_errors(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        AlpacaEvalTask(make_config(**fields))


async def test_public_rows_against_a_public_model(real_data: Path) -> None:
    folder = real_data / "alpacaeval"
    task = AlpacaEvalTask(public(folder, num_eval=805, train_file=""))
    task.check_data()
    assert len(task.eval_rows) == 805
    packed = (folder / "model_outputs_Meta-Llama-3-8B-Instruct.json.xz").read_bytes()
    said = {row["instruction"]: row["output"] for row in json.loads(lzma.decompress(packed))}
    longer = Taste(lambda first, second: 1 / (1 + 2 ** ((len(second) - len(first)) / 400)))
    result = await task.evaluate(ScriptedContext(said.__getitem__, longer))
    assert result.score is not None
    assert abs(result.score - 50) < 3, "a taste for length alone is controlled away"
    assert abs(result.metrics["win_rate"] - 50) > abs(result.score - 50)
    assert result.metrics["avg_length_reference"] == pytest.approx(2049, abs=1)
    assert result.metrics["avg_length"] == pytest.approx(1899, abs=25)
    assert task.evaluator_version.endswith("reconstructed_difficulty")
