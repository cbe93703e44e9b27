"""A pipe or a link where a sweep has a file of its own: nobody waits, and nothing is followed.

An agent without a sandbox can put them there.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.errors import ResultsError
from analysis.ledgers import planned_ids
from analysis.results import load
from rl_bench.audit.weight_samples import Weights
from rl_bench.checkpoint import read_json
from rl_bench.config import WandbConfig
from rl_bench.errors import LedgerError
from rl_bench.events import Note
from rl_bench.ledger import RESERVE_BYTES, Ledger
from rl_bench.lineage.references import SnapshotReferences
from rl_bench.paths import SweepPaths
from rl_bench.preflight import _has_finished
from rl_bench.process.agent_process import AgentProcess
from rl_bench.recorder import _num_lines
from rl_bench.run_view import RunView
from rl_bench.safetensors_header import read_tensor_specs
from rl_bench.sinks.parquet import ParquetSink
from rl_bench.sinks.wandb import WandbSink
from rl_bench.sweep_lock import is_driven
from rl_bench.tensor_bytes import same_weights
from rl_bench.view_store import ViewStore
from tests.rl_bench.grading_scene import write_checkpoint

pytestmark = pytest.mark.timeout(60)
VIEWS = (RunView(run_id="r"),)


def wandb_sink(paths: SweepPaths) -> WandbSink:
    config = WandbConfig(mode="offline", project="p")
    return WandbSink(paths.wandb, config=config, sweep=paths.root.name)


@pytest.mark.parametrize(
    ("name", "read", "answer"),
    [
        ("tables/marks.json", lambda s: ParquetSink(s.tables).is_behind(VIEWS), True),
        ("tables/runs/r.parquet", lambda s: ParquetSink(s.tables).has("r", "7"), False),
        ("tables/.probe", lambda s: ParquetSink(s.tables).open(), None),
        ("wandb/mirrored.json", lambda s: wandb_sink(s).is_behind(VIEWS), True),
        ("views.json", lambda s: ViewStore(s).view("r"), VIEWS[0]),
        ("sweep.json", planned_ids, ()),
        ("driver.lock", is_driven, None),
        ("runs/r/ledger.jsonl", lambda s: _num_lines(s.run("r").ledger), None),
        ("runs/r/ledger.jsonl", lambda s: _has_finished(s.run("r").ledger), False),
    ],
)
def test_a_pipe_in_a_files_place_is_read_like_one_that_is_not_there(
    sweep_paths: SweepPaths, name: str, read: Callable[[SweepPaths], object], answer: object
) -> None:
    path = sweep_paths.root / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert read(sweep_paths) == answer


@pytest.mark.parametrize("what", ["a pipe", "a link"])
def test_a_ledgers_reserve_is_a_file_of_its_own(tmp_path: Path, what: str) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    reserve = tmp_path / "ledger.reserve"
    os.mkfifo(reserve) if what == "a pipe" else reserve.symlink_to(other)
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        ledger.append(Note(level="info", topic="t", message="m"))
        assert not reserve.is_symlink()
        assert reserve.stat().st_size == RESERVE_BYTES
    assert other.read_text() == "mine"


def test_a_ledger_is_not_written_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "ledger.jsonl").symlink_to(other)
    with pytest.raises(LedgerError, match="cannot open ledger"):
        Ledger(tmp_path / "ledger.jsonl")
    assert other.read_text() == "mine"


def test_a_lock_is_not_made_through_a_link(tmp_path: Path) -> None:
    references = SnapshotReferences(tmp_path / "snapshots", run_id="r")
    references.release("0" * 64)
    [lock] = [path for path in tmp_path.rglob("*lock*") if path.is_file()]
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        references.release("0" * 64)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("what", ["a pipe", "a link"])
def test_an_agents_output_goes_to_a_file_of_its_own(tmp_path: Path, what: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 10_000)
    out = tmp_path / "out"
    os.mkfifo(out) if what == "a pipe" else out.symlink_to(other)
    agent = AgentProcess.start(
        [sys.executable, "-c", "print('said')"],
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        stdout=out,
        stderr=tmp_path / "err",
        grace_s=0.3,
        max_output_bytes=10**6,
    )
    assert agent.wait(remaining_s=lambda: 30.0, grace_s=0.3).exit_code == 0
    assert not out.is_symlink()
    assert out.read_text() == "said\n"
    assert other.stat().st_size == 10_000


def test_output_over_its_limit_is_not_cut_where_a_link_leads(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 10_000)
    out = tmp_path / "out"
    swap = f"import os; os.unlink({str(out)!r}); os.symlink({str(other)!r}, {str(out)!r})"
    agent = AgentProcess.start(
        [sys.executable, "-c", swap],
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        stdout=out,
        stderr=tmp_path / "err",
        grace_s=0.3,
        max_output_bytes=1000,
    )
    assert agent.wait(remaining_s=lambda: 30.0, grace_s=0.3).exit_code == 0
    assert out.is_symlink()
    assert other.stat().st_size == 10_000


def test_a_pipe_among_the_tables_is_no_table(sweep_paths: SweepPaths) -> None:
    (sweep_paths.tables / "runs").mkdir(parents=True)
    os.mkfifo(sweep_paths.tables / "runs" / "r.parquet")
    with pytest.raises(ResultsError, match=r"runs/r\.parquet is no file"):
        load([sweep_paths.root]).runs  # noqa: B018  the property reads


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("model.safetensors", lambda m: read_tensor_specs(m / "model.safetensors")),
        ("model.safetensors", Weights.of),
        ("model.safetensors", lambda m: same_weights(m, m, names=["w"])),
        ("config.json", lambda m: read_json(m / "config.json")),
    ],
)
def test_a_pipe_in_a_snapshot_holds_no_grader_up(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    model = write_checkpoint(tmp_path / "model")
    (model / name).unlink()
    os.mkfifo(model / name)
    with pytest.raises(OSError, match="not a regular file"):
        read(model)
