"""DeepSearchQA around its evaluation: train data, what is checked before, and the version."""

import json
import sys
from pathlib import Path

import gymnasium
import pytest

import envs  # noqa: F401  registers the environments
from envs.search.backends import key_variable
from rl_bench.config import JudgeConfig
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.deepsearchqa.data import read_rows
from tests.envs.search_service import KEY
from tests.rl_bench.tasks.deepsearchqa_scene import make_task


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
