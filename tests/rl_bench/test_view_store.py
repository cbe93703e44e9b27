"""A finished run's view is kept, and taken only while its ledger is as it was."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_bench.errors import LedgerError
from rl_bench.events import RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.run_view import RunView, fold_all
from rl_bench.view_store import ViewStore
from tests.rl_bench.agent_story import one_of_each

MakeStory = Callable[..., Any]


def keep(paths: SweepPaths, *names: str) -> None:
    store = ViewStore(paths)
    for name in names:
        store.view(name)
    store.save()


def best_of(paths: SweepPaths, run_id: str) -> float | None:
    [task] = ViewStore(paths).view(run_id).tasks.values()
    return task.best


def damage(path: Path, *, keep_modified: bool) -> None:
    """Another byte in the middle of the first line; the size stays."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[data.index(b"{") + 1] = 0x7F
    path.write_bytes(data)
    if keep_modified:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_kept_view_is_what_the_ledger_says(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r", tasks=("a", "b")).start().baseline(5.0, float("inf"), repeat_scores=(4.0, 6.0))
    run.submit(1, 20.0, 30.0).submit(2, None, 10.0, failure="no engine").reject().warn("w")
    run.add(*one_of_each()).finish()
    read = ViewStore(sweep_paths).view("r")

    keep(sweep_paths, "r")
    kept = ViewStore(sweep_paths).view("r")

    assert kept == read
    assert kept.mark == fold_all("r", run.entries).mark
    assert (kept.is_finished, kept.tasks["a"].best, kept.driver_use.num_calls) == (True, 20.0, 1)


def test_what_is_kept_is_not_read_again(story: MakeStory, sweep_paths: SweepPaths) -> None:
    story("r").start().baseline(5.0).submit(1, 20.0).finish()
    keep(sweep_paths, "r")
    modified = sweep_paths.views.stat().st_mtime_ns
    keep(sweep_paths, "r")
    assert sweep_paths.views.stat().st_mtime_ns == modified, "nothing was read: nothing is written"


def test_a_run_that_goes_on_is_not_kept(story: MakeStory, sweep_paths: SweepPaths) -> None:
    story("live").start().baseline(5.0)
    story("retried").start().finish(RunEnd.INFRA_ERROR, final=False)
    keep(sweep_paths, "live", "retried", "never")
    assert not sweep_paths.views.exists()
    assert ViewStore(sweep_paths).view("never") == RunView(run_id="never")


def test_a_ledger_that_grew_is_read(story: MakeStory, sweep_paths: SweepPaths) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    keep(sweep_paths, "r")
    run.start(attempt=1)
    assert ViewStore(sweep_paths).view("r").num_attempts == 2


@pytest.mark.parametrize("keep_modified", [False, True])
def test_a_damaged_ledger_is_noticed(
    story: MakeStory, sweep_paths: SweepPaths, *, keep_modified: bool
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    keep(sweep_paths, "r")
    damage(run.path, keep_modified=keep_modified)
    with pytest.raises(LedgerError, match="line 1 is damaged"):
        ViewStore(sweep_paths).view("r")


def test_a_ledger_put_back_from_a_copy_is_read(
    story: MakeStory, sweep_paths: SweepPaths, tmp_path: Path
) -> None:
    run = story("r").start().baseline(5.0).submit(1, 20.0).finish()
    other = story("other").start().baseline(5.0).submit(1, 30.0).finish()
    keep(sweep_paths, "r")
    shutil.copy2(other.path, tmp_path / "copy")
    (tmp_path / "copy").replace(run.path)
    assert ViewStore(sweep_paths).view("r").best == 30.0


@pytest.mark.parametrize("stored", [b"", b"[]", b'{"version": "0", "runs": {}}', b"\xff"])
def test_a_store_of_no_use_is_made_anew(
    story: MakeStory, sweep_paths: SweepPaths, stored: bytes
) -> None:
    story("r").start().baseline(5.0).submit(1, 20.0).finish()
    sweep_paths.views.write_bytes(stored)
    keep(sweep_paths, "r")
    assert ViewStore(sweep_paths).view("r").best == 20.0
    assert b'"r"' in sweep_paths.views.read_bytes()


def test_a_store_that_cannot_be_written_stops_nothing(
    story: MakeStory, sweep_paths: SweepPaths, caplog: pytest.LogCaptureFixture
) -> None:
    story("r").start().baseline(5.0).finish()
    sweep_paths.views.mkdir()
    with caplog.at_level(logging.WARNING):
        keep(sweep_paths, "r")
    assert "cannot keep views" in caplog.text
    assert [path.name for path in sweep_paths.root.glob("views*")] == ["views.json"]


def test_a_view_of_another_run_or_from_other_code_is_not_taken(
    story: MakeStory, sweep_paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    story("a").start().baseline(5.0).submit(1, 20.0).finish()
    story("b").start().baseline(5.0).submit(1, 21.0).finish()
    keep(sweep_paths, "a", "b")
    kept = json.loads(sweep_paths.views.read_text())
    kept["runs"]["a"][1] = kept["runs"]["b"][1]
    sweep_paths.views.write_text(json.dumps(kept))
    assert best_of(sweep_paths, "a") == 20.0

    kept["runs"]["b"][1]["seed"] = 99
    sweep_paths.views.write_text(json.dumps(kept))
    assert ViewStore(sweep_paths).view("b").seed == 99, "its code is this one"
    monkeypatch.setattr("rl_bench.view_store._version", lambda: "another")
    assert ViewStore(sweep_paths).view("b").seed == 0


def test_a_ledger_that_cannot_be_looked_at_is_told(sweep_paths: SweepPaths) -> None:
    sweep_paths.runs.mkdir(parents=True)
    (sweep_paths.runs / "file").write_text("")
    (sweep_paths.runs / "loop").mkdir()
    loop = sweep_paths.run("loop").ledger
    loop.symlink_to(loop)
    for name in ("file", "loop"):
        with pytest.raises(LedgerError, match=f"cannot read .*{name}"):
            ViewStore(sweep_paths).view(name)
