"""Pages of runs that were named: these alone, as the whole report has them."""

import shutil
from pathlib import Path

import pytest

from analysis import case_study, report
from analysis.html.overview import by_run
from tests.analysis.ledger_scene import LedgerScene
from tests.analysis.report_scene import Page
from tests.analysis.synthetic_scene import SyntheticSweep

QUICK = ("--no-plots", "--processes", "1")


def _bytes(root: Path) -> dict[Path, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root): path.read_bytes() for path in files}


def test_a_named_run_has_its_page_and_all_else_stays(
    report_site: Path, synthetic: SyntheticSweep, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(report_site, out)
    names = sorted(by_run(synthetic.results))[3:5]
    for name in names:
        (out / "runs" / f"{name}.html").unlink()
        shutil.rmtree(out / "studies" / name)
    other = next((out / "runs").glob("*.html"))
    other.write_text("as it was")
    wanted = _bytes(report_site) | {other.relative_to(out): b"as it was"}
    words = [word for name in names for word in ("--run", name)]
    assert report.main([str(synthetic.folder), "--out", str(out), *words, *QUICK]) == 0
    assert _bytes(out) == wanted


def test_a_page_without_an_overview_leads_to_none(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (name, *_) = sorted(by_run(synthetic.results))
    words = [str(synthetic.folder), "--out", str(tmp_path), "--run", name, "--no-studies"]
    assert report.main(words) == 0
    path = tmp_path / "runs" / f"{name}.html"
    assert str(path) in capsys.readouterr().out
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*")] == [f"runs/{name}.html"]
    assert not [link for link in Page(path).links() if "index.html" in link]


def test_other_runs_are_not_read(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 20, 60.0)
    scene.end(30)
    scene.results()
    (scene.sweep.tables / "runs" / "other.parquet").write_bytes(b"no table")
    words = [str(scene.sweep.root), "--out", str(tmp_path / "out"), *QUICK]
    assert report.main(words) == 2
    assert report.main([*words, "--run", "r"]) == 0


def test_sweeps_that_hold_runs_of_one_id(tmp_path: Path) -> None:
    for sweep, score in (("first", 60.0), ("second", 70.0)):
        scene = LedgerScene(tmp_path / "results", sweep=sweep)
        scene.submit(1, 20, score)
        scene.end(30)
        scene.results()
    out = tmp_path / "out"
    words = [str(tmp_path / "results"), "--out", str(out), *QUICK, "--run"]
    assert report.main([*words, "r"]) == 2
    assert report.main([*words, "second-r"]) == 0
    (page,) = (out / "runs").iterdir()
    assert page.name == "second-r.html"
    assert "70.0" in page.read_text("utf-8")


@pytest.mark.parametrize("command", ["report", "case_study"])
def test_a_run_that_is_not_there_is_told_with_the_one_that_was_meant(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name = sorted(by_run(synthetic.results))[2]
    for run_id, cure in (
        (name[:-1] + "~", f"Did you mean {name}?"),
        (name[-8:], f"Did you mean {name}?"),
        ("@", "Ids are the names of the folders in runs/"),
    ):
        folders = [str(synthetic.folder), str(tmp_path / "out")]
        if command == "report":
            assert report.main([folders[0], "--out", folders[1], "--run", run_id]) == 2
        else:
            assert case_study.main([*folders, "--run", run_id]) == 2
        assert f"there is no run {run_id}. {cure}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_named_while_it_is_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        report.main([str(tmp_path), "--run", "r", "--live"])
    assert "not allowed with" in capsys.readouterr().err
