"""Every query of docs/queries.md, run as it stands there and checked against known answers."""

import re
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.analysis.frames import Run, right, write

DOCS = Path(__file__).resolve().parents[2] / "docs" / "queries.md"
BLOCK = re.compile(r"\*\*([^*]+)\*\*[^`]*?```(sql|python)\n(.*?)\n```", re.DOTALL)


def queries() -> dict[str, tuple[str, str]]:
    found = BLOCK.findall(DOCS.read_text(encoding="utf-8"))
    return {question: (language, code) for question, language, code in found}


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = right(20, 40, seed=0)
    broken = [*base]
    broken[base.index(1.0)] = 0.0
    better = [1.0] * 40
    runs = [
        Run(name="a0", agent="a", scores=[50.0, 60.0], hours=[1.0, 6.0], cost=10.0,
            items={0: base, 1: base, 2: better}, calls=[(0.5, 1_000_000, 1.0), (2.1, 10, 1.0)]),
        Run(name="a1", agent="a", seed=1, scores=[None, 80.0], hours=[0.5, 3.0], cost=30.0,
            items={0: base, 2: better}),
        Run(name="b0", agent="b", scores=[47.5], hours=[2.0], cost=5.0, items={0: base, 1: broken}),
        Run(name="b1", agent="b", seed=1, scores=[99.0], is_invalid=True),
        Run(name="lost", agent="b", seed=2, end="infra_error", is_infrastructure=True),
        Run(name="m", agent="a", mode="multi", task="gsm8k", tasks=("gsm8k", "alfworld"),
            scores=[55.0], cost=100.0),
        Run(name="m", agent="a", mode="multi", task="alfworld", tasks=("gsm8k", "alfworld"),
            scores=[70.0], cost=100.0),
    ]  # fmt: skip
    write(tmp_path, runs)
    monkeypatch.chdir(tmp_path)


def answer(question: str) -> pl.DataFrame:
    language, code = queries()[question]
    assert "\n" not in code, "a one-liner"
    if language == "sql":
        relation = duckdb.sql(code)
        assert relation is not None
        found = relation.pl()
        assert isinstance(found, pl.DataFrame)
        return found
    result = eval(code, {"pl": pl})  # noqa: S307  (our own docs)
    assert isinstance(result, pl.DataFrame)
    return result


def test_there_are_five_of_each() -> None:
    languages = [language for language, _ in queries().values()]
    assert (languages.count("sql"), languages.count("python")) == (5, 5)


def test_gains_by_stack(sweep: None) -> None:
    rows = answer("Which stack gains most on each task, and from how many runs?").rows()
    assert ("gsm8k", "free", "a/d", 20.0, 2) in rows
    assert ("gsm8k", "free", "b/d", -2.5, 1) in rows
    assert len(rows) == 4


def test_runs_in_no_mean(sweep: None) -> None:
    rows = answer("Why is a run in no mean, and whose was it?").rows()
    assert sorted(row[2] for row in rows) == ["completed", "infra_error"]
    assert {row[0] for row in rows} == {"b"}


def test_cost_of_a_point(sweep: None) -> None:
    rows = answer("What did a point cost?").rows()
    assert rows == [("a/d", "gsm8k", 1.0, 2)]


def test_items_that_training_broke(sweep: None) -> None:
    found = answer(
        "Which items did training break: right for the base model, wrong for the best submission?"
    )
    place = right(20, 40, seed=0).index(1.0)
    assert found.rows() == [("gsm8k", f"i{place:04d}", 1)]


def test_two_stacks_on_the_same_items(sweep: None) -> None:
    found = answer("On which items of a task do two stacks differ?")
    assert found.rows() == [("gsm8k", "a/d", "b/d", 40, pytest.approx(-52.5))]


def test_best_runs(sweep: None) -> None:
    found = answer("Which run is the best on each task?")
    assert dict(found.select("task", "run_id").iter_rows()) == {"gsm8k": "a1", "alfworld": "m"}
    assert found["best_score"].to_list() == [80.0, 70.0]


def test_time_to_scores(sweep: None) -> None:
    found = answer("How long until the first score, and until the best one?")
    # a0: 1 h and 6 h, a1: 3 h and 3 h, m: 1 h and 1 h on both tasks.
    assert found.rows() == [("a", 1.0, 2.0, 4), ("b", 2.0, 2.0, 1)]


def test_four_hours(sweep: None) -> None:
    found = answer("What would runs have had after four hours?")
    row = found.filter((pl.col("agent") == "b") & (pl.col("task") == "gsm8k"))
    assert row.row(0) == ("b", "d", "gsm8k", -2.5, -2.5, 1)
    row = found.filter((pl.col("agent") == "a") & (pl.col("task") == "gsm8k"))
    assert row["gain_4h"].to_list() == [pytest.approx((0 + 30 + 5) / 3)]
    assert row["gain"].to_list() == [pytest.approx((10 + 30 + 5) / 3)]


def test_tokens_by_hour(sweep: None) -> None:
    found = answer("When are tokens spent?")
    assert found.select("agent", "hour", "calls").rows() == [("a", 0, 1), ("a", 2, 1)]
    assert found["millions"].to_list() == pytest.approx([1.1, 11e-6])


def test_failed_gradings(sweep: None) -> None:
    assert answer("Why do submissions get no score?").rows() == [("gsm8k", "", 1, 1)]
