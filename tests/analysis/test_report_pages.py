"""Pages of some runs only: which, and that nothing leads to those that are not there."""

import html
import re
import shlex
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from analysis import report
from analysis.comparisons.compare import compare
from analysis.html.overview import page_name
from analysis.html.selection import runs_with_pages
from analysis.html.site import Settings, write_site
from analysis.results import Results, load
from analysis.wandb_sheets import Pages, runs_sheet
from tests.analysis.report_scene import Page
from tests.analysis.synthetic_scene import SyntheticSweep

QUICK = ("--no-plots", "--no-studies", "--processes", "1")


def _silent(_name: str, _done: int, _total: int) -> None:
    return


def _names(out: Path) -> set[str]:
    return {path.stem for path in (out / "runs").glob("*.html")}


def _results(**runs: dict[str, object]) -> Results:
    """Runs of one cell by their ids, with what is unusual of each; ``warned``: by the audit."""
    usual = {
        "agent": "a",
        "driver": "d",
        "task": "t",
        "counts": True,
        "best_score": 50.0,
        "is_infrastructure": False,
        "is_invalid": False,
        "is_final": True,
        "warned": "",
    }
    rows = pl.DataFrame([{"run_id": name, **usual, **told} for name, told in runs.items()])
    results = Results(())
    results.__dict__["runs"] = rows
    results.__dict__["findings"] = rows.select("run_id", severity="warned").filter(
        pl.col("severity") != ""
    )
    return results


def test_those_that_stand_out_have_pages_first() -> None:
    results = _results(
        usual={},
        also={"warned": "info"},
        warned={"warned": "warning"},
        running={"is_final": False},
        broken={"is_infrastructure": True, "counts": False, "best_score": 99.0},
        unscored={"best_score": None},
        invalid={"is_invalid": True, "counts": False, "best_score": 98.0},
        best={"best_score": 70.0},
        worst={"best_score": 10.0},
        other={"task": "u"},
    )
    order: list[set[str]] = [
        {"best", "worst", "other"},
        {"invalid"},
        {"running", "broken", "unscored"},
        {"warned"},
        {"usual", "also"},
    ]
    for place in range(1, len(order) + 1):
        wanted = set().union(*order[:place])
        assert runs_with_pages(results, len(wanted)) == wanted
    assert runs_with_pages(results, None) == set().union(*order)


def test_the_choice_grows_with_the_number_and_is_the_same_each_time(
    synthetic: SyntheticSweep,
) -> None:
    results = synthetic.results
    num = results.runs["run_id"].n_unique()
    chosen = [runs_with_pages(results, most) for most in range(1, num + 5)]
    assert [len(each) for each in chosen] == [*range(1, num + 1), *[num] * 4]
    assert all(few <= more for few, more in pairwise(chosen))
    again = load([synthetic.folder])
    assert [runs_with_pages(again, most) for most in range(1, num + 5)] == chosen


def test_nothing_leads_to_a_page_that_was_not_made(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(synthetic.folder), "--out", str(tmp_path), *QUICK]
    assert report.main(words) == 0
    assert "--pages" not in capsys.readouterr().out
    everybody = _names(tmp_path)
    assert report.main([*words, "--pages", "8"]) == 0
    assert "8 run pages (--pages all makes every run's)" in capsys.readouterr().out
    chosen = _names(tmp_path)
    assert chosen == runs_with_pages(synthetic.results, 8), "those of an earlier report are gone"
    page = Page(tmp_path / "index.html")
    links = [link for link in page.links() if link.startswith("runs/")]
    assert {Path(link).stem for link in links} == chosen
    titles = {attributes.get("title") for tag, attributes in page.tags if tag == "span"}
    assert everybody - chosen <= titles, "their ids can still be searched for"
    notice = f"8 of {len(everybody)} runs have a page of their own"
    for part in ("headline", "all-runs"):
        assert notice in page.source.split(f'id="{part}"')[1].split("</section>")[0]
    told = re.findall(r"<code>(python -m analysis\.report .*?)</code>", page.source)
    command = shlex.split(html.unescape(told[0]))[3:]
    assert report.main([*command, *QUICK]) == 0
    assert _names(tmp_path) == everybody
    assert "have a page of their own" not in Page(tmp_path / "index.html").source


def test_processes_write_what_this_one_writes(
    report_site: Path, synthetic: SyntheticSweep, tmp_path: Path
) -> None:
    words = [str(synthetic.folder), "--out", str(tmp_path), "--no-plots", "--processes", "1"]
    assert report.main(words) == 0
    for path in sorted(path for path in report_site.rglob("*") if path.is_file()):
        alone, by_two = (
            re.sub(rb"Made [^.]* of", b"", (root / path.relative_to(report_site)).read_bytes())
            for root in (tmp_path, report_site)
        )
        assert alone == by_two, path


def test_a_chosen_run_whose_page_is_missing_gets_it_though_nothing_of_it_is_new(
    synthetic: SyntheticSweep, tmp_path: Path
) -> None:
    settings = Settings(
        with_plots=False, with_studies=False, max_pages=3, run_ids=frozenset(), refresh_s=5.0
    )
    first = write_site(synthetic.results, tmp_path, settings=settings, say=_silent)
    again = write_site(synthetic.results, tmp_path, settings=settings, say=_silent)
    assert (first.num_pages, again.num_pages) == (3, 0)
    assert _names(tmp_path) == runs_with_pages(synthetic.results, 3)


def test_a_damaged_table_costs_no_other_runs_case_study(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "sweep"
    names = sorted(synthetic.truth["runs"])[:3]
    for table in sorted((synthetic.folder / "tables").iterdir()):
        for name in names if table.is_dir() else ():
            (sweep / "tables" / table.name).mkdir(parents=True, exist_ok=True)
            copy = sweep / "tables" / table.name / f"{name}.parquet"
            copy.write_bytes((table / f"{name}.parquet").read_bytes())
    broken = sweep / "tables" / "trace" / f"{names[0]}.parquet"
    broken.write_bytes(broken.read_bytes()[:-40])
    out = tmp_path / "out"
    assert report.main([str(sweep), "--out", str(out), "--no-plots"]) == 1
    assert f"run {names[0]}: " in capsys.readouterr().err
    summaries = [(out / "studies" / name / "summary.md").read_text("utf-8") for name in names]
    assert ["its tables cannot be read" in text for text in summaries] == [True, False, False]


def test_the_table_for_wandb_names_pages_that_are_there(
    synthetic: SyntheticSweep, tmp_path: Path
) -> None:
    comparison = compare(synthetic.results)
    name = synthetic.results.runs["run_id"][0]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / page_name(name)).write_text("")
    for folder, wanted in ((tmp_path, {f"runs/{page_name(name)}", None}), (None, {None})):
        sheet = runs_sheet(comparison, Pages(ids={}, links={}), folder)
        place = sheet.columns.index("report_page")
        assert {row[place] for row in sheet.rows} == wanted


@pytest.mark.parametrize("value", ["0", "-1", "some", "1.5"])
def test_a_wrong_number_of_pages_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        report.main(["x", "--pages", value])
    assert ended.value.code == 2
    assert "must be all, or a number" in capsys.readouterr().err
