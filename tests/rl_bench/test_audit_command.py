"""`python -m rl_bench.audit`: recorded runs judged anew, from their ledgers, changing nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_bench.audit.__main__ import main, show
from rl_bench.audit.recorded import AuditRecord
from rl_bench.audit.rules import RULES_VERSION
from rl_bench.config import DataSource, ModelConfig, TaskConfig
from rl_bench.events import (
    ENTRY,
    Event,
    ModeAudited,
    ModeVerdict,
    ProcessSeen,
    RunEnd,
    RunFinished,
)
from rl_bench.ledger import Ledger
from rl_bench.lineage.code_history import CodeHistory
from rl_bench.plan_view import make_console
from tests.rl_bench.audit_scene import AuditScene, case
from tests.rl_bench.grading_scene import write_checkpoint

WORDS = TaskConfig(
    name="words",
    kind="gsm8k",
    level="L1",
    source=DataSource.BUILTIN,
    max_tokens=9,
    num_eval=5,
    num_train=5,
)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep of two runs: ``clean-1`` imitates, ``rl-2`` breaks its mode."""
    monkeypatch.setenv("RL_BENCH_CACHE", str(tmp_path / "cache"))
    before = ModeAudited(verdict=ModeVerdict.SUSPECT, rules_version="audit-0", summary="?")
    for run_id, script in (("clean-1", "trl_sft"), ("rl-2", "trl_grpo")):
        scene = AuditScene(tmp_path / run_id, tasks=[WORDS])
        model = ModelConfig(
            name="base", kind="local_or_hub", path=write_checkpoint(tmp_path / "base")
        )
        spec = scene.spec.model_copy(update={"model": model})
        scene.write("train.py", case(script))
        scene.process("python", "code/train.py")
        scene.submit()
        events: list[Event] = [entry.event for entry in scene.entries]
        events[0] = events[0].model_copy(update={"spec": spec})
        target = tmp_path / "results" / "s" / "runs" / run_id
        target.parent.mkdir(parents=True, exist_ok=True)
        scene.paths.root.rename(target)
        with Ledger(target / "ledger.jsonl") as ledger:
            for event in [*events, before, RunFinished(end=RunEnd.COMPLETED)]:
                ledger.append(event)
    return tmp_path / "results" / "s"


def lines(sweep: Path) -> list[dict[str, object]]:
    text = (sweep / "audits" / f"{RULES_VERSION}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def state(sweep: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sweep.rglob("*")
        if path.is_file() and "audits" not in path.parts
    }


