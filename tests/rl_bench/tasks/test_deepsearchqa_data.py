"""DeepSearchQA's rows, the published split, and the invented country."""

import csv
import json
from pathlib import Path

import datasets
import pytest

from envs.answer_match import SET_ANSWER, match
from rl_bench.config import DataSource, Setting, TaskConfig
from rl_bench.errors import ConfigError, PreflightError
from rl_bench.tasks.deepsearchqa.data import DeepSearchQAData, Row, read_rows, shuffled
from rl_bench.tasks.deepsearchqa.generated import draw_questions
from rl_bench.tasks.deepsearchqa.world import make_world


def make_rows(num: int) -> list[Row]:
    return [
        Row(
            index=i,
            problem=f"q{i}",
            answer=f"a{i}",
            answer_type="Single Answer",
            category="",
        )
        for i in range(num)
    ]


def make_data(
    tmp_path: Path,
    *,
    num_train: int | None = None,
    num_eval: int | None = None,
    settings: dict[str, Setting] | None = None,
) -> DeepSearchQAData:
    config = TaskConfig(
        name="dsqa",
        kind="deepsearchqa",
        level="L3",
        source=DataSource.PATH,
        data_path=tmp_path,
        num_train=num_train,
        num_eval=num_eval,
        max_tokens=8,
        settings=settings or {},
    )
    return DeepSearchQAData(config, cache=tmp_path)


def write_csv(folder: Path, answers: list[str]) -> None:
    with (folder / "DSQA-full.csv").open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["problem", "problem_category", "answer", "answer_type"])
        for i, answer in enumerate(answers):
            writer.writerow([f'q{i}, "quoted"\nline', "History", answer, "Set Answer"])


@pytest.mark.parametrize("num", [1, 2, 100, 900])
@pytest.mark.parametrize("seed", [42, 0])
def test_the_split_is_that_of_the_package_datasets(num: int, seed: int) -> None:
    theirs = datasets.Dataset.from_list([{"i": i} for i in range(num)]).shuffle(seed=seed)
    assert [row.index for row in shuffled(make_rows(num), seed=seed)] == list(theirs["i"])


def test_the_first_hundred_train_and_the_next_are_evaluated(tmp_path: Path) -> None:
    write_csv(tmp_path, [f"a{i}" for i in range(900)])
    data = make_data(tmp_path, num_eval=200)
    order = [row.index for row in shuffled(make_rows(900), seed=42)]
    assert [row.index for row in data.rows("train")] == order[:100]
    assert [row.index for row in data.rows("eval")] == order[100:300]


def test_the_word_none_is_an_answer(tmp_path: Path) -> None:
    write_csv(tmp_path, ["None", "nan", "NULL", " 7 "])
    assert [row.answer for row in read_rows(tmp_path)] == ["None", "nan", "NULL", " 7 "]
    assert read_rows(tmp_path)[0].problem == 'q0, "quoted"\nline'


def test_a_subset_keeps_its_places(tmp_path: Path) -> None:
    row = {"row_idx": 77, "problem": "q", "answer": "None", "answer_type": "Single Answer"}
    (tmp_path / "subset_1.jsonl").write_text(json.dumps({**row, "problem_category": "Arts"}))
    [read] = read_rows(tmp_path)
    assert (read.index, read.answer, read.category) == (77, "None", "Arts")


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        '{"problem": "q", "answer": null, "answer_type": "Single Answer"}',
        '{"problem": "q", "answer": "", "answer_type": "Single Answer"}',
        '{"problem": "q", "answer": "a", "answer_type": "Other"}',
    ],
)
def test_broken_rows_are_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "subset_1.jsonl").write_text(line)
    with pytest.raises(PreflightError, match=r"subset_1\.jsonl, row 0: not a row"):
        read_rows(tmp_path)
    (tmp_path / "subset_1.jsonl").write_text("nonsense")
    with pytest.raises(PreflightError, match="line 1: not JSON"):
        read_rows(tmp_path)


def test_a_field_without_end_and_rows_of_one_index_are_named(tmp_path: Path) -> None:
    write_csv(tmp_path, ["a" * 200_000])
    with pytest.raises(PreflightError, match=r"DSQA-full\.csv: not a table.*huggingface"):
        read_rows(tmp_path)
    (tmp_path / "DSQA-full.csv").unlink()
    row = {"row_idx": 7, "problem": "q", "answer": "a", "answer_type": "Single Answer"}
    (tmp_path / "subset_2.jsonl").write_text(f"{json.dumps(row)}\n" * 2)
    with pytest.raises(PreflightError, match="2 rows have the row_idx 7"):
        read_rows(tmp_path)


