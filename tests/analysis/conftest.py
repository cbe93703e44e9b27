"""One synthetic sweep for all tests of the analysis that need whole runs."""

from pathlib import Path

import pytest

from analysis import report
from analysis.synthetic.sweep import Truth, write_sweep
from tests.analysis.synthetic_scene import SyntheticSweep


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> SyntheticSweep:
    """26 runs: two seeds of every cell, with one of every way to end. Read only."""
    folder: Path = tmp_path_factory.mktemp("synthetic") / "sweep"
    truth: Truth = write_sweep(folder, runs=26, seed=0, items=40)
    return SyntheticSweep(folder, truth)


@pytest.fixture(scope="session")
def report_site(synthetic: SyntheticSweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the synthetic sweep, by two processes, without plots. Read only."""
    out: Path = tmp_path_factory.mktemp("report")
    words = [str(synthetic.folder), "--out", str(out), "--no-plots", "--processes", "2"]
    assert report.main(words) == 0
    return out
