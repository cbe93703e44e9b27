"""DeepSearchQA's evaluation: real episodes, a real search server, a real judge pool."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import envs  # noqa: F401  registers the environments
from envs.protocols import get_protocol
from envs.search.backends import key_variable
from rl_bench.config import DataSource, JudgeConfig, Setting, TaskConfig
from rl_bench.engine.base import Completion, FinishReason, GenerationRequest, Sampling
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.grading_status import Tally
from rl_bench.judges.base import Judge
from rl_bench.judges.pool import JudgePool
from rl_bench.rollout import RolloutSpec, play_episode
from rl_bench.tasks.base import Episode, EvalResult, ItemOutcome, ItemStatus
from rl_bench.tasks.deepsearchqa.data import read_rows
from rl_bench.tasks.deepsearchqa.demos import Demonstrator
from rl_bench.tasks.deepsearchqa.task import DeepSearchQATask
from tests.envs.search_service import KEY, SearchService
from tests.rl_bench.judges.stand_in import Answer, Asked, Fault, StandInJudge

Act = Callable[[str, int], str]
"""Question and number of the step to completion."""
SEARCH = "serper"


class Policy:
    """Completes prompts of the search protocol."""

    def __init__(self, act: Act) -> None:
        self._act = act

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        texts = [_stopped(self._complete(r.text or ""), r.sampling.stop) for r in requests]
        return [
            Completion(
                text=text, num_prompt_tokens=9, num_tokens=5, finish_reason=FinishReason.STOP
            )
            for text in texts
        ]

    def _complete(self, prompt: str) -> str:
        asked = re.search(r"^Question: (.*)$", prompt, re.MULTILINE)
        assert asked is not None
        return self._act(asked[1], prompt.count("\nObservation:"))


def _stopped(text: str, stop: Sequence[str]) -> str:
    return text[: min((at for each in stop if (at := text.find(each)) >= 0), default=len(text))]


class PlayingContext:
    """Plays episodes as a rollout worker does, and judges with ``pool``."""

    tally = Tally("r", task="t")

    def __init__(self, act: Act, pool: Judge | None = None, *, repeat: int = 0) -> None:
        self.policy = Policy(act)
        self._pool = pool
        self.repeat = repeat
        self.num_played = 0

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        raise AssertionError("an interactive task plays")

    def judge(self, config: JudgeConfig) -> Judge:
        assert self._pool is not None
        return self._pool

    async def play(self, episodes: Sequence[Episode], *, protocol: str) -> list[ItemOutcome]:
        self.num_played += len(episodes)
        return list(await asyncio.gather(*(self._play(each, protocol) for each in episodes)))

    async def _play(self, episode: Episode, protocol: str) -> ItemOutcome:
        arguments: dict[str, Any] = dict(episode.env_kwargs)
        env = gymnasium.make(episode.env_id, **arguments).unwrapped
        spec = RolloutSpec(
            protocol=protocol, sampling=Sampling(max_tokens=8, temperature=0.0), max_steps=6
        )
        try:
            return await play_episode(
                env, episode, policy=self.policy, protocol=get_protocol(protocol), spec=spec
            )
        finally:
            env.close()


def make_task(
    cache: Path,
    *,
    protocol: str = "search_react",
    judge: JudgeConfig | None = None,
    data_path: Path | None = None,
    num_train: int | None = 10,
    num_eval: int | None = 12,
    settings: Mapping[str, Setting] | None = None,
    max_error_fraction: float = 0.05,
) -> DeepSearchQATask:
    config = TaskConfig(
        name="dsqa",
        kind="deepsearchqa",
        level="L3",
        source=DataSource.BUILTIN if data_path is None else DataSource.PATH,
        data_path=data_path,
        protocol=protocol,
        num_train=num_train,
        num_eval=num_eval,
        max_tokens=128,
        max_steps=6,
        judge=judge,
        settings={"search": "bm25", "num_towns": 8, **(settings or {})},
        max_error_fraction=max_error_fraction,
    )
    return DeepSearchQATask(config, cache=cache)


def expert(task: DeepSearchQATask) -> Act:
    """Searches as the rows say, then answers."""
    rows = {row.problem: row for row in task.eval_rows}

    def act(question: str, step: int) -> str:
        row = rows[question]
        if step < len(row.searches):
            return f" I look.\nAction: search[{row.searches[step]}]\nObservation: invented"
        return f" I know.\nAction: answer[{row.answer}]"

    return act


def judge_by_reference(asked: Asked) -> Answer:
    """Right when the response is the reference, in the form that was asked for."""
    text = asked.text
    reference = text.split("Reference answer:\n")[1].split("\n\n<response")[0]
    [response] = re.findall(r"<response \w+>\n(.*)\n</response", text, re.DOTALL)
    if "Reply with one word" in text:
        return Answer(text="Correct." if response == reference else "incorrect")
    details = {item: item in response for item in reference.split(", ")}
    extra = [] if response in (reference, reference.split(", ")[0]) else ["Atlantis"]
    rated = {"Explanation": "", "Correctness Details": details, "Excessive Answers": extra}
    return Answer(text=json.dumps({"Answer Correctness": rated}))


async def evaluate(
    task: DeepSearchQATask,
    act: Act,
    *,
    judge: StandInJudge,
    tmp_path: Path,
    repeat: int = 0,
    **fields: object,
) -> EvalResult:
    config = judge.config(timeout_s=5.0, **{"num_retries": 1, **fields})
    pool = JudgePool.from_config(
        config, cache=tmp_path / "judge", log_folder=tmp_path, first_wait_s=0.01
    )
    try:
        return await task.evaluate(PlayingContext(act, pool, repeat=repeat))
    finally:
        await pool.close()


async def test_without_a_judge_answers_are_compared(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    task.check_data()
    perfect = await task.evaluate(PlayingContext(expert(task)))
    assert perfect.score == 100.0
    assert perfect.metrics["answered_percent"] == 100.0
    assert perfect.metrics["mean_searches"] >= 1.0
    silent = await task.evaluate(PlayingContext(lambda question, step: "I wonder."))
    assert silent.score == silent.metrics["answered_percent"] == 0.0
    assert {item.detail["outcome"] for item in silent.items} == {"no_answer"}
    assert {item.num_steps for item in silent.items} == {6}
    empty = await task.evaluate(PlayingContext(lambda question, step: "Action: answer[ ]"))
    assert empty.score == 0.0
    assert empty.metrics["no_answer_percent"] == 100.0
    wrong = await task.evaluate(PlayingContext(lambda question, step: "answer[Atlantis]"))
    assert wrong.score == 0.0
    assert {item.detail["outcome"] for item in wrong.items} == {"incorrect"}


async def test_the_published_stop_strings_force_an_answer_without_a_search(
    tmp_path: Path,
) -> None:
    task = make_task(tmp_path, protocol="search_react_published", settings={"forced_answer": True})
    known = {row.problem: row.answer for row in task.eval_rows}

    def act(question: str, step: int) -> str:
        return f" I remember {known[question]}.\nAction: search[{question}]"

    class Answering(Policy):
        def _complete(self, prompt: str) -> str:
            if prompt.endswith("\nAction: answer["):
                [remembered] = re.findall(r"Thought: I remember (.*)\.\n", prompt)
                return f"{remembered}]\nObservation: invented"
            return super()._complete(prompt)

    context = PlayingContext(act)
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
    first = await make_task(tmp_path, settings=settings).evaluate(PlayingContext(searching))
    assert len(service.queries) == 24
    second = await make_task(tmp_path, settings=settings).evaluate(PlayingContext(searching))
    assert len(service.queries) == 24
    assert [item.detail for item in first.items] == [item.detail for item in second.items]
    replay = make_task(tmp_path, settings={**settings, "search_cache_only": True})
    replay.check_data()
    third = await replay.evaluate(PlayingContext(searching))
    assert third.score == first.score
    other = await replay.evaluate(PlayingContext(lambda q, step: f"search[never {q}]"))
    assert other.score is None
    assert "not in the search cache" in other.failure
    assert len(service.queries) == 24


async def test_a_search_that_fails_in_passing_is_played_again(
    tmp_path: Path, service: SearchService
) -> None:
    service.fault = lambda number: (403, "no", {}) if number in (3, 5) else None
    task = make_task(tmp_path, settings={"search": SEARCH, "search_url": service.url(SEARCH)})
    context = PlayingContext(searching)
    result = await task.evaluate(context)
    assert result.num_errors == 0
    assert context.num_played == 14
    assert all(episode.waits for episode in task.episodes())


async def test_an_outage_of_the_search_is_no_score(tmp_path: Path, service: SearchService) -> None:
    service.fault = lambda number: (401, "no", {})
    task = make_task(tmp_path, settings={"search": SEARCH, "search_url": service.url(SEARCH)})
    context = PlayingContext(searching)
    result = await task.evaluate(context)
    assert result.score is None
    assert {item.status for item in result.items} == {ItemStatus.ENV_ERROR}
    assert "answered 401" in result.failure
    assert KEY not in json.dumps([dict(item.detail) for item in result.items])
    assert context.num_played == 12


def write_public(folder: Path, *, num: int = 30) -> Path:
    rows = [
        {
            "row_idx": i,
            "problem": f"Which one is number {i}?",
            "problem_category": "Other",
            "answer": f"secret{i:03d}",
            "answer_type": "Single Answer",
        }
        for i in range(num)
    ]
    folder.mkdir()
    (folder / "subset_30.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    article = {"title": "Numbers", "url": "local:1", "text": "There are numbers."}
    (folder / "corpus.jsonl").write_text(json.dumps(article))
    return folder


def test_no_episode_and_no_train_file_holds_a_reference(tmp_path: Path) -> None:
    judge = JudgeConfig(name="j", annotator="official", model_id="m", base_url="http://x/v1")
    folder = write_public(tmp_path / "public")
    task = make_task(tmp_path, judge=judge, data_path=folder, num_eval=20)
    task.check_data()
    task.write_train_data(tmp_path / "data")
    episodes = json.dumps([[dict(e.env_kwargs), dict(e.options)] for e in task.episodes()])
    assert "secret" not in episodes
    train = (tmp_path / "data" / "train.jsonl").read_text()
    assert train.count("secret") == 10
    assert not any(row.answer in train for row in task.eval_rows)
    assert (tmp_path / "data" / "corpus.jsonl").is_file()
    assert "proxy" in (tmp_path / "data" / "README.md").read_text()


def test_train_data_of_the_builtin_can_be_played_and_learnt_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path)
    task.write_train_data(tmp_path / "data")
    monkeypatch.setenv("DATA_PATH", str(tmp_path / "data"))
    env = gymnasium.make("rl_bench/DeepSearchQA-v0")
    lines = (tmp_path / "data" / "train.jsonl").read_text().splitlines()
    assert len(lines) == 10
    for index, line in enumerate(lines):
        seen, _ = env.reset(options={"episode": index})
        reward = 0.0
        for turn in json.loads(line)["turns"]:
            assert turn["observation"] == seen
            seen, step_reward, *_ = env.step(turn["action"])
            reward += float(step_reward)
        assert reward == 1.0
    env.close()
    train = "\n".join(lines)
    assert not any(row.problem in train for row in task.eval_rows)
    corpus = (tmp_path / "data" / "corpus.jsonl").read_text()
    assert corpus != Path(str(task.episodes()[0].env_kwargs["corpus"])).read_text()


def test_what_searches_need_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(key_variable("tavily"), raising=False)
    with pytest.raises(PreflightError, match=r"TAVILY_API_KEY.*Other choices"):
        make_task(tmp_path, settings={"search": "tavily"}).check_data()
    monkeypatch.setenv(key_variable("tavily"), KEY)
    make_task(tmp_path, settings={"search": "tavily"}).check_data()
    make_task(tmp_path, settings={"search": "none"}).check_data()
    monkeypatch.setitem(sys.modules, "ddgs", None)
    with pytest.raises(PreflightError, match="pip install ddgs"):
        make_task(tmp_path, settings={"search": "duckduckgo"}).check_data()
    with pytest.raises(PreflightError, match="no search cache"):
        make_task(tmp_path, settings={"search": "brave", "search_cache_only": True}).check_data()
    with pytest.raises(PreflightError, match="no search corpus"):
        make_task(tmp_path, settings={"corpus": str(tmp_path / "none")}).check_data()
    judge = JudgeConfig(name="j", annotator="official", model_id="m", base_url="http://x/v1")
    folder = write_public(tmp_path / "public")
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(PreflightError, match=r"no corpus.*settings\.corpus"):
        make_task(tmp_path, judge=judge, data_path=folder).check_data()


def test_too_few_rows_and_a_missing_key_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(key_variable("tavily"), raising=False)
    judge = JudgeConfig(name="j", annotator="official", model_id="m", base_url="http://x/v1")
    folder = write_public(tmp_path / "public")
    num = len(read_rows(folder))
    settings = {"search": "tavily"}
    task = make_task(tmp_path, judge=judge, data_path=folder, num_train=num, settings=settings)
    with pytest.raises(PreflightError, match="TAVILY_API_KEY") as caught:
        task.check_data()
    said = f"0 eval rows left of the {num} there, since task.num_train takes {num} of them"
    assert said in caught.value.message
    with pytest.raises(PreflightError, match=r"5000 wanted. Lower task\.num_eval to \d+$"):
        make_task(tmp_path, num_eval=5000).check_data()


def test_config_mistakes_are_config_errors(tmp_path: Path) -> None:
    folder = write_public(tmp_path / "public")
    with pytest.raises(ConfigError, match=r"no judge.*task\.judge"):
        make_task(tmp_path, data_path=folder)
    judge = JudgeConfig(name="j", annotator="both", model_id="m", base_url="http://x/v1")
    with pytest.raises(ConfigError, match=r"shouting.*: search_react, search_react_published$"):
        make_task(tmp_path, protocol="shouting").check_data()
    with pytest.raises(ConfigError, match="official, one_verdict"):
        make_task(tmp_path, data_path=folder, judge=judge)


def test_the_version_tells_what_decides_a_score(tmp_path: Path) -> None:
    folder = write_public(tmp_path / "public")
    judge = JudgeConfig(name="j", annotator="official", model_id="m", base_url="http://x/v1")
    versions = {
        task.evaluator_version
        for task in (
            make_task(tmp_path),
            make_task(tmp_path, settings={"forced_answer": True}),
            make_task(tmp_path, settings={"search": "none"}),
            make_task(tmp_path, judge=judge),
            make_task(tmp_path, judge=judge, data_path=folder),
            make_task(tmp_path, judge=judge, data_path=folder, num_train=100),
        )
    }
    assert len(versions) == 6


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
