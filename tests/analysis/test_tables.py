"""Tables: what goes in comes out of CSV, Markdown, LaTeX and the report's rows."""

import csv
import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.comparisons.all_tables import all_tables
from analysis.comparisons.compare import Comparison, compare
from analysis.comparisons.stack_tables import stack_table
from analysis.results import load
from analysis.tables import (
    DASH,
    Cell,
    Column,
    Table,
    from_frame,
    latex_escape,
    shown,
    write_tables,
)
from tests.analysis.frames import Run, right, write

COLUMNS = (
    Column(key="stack", header="Stack"),
    Column(key="gain", header="Gain", unit="points", kind="signed", digits=2),
    Column(key="p", header="p", kind="p_value"),
)
NASTY = r"a|b_c*d`e <f> & 100% $x$ #1 {y} ~ ^ \z"


def table(*rows: tuple[Cell, ...], **more: Any) -> Table:
    return Table(name="t", title="Gains & more_", columns=COLUMNS, rows=rows, **more)


def sample() -> Table:
    return table(
        (Cell(value=NASTY), Cell(value=-1.25, mark="~", detail="n=3"), Cell(value=0.0004)),
        (Cell(value="b"), Cell(value=12.345678, is_best=True), Cell(detail="one seed")),
        footnotes=("50% of a_b",),
    )


def unescaped_cells(line: str) -> list[str]:
    """Cells of a Markdown row, as a renderer shows them."""
    parts = re.split(r"(?<!\\)\|", line)[1:-1]
    return [re.sub(r"\\(.)", r"\1", part.strip()) for part in parts]


def test_csv_round_trip() -> None:
    rows = list(csv.DictReader(io.StringIO(sample().to_csv())))
    assert rows[0]["stack"] == NASTY
    assert float(rows[0]["gain"]) == -1.25
    assert float(rows[1]["gain"]) == 12.345678
    assert [row["gain_mark"] for row in rows] == ["~", "best"]
    assert [row["gain_detail"] for row in rows] == ["n=3", ""]
    assert [row["p"] for row in rows] == ["0.0004", ""]
    assert "stack_mark" not in rows[0]


def test_markdown_round_trip() -> None:
    lines = sample().to_markdown().splitlines()
    assert lines[0] == r"### Gains & more\_"
    assert unescaped_cells(lines[2]) == ["Stack", "Gain (points)", "p"]
    assert unescaped_cells(lines[3]) == ["---", "---:", "---:"]
    assert unescaped_cells(lines[4]) == [NASTY, "−1.25 ~ (n=3)", "< 0.001"]
    assert unescaped_cells(lines[5]) == ["b", "**+12.35**", f"{DASH} (one seed)"]
    assert lines[7] == r"- 50% of a\_b"


def test_latex_has_booktabs_and_escapes_everything() -> None:
    text = sample().to_latex()
    for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lrr}"):
        assert text.count(rule) == 1
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line]
    assert len(rows) == 2
    assert rows[0].startswith(latex_escape(NASTY) + " & $-$1.25")
    assert r"\textbf{+12.35}" in rows[1]
    assert all(len(re.findall(r"(?<!\\)&", row)) == 2 for row in rows)
    assert r"50\% of a\_b" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


@pytest.mark.parametrize("character", list(r"&%$#_{}~^\<>|"))
def test_no_special_character_reaches_latex_bare(character: str) -> None:
    escaped = latex_escape(character)
    assert escaped != character
    assert escaped.startswith("\\")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "number", DASH),
        (float("nan"), "number", DASH),
        ("", "text", DASH),
        (-0.001, "signed", "0.00"),
        (3.0, "signed", "+3.00"),
        (-3.0, "money", "−$3.00"),
        (1234567, "count", "1,234,567"),
        (0.04, "p_value", "0.040"),
        (0.0, "p_value", "< 0.001"),
        (True, "text", "yes"),
    ],
)
def test_values_as_people_read_them(value: float | str | None, kind: str, text: str) -> None:
    column = Column(key="k", header="K", kind=kind, digits=2)  # type: ignore[arg-type]  # a Literal
    assert shown(value, column) == text


def test_rows_for_the_report() -> None:
    made = table((Cell(value="base"), Cell(value=1.0), Cell()), num_head_rows=1).to_html_rows()
    assert made[0][1].sort == "1.0"
    assert set(made[0][1].classes) == {"number", "head"}
    assert set(made[0][2].classes) == {"number", "head", "missing"}
    assert made[0][2].sort == ""
    best = sample().to_html_rows()
    assert "noise" in best[0][1].classes
    assert best[0][1].text == "−1.25 ~"
    assert "best" in best[1][1].classes


def test_a_column_that_says_nothing_is_left_out() -> None:
    keys = ("none", "empty", "no", "zero", "some")
    values = [[None, "", False, 0.0, None], [None, "", False, 0.0, 1.0]]
    frame = pl.DataFrame(values, schema=keys, orient="row", strict=False)
    columns = [Column(key=key, header=key) for key in keys]
    table = from_frame(frame, columns, name="t", title="T", spare=keys)
    assert [column.key for column in table.columns] == ["zero", "some"]
    assert len(from_frame(frame, columns, name="t", title="T").columns) == len(keys)


