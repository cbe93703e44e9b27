"""A recorder that was lost after the last run ended: the same command completes the tables."""

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from actors.sweep_driver import complete_records
from rl_bench.compose import compose
from rl_bench.config import Experiment
from rl_bench.events import Note
from rl_bench.ledger import Ledger
from rl_bench.paths import SweepPaths
from rl_bench.progress import Progress
from rl_bench.recorder import Recorder
from rl_bench.records import RunSnapshot
from rl_bench.run_row import RunRow
from rl_bench.sinks.wandb import WandbSink
from rl_bench.view_store import ViewStore
from tests.rl_bench.conftest import Story, make_spec

Complete = Callable[..., str]


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    words = ["agent=noop", "sweep.name=s", f"paths.results={tmp_path}"]
    return compose([*words, "sink=no_wandb"]).experiment


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "s")


@pytest.fixture
def complete(experiment: Experiment, paths: SweepPaths) -> Complete:
    """Completes the records of the runs ``names``; what it said."""

    def run(*names: str, **changes: Any) -> str:
        said = io.StringIO()
        console = Console(file=said, width=200)
        store = ViewStore(paths)
        views = {name: store.view(name) for name in names}
        with Progress([], known=views, console=console) as progress:
            which = changes.pop("experiment", experiment)
            arguments = {"only_tables": True, "progress": progress, **changes}
            complete_records(which, paths, views, **arguments)
        return said.getvalue()

    return run


def ended(paths: SweepPaths, run_id: str) -> None:
    story = Story(paths, run_id, spec=make_spec())
    story.start().baseline(5.0).submit(1, 20.0).finish()
    story.ledger.close()


def test_tables_are_completed_once(
    paths: SweepPaths, experiment: Experiment, complete: Complete
) -> None:
    ended(paths, "a")
    Recorder(paths, config=experiment.sink).close()
    ended(paths, "b")  # its recorder was killed

    assert "parquet: recording" in complete("a", "b")

    assert pq.read_table(paths.tables / "runs")["run_id"].to_pylist() == ["a", "b"]
    compared = (paths.tables / "comparison.csv").read_text().splitlines()
    assert len(compared) == 3
    assert complete("a", "b") == ""


def test_a_comparison_from_before_the_last_run_is_made_again(
    paths: SweepPaths, experiment: Experiment, complete: Complete
) -> None:
    ended(paths, "a")
    Recorder(paths, config=experiment.sink).close()
    (paths.tables / "comparison.csv").unlink()  # killed between the two

    assert "parquet: recording" in complete("a")

    assert len((paths.tables / "comparison.csv").read_text().splitlines()) == 2


def test_wandb_that_cannot_open_is_told_and_the_tables_are_completed(
    paths: SweepPaths,
    experiment: Experiment,
    complete: Complete,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended(paths, "a")
    monkeypatch.setattr("rl_bench.sinks.wandb.WandbSink._check_login", _refuse)
    wandb = experiment.sink.wandb.model_copy(update={"mode": "online"})
    online = experiment.model_copy(
        update={"sink": experiment.sink.model_copy(update={"wandb": wandb})}
    )

    assert "parquet and wandb: recording" in complete("a", experiment=online, only_tables=False)

    assert pq.read_table(paths.tables / "runs").num_rows == 1
    assert "nobody answers" in caplog.text


class LineSink:
    """A line a run in a file, written at the end; what it fails at, it fails at to the end."""

    name = "lines"
    fails_at = ""

    def __init__(self, folder: Path, *, sweep: str, settings: object) -> None:
        self._file = folder / "lines"
        self._lines: dict[str, str] = {}

    def open(self) -> None:
        self._fail("open")

    def write_run(self, snapshot: RunSnapshot) -> None:
        if snapshot.run_id == "b":
            self._fail("write")
        self._lines[snapshot.run_id] = f"{snapshot.run_id} {snapshot.view.best}\n"

    def close(self, rows: Sequence[RunRow]) -> None:
        self._fail("close")
        self._file.write_text("".join(self._lines[name] for name in sorted(self._lines)))

    def _fail(self, what: str) -> None:
        if what == self.fails_at:
            raise OSError("the place for lines is gone")


@pytest.fixture
def with_lines(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setattr("rl_bench.sinks.outside.load_sink", lambda name: LineSink)
    sink = experiment.sink.model_copy(update={"plugins": {"lines": {}}})
    return experiment.model_copy(update={"sink": sink})


@pytest.mark.parametrize("fails_at", ["open", "write", "close", "never told"])
def test_a_plug_ins_sink_that_failed_to_the_end_is_made_up_for(
    paths: SweepPaths,
    with_lines: Experiment,
    complete: Complete,
    monkeypatch: pytest.MonkeyPatch,
    fails_at: str,
) -> None:
    lines = paths.sink("lines") / "lines"
    for name in ("a", "b"):
        ended(paths, name)
    with monkeypatch.context() as patch:
        patch.setattr(LineSink, "fails_at", fails_at)
        config = with_lines.sink
        if fails_at == "never told":
            config = config.model_copy(update={"plugins": {}})
        Recorder(paths, config=config, must_open=lambda: False).close()
    assert not lines.exists() or lines.read_text() == "a 20.0\n"

    assert complete("a", "b", experiment=with_lines) == "", "it has had its chance just now"
    said = complete("a", "b", experiment=with_lines, only_tables=False)

    assert "lines: recording" in said
    assert lines.read_text() == "a 20.0\nb 20.0\n"
    assert complete("a", "b", experiment=with_lines, only_tables=False) == ""
    ended_again(paths, "b")
    assert "lines" in complete("a", "b", experiment=with_lines, only_tables=False)
    shutil.rmtree(lines.parent)
    complete("a", "b", experiment=with_lines, only_tables=False)
    assert lines.exists(), "its folder was gone"


def ended_again(paths: SweepPaths, run_id: str) -> None:
    with Ledger(paths.run(run_id).ledger) as ledger:
        ledger.append(Note(level="info", topic="t", message="m"))


def _refuse(_: WandbSink) -> None:
    raise OSError("nobody answers")
