"""The wall clock is moved by an hour while a run is under way: nothing depends on it."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rl_bench.config import (
    AgentConfig,
    BudgetConfig,
    SinkConfig,
    WandbConfig,
)
from rl_bench.events import (
    AgentExited,
    Entry,
    RunEnd,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.recorder import Recorder
from rl_bench.run_view import fold_all
from tests.rl_bench.grading_scene import WordTask, make_spec
from tests.rl_bench.run_scene import make_run

HOUR = timedelta(hours=1)
BUDGET_S = 3.0
READS_THE_WALL_CLOCK = ("rl_bench.ledger", "rl_bench.workspace", "rl_bench.lineage.code_history")

# Submits the base model, then stays until it is ended.
AGENT = """
import json, os, time, urllib.request
url = os.environ["GRADING_SERVER_URL"] + "/submit"
body = json.dumps({"model_path": os.environ["MODEL_PATH"]}).encode()
urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}))
time.sleep(60)
"""


class WallClock(datetime):
    """A wall clock that can be set; only `now` is read from it."""

    offset = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "WallClock":
        moment = datetime.now(UTC) + cls.offset
        return cls.fromtimestamp(moment.timestamp(), tz)


@pytest.fixture
def run_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Entry], None]], tuple[RunEnd, SweepPaths]]:
    """Runs one attempt; each ledger entry is told as it is written."""
    for module in READS_THE_WALL_CLOCK:
        monkeypatch.setattr(f"{module}.datetime", WallClock)
    monkeypatch.setattr("rl_bench.run.make_task", lambda config, cache: WordTask(config.name))
    spec = make_spec(
        agent=AgentConfig(name="test", argv=(sys.executable, "-c", AGENT)),
        budget=BudgetConfig(name="t", wall_clock_s=BUDGET_S, kill_grace_s=0.5),
    )

    def run(on_entry: Callable[[Entry], None]) -> tuple[RunEnd, SweepPaths]:
        paths = SweepPaths(tmp_path / "s")
        attempt = make_run(spec, tmp_path, on_entry=on_entry)
        return attempt.execute(attempt=0, is_last=True), paths

    return run


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forth", "back"])
def test_a_run_keeps_its_budget_and_its_durations(
    jump: timedelta,
    run_with: Callable[[Callable[[Entry], None]], tuple[RunEnd, SweepPaths]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def set_clock(entry: Entry) -> None:
        if isinstance(entry.event, SubmissionAccepted):
            monkeypatch.setattr(WallClock, "offset", jump)

    started = time.monotonic()
    end, paths = run_with(set_clock)
    took_s = time.monotonic() - started

    assert end is RunEnd.TIMED_OUT
    entries = read_ledger(paths.run("r").ledger)
    wall = [datetime.fromisoformat(entry.time_utc) for entry in entries]
    jumps = [after - before for before, after in pairwise(wall)]
    assert any(abs(step) > HOUR / 2 for step in jumps), "the clock was moved in between"
    elapsed = [entry.elapsed_s for entry in entries]
    assert elapsed == sorted(elapsed)
    [exited] = [e.event for e in entries if isinstance(e.event, AgentExited)]
    assert BUDGET_S <= exited.budget_used_s < took_s
    assert [e.event for e in entries if isinstance(e.event, SubmissionGraded)]

    view = fold_all("r", entries)
    assert 0 <= view.budget_used_s < took_s
    assert 0 < view.duration_s <= took_s
    sink = SinkConfig(name="t", flush_interval_s=60, wandb=WandbConfig(mode="disabled"))
    Recorder(paths, config=sink).close()
    [row] = pq.read_table(paths.tables / "submissions").to_pylist()
    assert 0 <= row["latency_s"] <= took_s
    [row] = pq.read_table(paths.tables / "runs").to_pylist()
    assert 0 < row["duration_s"] <= took_s