def test_a_question_asked_in_both_splits_is_left_out_of_train(tmp_path: Path) -> None:
    def write(*problems: str) -> None:
        row = {"answer": "a", "answer_type": "Single Answer"}
        rows = [json.dumps({**row, "problem": problem}) for problem in problems]
        (tmp_path / "subset_3.jsonl").write_text("\n".join(rows))

    write("q", "q", "r")
    for seed in range(8):  # some orders put the two apart
        data = make_data(tmp_path, num_train=2, num_eval=1, settings={"shuffle_seed": seed})
        [asked] = data.rows("eval")
        assert {row.problem for row in data.rows("train")} == {"q", "r"} - {asked.problem}
    write("q", "q", "q")
    with pytest.raises(PreflightError, match="0 train rows left"):
        make_data(tmp_path, num_train=2, num_eval=1).rows("train")


def test_missing_and_too_few_rows_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"not found.*DSQA-full\.csv"):
        make_data(tmp_path).rows("eval")
    write_csv(tmp_path, ["a"] * 100)
    with pytest.raises(PreflightError, match=r"0 eval rows left of the 100 .*20 and 80"):
        make_data(tmp_path, num_eval=200).rows("eval")
    with pytest.raises(PreflightError, match=r"80 eval rows left of the 100 there, .* 81 wanted"):
        make_data(tmp_path, num_train=20, num_eval=81).rows("eval")
    data = make_data(tmp_path, num_train=20, num_eval=80)
    indices = [row.index for split in ("train", "eval") for row in data.rows(split)]
    assert sorted(indices) == list(range(100))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": "bing"}, "settings.search is 'bing'"),
        ({"serach": "bm25"}, "settings.serach"),
        ({"num_results": 0}, "settings.num_results"),
        ({"beside": "both"}, "settings.beside"),
        ({"search": "bm25", "search_cache_only": True}, "search_cache_only has no effect"),
        ({"search": "none", "search_url": "http://x"}, "search_url has no effect"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, settings: dict[str, Setting], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_data(tmp_path, settings=settings)


def test_a_country_is_a_function_of_split_seed_and_size() -> None:
    world = make_world("eval", seed=3, num_towns=20)
    assert world == make_world("eval", seed=3, num_towns=20)
    assert world != make_world("eval", seed=4, num_towns=20)
    assert draw_questions(world, seed=1) == draw_questions(world, seed=1)
    with pytest.raises(ValueError, match="4 to 80 towns"):
        make_world("eval", seed=0, num_towns=81)


@pytest.mark.parametrize("num_towns", [4, 40, 80])
def test_the_two_countries_share_no_names(num_towns: int) -> None:
    train, held_out = (make_world(s, seed=0, num_towns=num_towns) for s in ("train", "eval"))
    for world in (train, held_out):
        names = [person.name for person in world.people]
        names += [name for town in world.towns for name in (town.name, town.mayor)]
        assert len(set(names)) == len(names)
        assert len({article.title for article in world.articles()}) == len(world.articles())
    titles = [{article.title for article in world.articles()} for world in (train, held_out)]
    assert not titles[0] & titles[1]
    asked = [{q.problem for q in draw_questions(w, seed=0)} for w in (train, held_out)]
    assert not asked[0] & asked[1]


def test_questions_are_distinct_and_match_their_own_answers() -> None:
    questions = draw_questions(make_world("eval", seed=0, num_towns=40), seed=0)
    assert len({each.problem for each in questions}) == len(questions) > 300
    assert all(
        match(each.answer, each.answer, answer_type=each.answer_type) == 1.0 for each in questions
    )
    assert sum(each.answer_type == SET_ANSWER for each in questions[:60]) == 30


def test_public_rows_can_be_read_and_split(real_data: Path) -> None:
    folder = real_data / "deepsearchqa"
    rows = read_rows(folder)
    assert len(rows) >= 100
    assert len({row.index for row in rows}) == len(rows)
    data = make_data(folder, num_train=20, num_eval=80)
    assert not {r.problem for r in data.rows("train")} & {r.problem for r in data.rows("eval")}
