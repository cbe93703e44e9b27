"""DeepSearchQA's evaluation: real episodes, a real search server, a real judge pool."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.search.backends import key_variable
from rl_bench.config import Setting
from rl_bench.tasks.base import ItemStatus
from rl_bench.tasks.deepsearchqa.demos import Demonstrator
from tests.envs.search_service import KEY, SearchService
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge
from tests.rl_bench.tasks.deepsearchqa_scene import (
    Player,
    SearchPolicy,
    evaluate,
    expert,
    judge_by_reference,
    make_task,
)

SEARCH = "serper"


async def test_without_a_judge_answers_are_compared(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    task.check_data()
    perfect = await task.evaluate(Player(expert(task)))
    assert perfect.score == 100.0
    assert perfect.metrics["answered_percent"] == 100.0
    assert perfect.metrics["mean_searches"] >= 1.0
    silent = await task.evaluate(Player(lambda question, step: "I wonder."))
    assert silent.score == silent.metrics["answered_percent"] == 0.0
    assert {item.detail["outcome"] for item in silent.items} == {"no_answer"}
    assert {item.num_steps for item in silent.items} == {6}
    empty = await task.evaluate(Player(lambda question, step: "Action: answer[ ]"))
    assert empty.score == 0.0
    assert empty.metrics["no_answer_percent"] == 100.0
    wrong = await task.evaluate(Player(lambda question, step: "answer[Atlantis]"))
    assert wrong.score == 0.0
    assert {item.detail["outcome"] for item in wrong.items} == {"incorrect"}


async def test_the_published_stop_strings_force_an_answer_without_a_search(
    tmp_path: Path,
) -> None:
    task = make_task(tmp_path, protocol="search_react_published", settings={"forced_answer": True})
    known = {row.problem: row.answer for row in task.eval_rows}

    def act(question: str, step: int) -> str:
        return f" I remember {known[question]}.\nAction: search[{question}]"

    class Answering(SearchPolicy):
        def complete(self, prompt: str) -> str:
            if prompt.endswith("\nAction: answer["):
                [remembered] = re.findall(r"Thought: I remember (.*)\.\n", prompt)
                return f"{remembered}]\nObservation: invented"
            return super().complete(prompt)

    context = Player(act)
    context.policy = Answering(act)
    result = await task.evaluate(context)
    assert result.score == 100.0
    assert result.metrics["mean_searches"] == 0.0
    assert {item.num_steps for item in result.items} == {2}


async def test_searching_tells_what_nobody_can_know(tmp_path: Path) -> None:
    task = make_task(tmp_path, num_train=None, num_eval=None, settings={"num_towns": 40})
    rows = task.eval_rows
    assert len(rows) > 300
    corpus = task.episodes()[0].env_kwargs["corpus"]
    demonstrator = Demonstrator(Path(str(corpus)), num_results=3, max_result_chars=1500)
    for row in rows:
        turns = demonstrator.turns(row)
        seen = " ".join(turn["observation"] for turn in turns[1:])
        assert all(item in seen for item in row.answer.split(", ")), row
        assert not any(item in row.problem for item in row.answer.split(", ")), row


@pytest.mark.parametrize("beside", ["", "official"])
async def test_a_judge_decides(tmp_path: Path, beside: str) -> None:
    with StandInJudge(judge_by_reference) as judge:
        config = judge.config(annotator="one_verdict")
        task = make_task(tmp_path, judge=config, settings={"beside": beside})
        right = expert(task)
        known = [row.problem for row in task.eval_rows[:3]]
        silent = task.eval_rows[4].problem

        def act(question: str, step: int) -> str:
            if question in known:
                return right(question, step)
            return "answer[]" if question == silent else "answer[Atlantis, Ys]"

        result = await evaluate(task, act, judge=judge, tmp_path=tmp_path)
    assert result.score == 25.0
    assert [item.score for item in result.items[:5]] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert result.items[4].detail["outcome"] == "no_answer"
    assert judge.num_requests == (22 if beside else 11)
    assert not any(silent in asked.text for asked in judge.asked)
    assert result.metrics["no_answer_percent"] == pytest.approx(100 / 12)
    assert result.metrics["judge/num_requests"] == judge.num_requests
    assert ("official/f1_percent" in result.metrics) is bool(beside)
    if beside:
        assert result.metrics["official/f1_percent"] == 25.0
        assert result.metrics["official/fully_correct_percent"] == 25.0
        assert result.metrics["official/fully_incorrect_percent"] == pytest.approx(100 * 8 / 12)
        assert result.items[0].detail["category_official"] == "fully_correct"


async def test_the_official_rating_can_be_the_score(tmp_path: Path) -> None:
    with StandInJudge(judge_by_reference) as judge:
        task = make_task(tmp_path, judge=judge.config(annotator="official"))
        first = {row.problem: row.answer.split(", ")[0] for row in task.eval_rows}
        num_single = sum(row.answer_type == "Single Answer" for row in task.eval_rows)
        result = await evaluate(
            task, lambda q, step: f"answer[{first[q]}]", judge=judge, tmp_path=tmp_path
        )
    assert 0 < num_single < 12
    score = 100 * num_single / 12
    assert result.score == pytest.approx(score)
    assert result.metrics["official/precision_percent"] == pytest.approx(100.0)
    assert score < result.metrics["official/f1_percent"] < 100.0
    partial = result.metrics["official/partially_correct_percent"]
    assert partial == pytest.approx(100 - score)


@pytest.mark.parametrize(
    "fault", [Fault.MALFORMED_VERDICT, Fault.EMPTY, Fault.UNAUTHORIZED, Fault.SERVER_ERROR]
)
async def test_a_failed_judge_leaves_items_unjudged(tmp_path: Path, fault: Fault) -> None:
    with StandInJudge(judge_by_reference) as judge:
        task = make_task(tmp_path, judge=judge.config(annotator="one_verdict"))
        judge.spoil = lambda asked: fault
        result = await evaluate(task, expert(task), judge=judge, tmp_path=tmp_path)
    assert result.score is None
    assert {item.status for item in result.items} == {ItemStatus.UNJUDGED}
    assert {item.score for item in result.items} == {None}
    assert result.metrics["unjudged_percent"] == 100.0
    assert "12 unjudged" in result.failure


async def test_an_unreadable_verdict_is_asked_for_again(tmp_path: Path) -> None:
    with StandInJudge(judge_by_reference) as judge:
        task = make_task(tmp_path, judge=judge.config(annotator="one_verdict"))
        bad = task.eval_rows[0].problem
        judge.spoil = lambda asked: (
            Fault.MALFORMED_VERDICT if bad in asked.text or asked.number == 1 else None
        )
        result = await evaluate(
            task, expert(task), judge=judge, tmp_path=tmp_path, max_concurrency=1, num_retries=2
        )
    assert [item.status for item in result.items].count(ItemStatus.UNJUDGED) == 1
    assert result.items[0].status is ItemStatus.UNJUDGED
    assert result.num_errors == 1
    assert result.score is None  # 1 of 12 is more than the task tolerates


async def test_votes_decide_by_majority_and_tell_the_noise(tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def wavering(asked: Asked) -> Answer:
        counts[asked.text] = counts.get(asked.text, 0) + 1
        return Answer(text="incorrect" if counts[asked.text] == 2 else "correct")

    with StandInJudge(wavering) as judge:
        task = make_task(tmp_path, judge=judge.config(annotator="one_verdict"))
        three, two = [
            await evaluate(task, expert(task), judge=judge, tmp_path=tmp_path / str(n), num_votes=n)
            for n in (3, 2)
        ]
        counts.clear()
        two = await evaluate(
            task, expert(task), judge=judge, tmp_path=tmp_path / "again", num_votes=2
        )
    assert three.score == 100.0
    assert three.metrics["judge/agreement"] == pytest.approx(1 / 3)
    assert three.metrics["judge/noise_points"] > 0
    assert three.items[0].detail["num_correct_votes"] == 2
    assert two.score == 0.0  # a tie is not correct


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchService]:
    monkeypatch.setenv(key_variable(SEARCH), KEY)
    with SearchService() as running:
        yield running


def searching(question: str, step: int) -> str:
    return f"Action: search[{question} {step}]" if step < 2 else f"Action: answer[{step}]"


async def test_a_repetition_is_identical_and_free(tmp_path: Path, service: SearchService) -> None:
    settings: dict[str, Setting] = {"search": SEARCH, "search_url": service.url(SEARCH)}
    first = await make_task(tmp_path, settings=settings).evaluate(Player(searching))
    assert len(service.queries) == 24
    second = await make_task(tmp_path, settings=settings).evaluate(Player(searching))
    assert len(service.queries) == 24
    assert [item.detail for item in first.items] == [item.detail for item in second.items]
    replay = make_task(tmp_path, settings={**settings, "search_cache_only": True})
    replay.check_data()
    third = await replay.evaluate(Player(searching))
    assert third.score == first.score
    other = await replay.evaluate(Player(lambda q, step: f"search[never {q}]"))
    assert other.score is None
    assert "not in the search cache" in other.failure
    assert len(service.queries) == 24


async def test_a_search_that_fails_in_passing_is_played_again(
    tmp_path: Path, service: SearchService
) -> None:
    service.fault = lambda number: (403, "no", {}) if number in (3, 5) else None
    task = make_task(tmp_path, settings={"search": SEARCH, "search_url": service.url(SEARCH)})
    context = Player(searching)
    result = await task.evaluate(context)
    assert result.num_errors == 0
    assert context.num_played == 14
    assert all(episode.waits for episode in task.episodes())


async def test_an_outage_of_the_search_is_no_score(tmp_path: Path, service: SearchService) -> None:
    service.fault = lambda number: (401, "no", {})
    task = make_task(tmp_path, settings={"search": SEARCH, "search_url": service.url(SEARCH)})
    context = Player(searching)
    result = await task.evaluate(context)
    assert result.score is None
    assert {item.status for item in result.items} == {ItemStatus.ENV_ERROR}
    assert "answered 401" in result.failure
    assert KEY not in json.dumps([dict(item.detail) for item in result.items])
    assert context.num_played == 12


async def test_public_questions_are_played_and_judged(tmp_path: Path, real_data: Path) -> None:
    folder = real_data / "deepsearchqa"
    with StandInJudge(judge_by_reference) as judge:
        config = judge.config(annotator="one_verdict")
        task = make_task(
            tmp_path,
            judge=config,
            data_path=folder,
            num_train=20,
            num_eval=80,
            settings={"search": "none"},
        )
        task.check_data()
        known = {row.problem: row.answer for row in task.eval_rows[:20]}
        result = await evaluate(
            task,
            lambda question, step: f"Action: answer[{known.get(question, 'Atlantis')}]",
            judge=judge,
            tmp_path=tmp_path,
        )
    assert result.num_items == 80
    assert result.score == 25.0
    assert judge.num_requests == 80
