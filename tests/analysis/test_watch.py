"""The live view: ledgers of a running sweep, read on from where they were, and never written."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock

from analysis import report, watch
from analysis.ledgers import SweepLedgers, sweeps_in
from rl_bench.events import RunEnd, StateChanged
from rl_bench.events import RunState as State
from rl_bench.paths import SweepPaths
from tests.analysis.ledger_scene import LedgerScene
from tests.analysis.report_scene import write_ledger
from tests.analysis.synthetic_scene import SyntheticSweep

WAITING = "codex-gpt_4o-free-gsm8k-tiny-s3-1a2b3c"


def plan_of(sweep: SweepPaths, *names: str) -> None:
    """What a sweep records of its plan."""
    sweep.root.mkdir(parents=True, exist_ok=True)
    record = {"run_ids": names, "conditions": {"budget": {"wall_clock_s": 7200.0}}}
    sweep.config.write_text(json.dumps(record), encoding="utf-8")


def test_ledgers_are_read_on_and_the_plan_knows_runs_that_wait(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    plan_of(scene.sweep, WAITING, "r")
    scene.submit(1, 20, 60.0)
    write_ledger(scene)
    sweep = SweepLedgers(scene.sweep)
    sweep.update()
    assert sweep.views["r"].best == 60.0
    waiting, active = sweep.plan()
    assert (waiting.agent, waiting.driver, waiting.mode, waiting.seed) == (
        "codex",
        "gpt_4o",
        "free",
        3,
    )
    assert waiting.budget_s == 7200.0
    assert (active.run_id, active.tasks) == ("r", ("words",))
    told = len(scene.entries)
    scene.submit(2, 40, 70.0)
    write_ledger(scene, first=told)
    with scene.paths.ledger.open("a", encoding="utf-8") as file:
        file.write('{"seq": 99, "half a li')
    sweep.update()
    assert sweep.views["r"].best == 70.0
    assert sweep.problems == {}


def test_a_run_that_was_removed_to_run_again_is_read_afresh(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 20, 60.0)
    write_ledger(scene)
    sweep = SweepLedgers(scene.sweep)
    sweep.update()
    scene.paths.ledger.unlink()
    fresh = LedgerScene(tmp_path)
    write_ledger(fresh)
    sweep.update()
    assert sweep.views["r"].num_submissions == 0


def test_a_damaged_ledger_is_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = LedgerScene(tmp_path)
    write_ledger(scene)
    other = scene.sweep.run("s")
    other.root.mkdir()
    other.ledger.write_text("{}\n{}\n", encoding="utf-8")
    assert watch.main([str(scene.sweep.root), "--once"]) == 1
    out = capsys.readouterr().out
    assert "run s: ledger" in out
    assert "line 1 is damaged" in out
    assert "0/1 run finished" in out


@pytest.mark.parametrize(
    "record",
    [
        '{"conditions": {"budget": {"wall_clock_s": NaN}}}',
        '{"conditions": {"budget": {"wall_clock_s": 1e999}}}',
        '{"conditions": {"budget": {"wall_clock_s": -1}}}',
        '{"conditions": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "[" * 100_000,
        '{"run_ids": "r"}',
        f'{{"run_ids": ["a-a-a-a-a-s{"9" * 5000}-a"]}}',
        "[]",
        '{"run',
        "\udcff",
    ],
)
@pytest.mark.parametrize("command", [watch, report])
def test_a_damaged_record_of_a_sweep_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: str, command: ModuleType
) -> None:
    scene = LedgerScene(tmp_path)
    write_ledger(scene)
    scene.sweep.config.write_text(record, encoding="utf-8", errors="surrogateescape")
    arguments = ["--once"] if command is watch else ["--live", "--no-plots", "--no-studies"]
    assert command.main([str(scene.sweep.root), *arguments]) == 2
    assert f"{scene.sweep.config} cannot be read as a sweep's record" in capsys.readouterr().err


def test_a_damaged_record_hides_no_other_sweep_in_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        plan_of(SweepPaths(tmp_path / name), WAITING)
    (tmp_path / "a" / "sweep.json").write_text("{")
    assert watch.main([str(tmp_path)]) == 2
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert sorted(lines) == [["a", "?"], ["b", "1"]]


def test_a_report_beside_sweeps_is_none(tmp_path: Path) -> None:
    (tmp_path / "report" / "runs").mkdir(parents=True)
    write_ledger(LedgerScene(tmp_path))
    assert [path.name for path in sweeps_in([tmp_path])] == ["s"]


def test_a_folder_without_a_sweep_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch.main([str(tmp_path)]) == 2
    assert f"{tmp_path} holds no sweep" in capsys.readouterr().err
    assert watch.main([str(tmp_path / "none")]) == 2
    assert "none is no folder: name one below results/" in capsys.readouterr().err


def test_of_several_sweeps_the_one_that_runs_is_shown_or_all_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, time_s in (("a", 1e9), ("b c", 2e9)):
        sweep = SweepPaths(tmp_path / "results" / name)
        plan_of(sweep, WAITING)
        os.utime(sweep.config, (time_s, time_s))
    a, b = (SweepPaths(tmp_path / "results" / name) for name in ("a", "b c"))

    def look() -> tuple[int, list[str], str]:
        code = watch.main(["results", "--once"])
        told = capsys.readouterr()
        return code, told.out.splitlines(), told.err

    code, lines, err = look()
    assert code == 2
    assert "results holds 2 sweeps, and none of them runs: name one of them" in err
    assert [line.split()[0] for line in lines] == ["sweep", "b", "a"], "the latest first"
    assert "now" not in lines[0].split()
    assert "2033-05-18 03:33:20" in lines[1]
    assert lines[1].endswith("-m analysis.watch 'results/b c'")
    with FileLock(a.lock):
        code, lines, err = look()
        assert (code, err) == (1, "")
        assert lines[0] == "a: the one that runs of 2 sweeps in results"
        assert any("0/1 run finished · 0 active · 1 waiting" in line for line in lines)
        with FileLock(b.lock):
            code, lines, err = look()
            assert code == 2
            assert "and 2 of them run: name" in err
            assert [line.split().count("runs") for line in lines] == [1, 1, 1]


def test_a_finished_sweep_is_shown_whole_and_nothing_is_written(
    synthetic: SyntheticSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in synthetic.folder.rglob("*")}
    code = watch.main([str(synthetic.folder), "--once"])
    assert code == 1, "runs that infrastructure ended must be run again"
    out = capsys.readouterr().out
    for name in synthetic.truth["runs"]:
        assert name.rsplit("-", 1)[-1] in out
    assert {path: path.stat().st_mtime_ns for path in synthetic.folder.rglob("*")} == before


def test_a_sweep_that_nobody_runs_is_said_to_be_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = LedgerScene(tmp_path)
    plan_of(scene.sweep, "r")
    scene.add(StateChanged(state=State.RUNNING), elapsed_s=101)
    write_ledger(scene)
    told = len(scene.entries)

    def look() -> str:
        watch.main([str(scene.sweep.root), "--once"])
        return capsys.readouterr().out

    with FileLock(scene.sweep.lock):
        running = look()
    assert "interrupted" not in running
    assert " running " in running
    assert "0/1 run finished · 1 active · 0 waiting" in running
    assert "no entry in any ledger: for" in running
    assert "if the sweep is not running" not in running
    stopped = look()
    assert "interrupted: no process runs this sweep" in stopped
    assert "the same command goes on" in stopped
    assert " running " not in stopped
    assert " interrupted " in stopped.splitlines()[2]
    # The agent began a second before the last entry, and then nobody counted on.
    left = stopped.splitlines()[2].split()[-2:]
    assert left == ["2:46:39", "1:41"]
    assert "0/1 run finished · 1 interrupted · 0 waiting" in stopped
    assert "budget left 2:46:39" in stopped
    scene.end(60, end=RunEnd.COMPLETED)
    write_ledger(scene, first=told)
    assert "interrupted" not in look()


def test_a_sweep_is_followed_to_its_end_in_plain_lines(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    plan_of(scene.sweep, "r")
    scene.add(StateChanged(state=State.RUNNING), elapsed_s=101)
    write_ledger(scene)
    command = [sys.executable, "-m", "analysis.watch", str(scene.sweep.root), "--interval", "0.1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lock = FileLock(scene.sweep.lock)
    lock.acquire()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("0/1 run finished · 1 active" in line for line in lines)
        lock.release()
        assert any("0/1 run finished · 1 interrupted" in line for line in lines)
        assert "interrupted: no process runs this sweep" in next(lines)
        told = len(scene.entries)
        scene.submit(1, 20, 61.5)
        scene.end(60, end=RunEnd.COMPLETED)
        write_ledger(scene, first=told)
        rest = "".join(lines)
        began = time.monotonic()
        assert process.wait(30) == 0
        assert time.monotonic() - began < 30
    assert "words: submission 1 scored 61.5 (best 61.5, gain +11.5)" in rest
    assert "1/1 run finished" in rest
    assert "best less base, in points" in rest


def test_names_that_others_chose_give_no_orders_to_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[2J\x1b]0;mine\x07\u202e"
    names = [f"a{evil}\nok-b-c-d-e-s1-x{number}" for number in range(2)]
    folders = [tmp_path / f"s{evil}{number}" for number in range(2)]
    for folder in folders:
        plan_of(SweepPaths(folder), *names)
    for place in (tmp_path, folders[0], tmp_path / evil):
        watch.main([str(place), "--once"])
    told = capsys.readouterr()
    assert "s�[2J" in told.out
    assert "a�[2J" in told.out
    assert "error: " in told.err
    words = (told.out + told.err).replace("\n", "")
    assert words.isprintable()


@pytest.mark.parametrize("value", ["NaN", "1e999"])
def test_a_time_that_is_none_damages_its_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    scene = LedgerScene(tmp_path)
    write_ledger(scene)
    text = re.sub(r'"elapsed_s":[^,]+', f'"elapsed_s":{value}', scene.paths.ledger.read_text())
    scene.paths.ledger.write_text(text)
    watch.main([str(scene.sweep.root), "--once"])
    assert "line 1 is damaged: elapsed_s" in capsys.readouterr().out