def test_a_sweep_is_judged_anew(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    untouched = state(sweep)
    assert main([str(sweep)]) == 1
    told = capsys.readouterr()
    shown = told.out
    head, *each = told.err.splitlines()
    assert head == f"judging 2 runs by rules {RULES_VERSION}"
    for line, begin in zip(each, ("1/2 clean-1: clean, ", "2/2 rl-2: breach, "), strict=True):
        assert line.startswith(begin)
        assert re.fullmatch(r"\d+ findings?, \d+\.\d s", line.removeprefix(begin))
    for word in ("clean-1", "rl-2", "suspect", "breach", "grpo", "GRPOTrainer"):
        assert word in shown
    first, second = lines(sweep)
    assert (first["run_id"], second["run_id"]) == ("clean-1", "rl-2")
    assert "breach" in json.dumps(second["mode"])
    assert "audit-0" in json.dumps(second["mode_before"])
    assert state(sweep) == untouched


def test_the_table_has_no_empty_columns_lines_or_blanks_at_the_ends_of_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = AuditRecord(
        run_id="clean-1", time_utc="2026-01-01", rules_version=RULES_VERSION, mode_name="free"
    )
    show([record], console=make_console())
    _, head, row, *_ = capsys.readouterr().out.splitlines()
    assert head == "run      mode  findings"
    assert row == "clean-1  free  none"
    verdict = ModeAudited(verdict=ModeVerdict.CLEAN, rules_version="audit-0", summary="?")
    show([record.model_copy(update={"mode_before": verdict})], console=make_console())
    assert "run      mode  before  findings\n" in capsys.readouterr().out


def test_one_run(sweep: Path) -> None:
    assert main([str(sweep), "--run", "clean"]) == 0
    assert [line["run_id"] for line in lines(sweep)] == ["clean-1"]
    assert main([str(sweep), "--run", "2"]) == 1  # what tables show of an id
    assert [line["run_id"] for line in lines(sweep)] == ["clean-1", "rl-2"]
    assert main([str(sweep), "--run", "clean-1"]) == 0
    assert [line["run_id"] for line in lines(sweep)] == ["clean-1", "rl-2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "0 folders are named"),
        (["/nowhere"], "/nowhere is no folder"),
        (["/usr"], "/usr holds no runs"),
        (["{sweep}", "--run", "x"], "fits no run"),
        (["{sweep}", "--run", ""], "fits 2 runs"),
        (["{sweep}", "task=gsm8k"], "changes no audit"),
        (["{sweep}", "--fast"], "unknown flag"),
        (["{sweep}", "--hep"], "did you mean --help?"),
        (["{sweep}", "audit=none"], "none"),
        (["{sweep}", "audit.references.instruct=/nowhere"], "is no folder"),
        (["{sweep}", "audit=judged", "audit.judge.key_variable=NO_SUCH_KEY"], "NO_SUCH_KEY"),
    ],
)
def test_bad_input(
    sweep: Path, words: Sequence[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(sweep=sweep) for word in words]) == 2
    assert told in capsys.readouterr().err
    assert not (sweep / "audits").exists()


def test_a_damaged_ledger_is_told(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep / "runs" / "clean-1" / "ledger.jsonl").write_text('{"seq": 0}\n{"seq": 1}\n')
    assert main([str(sweep)]) == 1
    assert "damaged" in capsys.readouterr().out
    assert lines(sweep)[0]["not_audited"]


def test_where_too_little_is_left_of_every_run_no_breach_is_no_success(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("clean-1", "rl-2"):
        ledger = sweep / "runs" / run / "ledger.jsonl"
        kept = ledger.read_text()
        shutil.rmtree(ledger.parent)
        with Ledger(ledger) as again:
            for line in kept.splitlines():
                event = ENTRY.validate_json(line).event
                if not isinstance(event, ProcessSeen):
                    again.append(event)
    assert main([str(sweep)]) == 1
    told = capsys.readouterr()
    assert "warning: of no run enough is there to be judged" in told.err
    assert "breach" not in told.out


def test_a_runs_name_gives_no_orders_to_a_terminal(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep / "runs" / "rl-2").rename(sweep / "runs" / "rl\x1b[2J\n2")
    main([str(sweep)])
    told = capsys.readouterr()
    assert "rl�[2J" in told.out
    assert (told.out + told.err).replace("\n", "").isprintable()


def test_as_a_command(sweep: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rl_bench.audit", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)

    told = run("--help")
    assert told.returncode == 0
    assert "RESULTS/SWEEP" in told.stdout
    assert run(str(sweep), "--run", "clean-1").returncode == 0


def test_a_history_that_goes_on_in_a_later_attempt(tmp_path: Path) -> None:
    scene = AuditScene(tmp_path)
    scene.write("train.py", case("trl_grpo"))
    later = CodeHistory(scene.workspace / "code", history=scene.paths.code_history, attempt=1)
    (scene.workspace / "code" / "train.py").write_text(case("trl_sft"))
    later.record("change", budget_used_s=1.0)
    scene.entries.clear()
    from rl_bench.events import RunStarted

    scene.add(RunStarted(run_id="r", sweep="s", attempt=1, spec=scene.spec))
    scene.process("python", "code/train.py", at_s=50.0)
    assert scene.audit().mode.verdict is ModeVerdict.CLEAN