def test_costs_of_runs_without_a_driver_say_what_is_known(tmp_path: Path) -> None:
    runs = [Run(name="r", scores=[60.0], cost=None), Run(name="q", task="alfworld", cost=None)]
    comparison = compare(load([write(tmp_path, runs)]))
    (table,) = (table for table in all_tables(comparison) if table.name == "costs")
    shown = [column.label for column in table.columns]
    assert {"Time a run (h)", "A point (min)", "Why none"} < set(shown)
    assert not {"Cost a run (USD)", "A point (USD)", "At least"} & set(shown)
    assert [note.split(":")[0] for note in table.footnotes[1:]] == ["Why none"]


def test_a_row_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 cells for 3 columns"):
        table((Cell(),))


def test_a_frame_marks_its_best_and_its_noise() -> None:
    frame = pl.DataFrame(
        {"stack": ["a", "b", "c"], "gain": [1.0, 5.0, None], "quiet": [True, False, None]}
    )
    made = from_frame(frame, COLUMNS[:2], name="t", title="T", best={"gain": "high"}, noise="quiet")
    assert [row[1].is_best for row in made.rows] == [False, True, False]
    assert [row[1].mark for row in made.rows] == ["~", "", ""]


def comparison(folder: Path) -> Comparison:
    run = partial(Run, model="qwen3_8b_base", task="alfworld")
    runs = [
        run(
            name=f"{agent}-{driver}-{seed}", agent=agent, driver=driver, seed=seed, baseline=10.0,
            scores=[score + seed], floor=3.0, items={0: right(10, 50), 1: right(30, 50)},
        )
        for agent, driver, score in (
            ("claude_code", "opus_4_6", 90.0), ("codex", "gpt_4o", 10.5), ("codex", "gpt_5_2", 60.0)
        )
        for seed in range(2)
    ]  # fmt: skip
    runs += [
        run(name="lost", agent="codex", driver="gpt_4o", seed=7, end="infra_error",
            is_infrastructure=True),
        run(name="dead", agent="aider", driver="gpt_4o"),
        run(name="side", agent="codex", driver="gpt_5_2", task="gsm8k", baseline=80.0,
            scores=[79.0]),
    ]  # fmt: skip
    return compare(load([write(folder, runs)]))


def test_stacks_by_tasks_beside_the_paper(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    scores = stack_table(made, "qwen3_8b_base", "free", "score")
    keys = [column.key for column in scores.columns]
    assert keys == ["stack", "gsm8k", "gsm8k_paper", "alfworld", "alfworld_paper"]
    rows = {row[0].value: dict(zip(keys, row, strict=True)) for row in scores.rows}
    assert scores.rows[0][0].value == "Base model"
    assert scores.num_head_rows == 1
    assert rows["Base model"]["alfworld_paper"].value == 8.96
    assert rows["Base model"]["alfworld"].value == 10.0
    assert rows["Base model"]["alfworld"].detail == "n=6"
    best = rows["claude_code/opus_4_6"]["alfworld"]
    assert (best.value, best.is_best, best.mark, best.detail) == (90.5, True, "", "n=2")
    noisy = rows["codex/gpt_4o"]["alfworld"]
    assert (noisy.value, noisy.is_best, noisy.mark) == (11.0, False, "~")
    assert noisy.detail == "n=2 of 3: 1 infrastructure"
    dead = rows["aider/gpt_4o"]["alfworld"]
    assert (dead.value, dead.detail) == (None, "n=0 of 1: 1 unscored")
    assert rows["aider/gpt_4o"]["gsm8k"].detail == "not run"
    gains = stack_table(made, "qwen3_8b_base", "free", "gain")
    told = {row[0].value: row[-1].value for row in gains.rows}
    assert told["claude_code/opus_4_6"] == pytest.approx(88.80)
    assert told["codex/gpt_4o"] == pytest.approx(0.74)
    assert gains.num_head_rows == 0


def test_every_table_renders_in_every_format(tmp_path: Path) -> None:
    tables = all_tables(comparison(tmp_path / "results"))
    names = [made.name for made in tables]
    assert len(set(names)) == len(names)
    assert {"cells", "costs", "failures", "seeds", "driver-pairs", "levels"} <= set(names)
    paths = write_tables(tables, tmp_path / "out")
    assert len(paths) == 3 * len(tables)
    for made in tables:
        rows = list(csv.reader(io.StringIO((tmp_path / f"out/{made.name}.csv").read_text())))
        assert len(rows) == 1 + len(made.rows)
        assert len({len(row) for row in rows}) == 1
        lines = (tmp_path / f"out/{made.name}.md").read_text().splitlines()
        pipes = [line for line in lines if line.startswith("|")]
        assert {len(unescaped_cells(line)) for line in pipes} == {len(made.columns)}
        assert "nan" not in made.to_markdown()
