"""The search environment: what actions do, what an episode is worth, and what it must not know."""

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import envs  # noqa: F401  registers the environments
from envs.deepsearchqa import DeepSearchQAEnv
from envs.errors import EnvironmentBroken
from envs.search.backends import key_variable
from tests.envs.search_service import KEY, SearchService

ENV_ID = "rl_bench/DeepSearchQA-v0"
ROWS = [
    {"problem": "Which river?", "answer": "The Ouse", "answer_type": "Single Answer"},
    {"problem": "Which towns?", "answer": "Ely, York and Ripon", "answer_type": "Set Answer"},
    {"problem": "How many? ☃", "answer": "209,550,294", "category": "Geography"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    lines = "\n".join(json.dumps(row) for row in ROWS)
    (folder / "train.jsonl").write_text(lines, encoding="utf-8")
    article = {"title": "Ouse", "url": "local:1", "text": "The river Ouse flows through York."}
    (folder / "corpus.jsonl").write_text(json.dumps(article), encoding="utf-8")
    return folder


@pytest.fixture
def env(data: Path) -> Iterator[DeepSearchQAEnv]:
    made = DeepSearchQAEnv(data_dir=str(data))
    yield made
    made.close()


def test_an_episode_searches_and_answers(env: DeepSearchQAEnv) -> None:
    observation, info = env.reset(options={"episode": 0})
    assert observation == info["question"] == "Which river?"
    assert info["available_actions"] == ["search[<query>]", "answer[<text>]"]
    found, reward, terminated, truncated, info = env.step("It is a river.\nAction: search[York]")
    assert found == "[1] Ouse (local:1): The river Ouse flows through York."
    assert (reward, terminated, truncated, info["num_searches"]) == (0.0, False, False, 1)
    _, reward, terminated, truncated, info = env.step("Action: answer[ouse]")
    assert (reward, terminated, truncated, info["answer"]) == (1.0, True, False, "ouse")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("search[again]")
    assert env.reset(options={"episode": 1})[1]["answer"] == ""


@pytest.mark.parametrize(
    ("episode", "answer", "reward"),
    [
        (0, "Ouse", 1.0),
        (0, "the river Ouse", 0.0),
        (1, "York, Ripon, Ely", 1.0),
        (1, "1. York\n2. Ely\n", 0.8),
        (1, "York; Hull", 0.4),
        (1, "York", 0.5),
        (2, "209,550,294", 1.0),
        (2, "209 550 294.", 1.0),
        (0, "", 0.0),
        (1, " , ;", 0.0),
    ],
)
def test_train_episodes_are_worth_the_match(
    env: DeepSearchQAEnv, episode: int, answer: str, reward: float
) -> None:
    env.reset(options={"episode": episode})
    assert env.step(f"answer[{answer}]")[1] == pytest.approx(reward)


def test_a_question_without_reference_is_worth_nothing(env: DeepSearchQAEnv) -> None:
    options = {"question": "Which river?", "category": "C", "answer_type": "Set Answer"}
    observation, info = env.reset(options=options)
    assert observation == "Which river?"
    assert (info["category"], info["answer_type"]) == ("C", "Set Answer")
    assert env.step("answer[The Ouse]")[1] == 0.0


def test_no_info_holds_the_reference(env: DeepSearchQAEnv) -> None:
    seen: list[Any] = [env.reset(options={"episode": 0}), env.step("search[York]"), env.step("?")]
    assert "The Ouse" not in json.dumps(seen)


def test_what_is_no_action_is_answered_and_costs_a_step(env: DeepSearchQAEnv) -> None:
    env.reset(options={"episode": 0})
    for text in ("", "look around", "I might search[York] later", "search York", "search[ ]"):
        observation, reward, terminated, truncated, info = env.step(text)
        assert "search[<query>]" in observation
        assert (reward, terminated, truncated, info["num_searches"]) == (0.0, False, False, 0)
    _, _, terminated, truncated, info = env.step("search[a]")
    assert (terminated, truncated, info["answer"]) == (False, True, "")


def test_without_a_corpus_there_is_no_search(data: Path) -> None:
    (data / "corpus.jsonl").unlink()
    env = DeepSearchQAEnv(data_dir=str(data))
    _, info = env.reset(seed=1)
    assert info["available_actions"] == ["answer[<text>]"]
    observation, *_ = env.step("search[x]")
    assert "no search here" in observation
    env.close()


def test_a_bare_make_works_in_a_workspace(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(data))
    env = gymnasium.make(ENV_ID)
    questions = {str(env.reset(seed=seed)[0]) for seed in range(20)}
    assert questions == {row["problem"] for row in ROWS}
    env.close()
    several = data.parent / "several"
    (several / "gsm8k").mkdir(parents=True)
    (several / "gsm8k" / "train.jsonl").write_text('{"question": "1+1?", "answer": "2"}')
    data.rename(several / "deepsearchqa_mini")
    monkeypatch.setenv("DATA_PATH", str(several))
    env = gymnasium.make(ENV_ID)
    observation, info = env.reset(options={"episode": 1})
    assert observation == "Which towns?"
    assert len(info["available_actions"]) == 2
    env.close()


def test_missing_data_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    env = DeepSearchQAEnv()
    with pytest.raises(EnvironmentBroken, match=r"train\.jsonl.*data_dir.*DATA_PATH"):
        env.reset(seed=0)
    env.reset(options={"question": "still?"})
    env.close()
    (tmp_path / "train.jsonl").write_text('{"problem": "x"}')
    with pytest.raises(EnvironmentBroken, match=r"train\.jsonl, line 1"):
        env.reset(seed=0)
    with pytest.raises(EnvironmentBroken, match="JSONL"):
        DeepSearchQAEnv(search="bm25", corpus=str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="choices"):
        DeepSearchQAEnv(search="bing")
    with pytest.raises(ValueError, match="positive"):
        DeepSearchQAEnv(max_steps=0)


def test_an_episode_out_of_range_is_told(env: DeepSearchQAEnv) -> None:
    with pytest.raises(EnvironmentBroken, match=r"episode 3: .*has 0 to 2"):
        env.reset(options={"episode": 3})


@pytest.mark.parametrize(
    "text", ["Paris]", "answer[Paris]", " Action: answer[Paris] and more", "Paris"]
)
def test_a_forced_answer_takes_whatever_is_said(data: Path, text: str) -> None:
    env = DeepSearchQAEnv(data_dir=str(data), forced_answer=True)
    env.reset(options={"episode": 0})
    *_, info = env.step("I am thinking about it.")
    assert info["expects_answer"] is True
    _, _, terminated, _, info = env.step(text)
    assert (terminated, info["answer"], info["expects_answer"]) == (True, "Paris", True)
    _, info = env.reset(options={"episode": 0})
    assert info["expects_answer"] is False
    env.close()


def test_a_failed_search_breaks_the_step_and_can_be_tried_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(key_variable("serper"), KEY)
    with SearchService() as service:
        service.fault = lambda number: (403, "no", {}) if number == 0 else None
        env = DeepSearchQAEnv(data_dir=str(data), search="serper", search_url=service.url("serper"))
        env.reset(options={"episode": 0})
        with pytest.raises(EnvironmentBroken, match="answered 403"):
            env.step("search[x]")
        observation, *_, info = env.step("search[x]")
        env.close()
    assert observation.startswith("[1] x 0 (https://example.org/0")
    assert info["num_searches"] == 1


def test_observations_are_clipped(data: Path) -> None:
    env = DeepSearchQAEnv(data_dir=str(data), max_result_chars=20)
    env.reset(options={"episode": 0})
    assert env.step("search[York]")[0] == "[1] Ouse (local:1): "
    env.close()


def test_gymnasium_accepts_it(data: Path) -> None:
    env = gymnasium.make(ENV_ID, data_dir=str(data), disable_env_checker=True)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_the_same_seed_plays_the_same(data: Path) -> None:
    def play() -> list[Any]:
        env = DeepSearchQAEnv(data_dir=str(data))
        rng = random.Random(7)
        seen: list[Any] = [env.reset(seed=11)]
        for _ in range(60):
            step = env.step(rng.choice(("search[York]", "answer[Ely]", "hm", "search[Ouse]")))
            seen.append(step)
            if step[2] or step[3]:
                seen.append(env.reset())
        env.close()
        return seen

    assert play() == play()


def test_ten_thousand_hostile_actions(env: DeepSearchQAEnv) -> None:
    rng = random.Random(3)
    parts = (
        *("search[", "answer[", "]", "[", "\n", "Action:", "Thought:", "Observation:", "York"),
        *("\x00", "\ud800", "\u202e", "𝒳", "ß", "%s", "{}", "\\", '"', "' OR 1=1 --", "<b>", " "),
        *("[" * 300, "x" * 5000, "York " * 300),
    )
    env.reset(seed=0)
    for _ in range(10_000):
        action = "".join(rng.choice(parts) for _ in range(rng.randrange(8)))
        observation, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(observation)
        assert 0.0 <= reward <= 1.0
        assert len(info["answer"].encode()) <= 16_000
        if terminated or truncated:
            env.reset()


def test_environments_in_threads_share_a_cache(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(key_variable("tavily"), KEY)
    seen: list[str] = []

    def play(service: SearchService) -> None:
        env = DeepSearchQAEnv(
            data_dir=str(data),
            search="tavily",
            search_url=service.url("tavily"),
            cache=str(data / "search.sqlite"),
        )
        env.reset(options={"question": "?"})
        seen.extend(str(env.step(f"search[q{n}]")[0]) for n in range(5))
        env.close()

    with SearchService() as service:
        for _ in range(2):
            threads = [threading.Thread(target=play, args=(service,)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            asked = len(service.queries)
        play(service)
        assert len(service.queries) == asked
    assert len(seen) == 13 * 5
    assert len(set(seen)) == 5
