"""Whole runs whose agent works against them, and runs whose process is killed."""

import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from rl_bench.events import (
    AgentExited,
    AgentStarted,
    CodeChanged,
    RunEnd,
    RunFinished,
    RunStarted,
    SubmissionAccepted,
    SubmissionGraded,
)
from rl_bench.ledger import read_ledger
from rl_bench.lineage.git import run_git
from rl_bench.lines import StampedLines, printable
from rl_bench.sandbox.choose import find_bubblewrap
from tests.needs import needs
from tests.rl_bench.cage import wait_for
from tests.rl_bench.test_run_with_driver import SUBMIT, Laboratory


def with_bwrap() -> str:
    needs("bwrap", is_there=not isinstance(find_bubblewrap(), str))
    return "bwrap"


def test_a_resumed_session_sees_no_folder_that_the_first_chose(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "items").write_text("evaluation")
    session = f"""
steps:
  - run: mv .tmp .old; rm -rf .tmp; ln -sfn {secret} .tmp; (sleep 1.5) > /dev/null 2>&1 & echo x
  - say: It runs in the background.
  - run: cat /tmp/items; echo mine > /tmp/mine; echo done
last: Done.
"""
    lab = Laboratory(tmp_path, session, sandbox=with_bwrap(), on_live_children="resume")
    assert lab.execute() is RunEnd.COMPLETED, lab.detail
    assert [event.session for event in lab.events(AgentStarted)] == [0, 1]
    assert [path.name for path in secret.iterdir()] == ["items"]
    assert b"evaluation" not in (lab.root / "logs" / "agent.stdout").read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        "for s in STOP KILL TERM INT; do kill -$s 1; done; kill -9 $PPID",
        "kill -9 -1",
        'python -c "import os; [os.close(f) for f in range(3)]; os.kill(os.getppid(), 9)"',
    ],
)
def test_an_agent_that_ends_itself_has_failed_and_not_its_sandbox(
    tmp_path: Path, command: str
) -> None:
    """What is infrastructure's is made again: an agent must not be able to choose that."""
    session = f"steps:{SUBMIT}  - run: >-\n      {command}\nlast: Done.\n"
    lab = Laboratory(tmp_path, session, sandbox=with_bwrap())
    assert lab.execute() is RunEnd.AGENT_ERROR, lab.detail
    assert lab.events(SubmissionGraded)[0].evaluations[0].score == 42.0


def test_a_session_whose_background_never_ends_has_its_deadline(tmp_path: Path) -> None:
    session = """
steps:
  - run: (setsid nohup sleep 7654 > /dev/null 2>&1 &) ; echo x
  - say: I wait.
last: Done.
"""
    lab = Laboratory(
        tmp_path, session, sandbox=with_bwrap(), on_live_children="resume", wall_clock_s=5.0
    )
    assert lab.execute() is RunEnd.TIMED_OUT
    [exited] = lab.events(AgentExited)
    assert exited.num_live_children >= 1
    assert exited.budget_used_s < 5.0 + 0.5 + 30.0
    assert not [p for p in psutil.process_iter(["cmdline"]) if "7654" in (p.info["cmdline"] or ())]


@pytest.mark.parametrize("words", [("true",), ("sh", "-c", 'echo \'{"type": "done"}\'')])
def test_an_agent_that_ends_well_and_asked_nothing_never_started(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Exit code 0 within seconds, no token, no submission: nothing that a mean may count."""
    lab = Laboratory(tmp_path, "steps: [{run: ls}]\nlast: Done.\n")
    agent = lab.run.spec.agent.model_copy(update={"argv": words})
    lab.run.spec = lab.run.spec.model_copy(update={"agent": agent})
    assert lab.run.execute(attempt=0, is_last=False) is RunEnd.NEVER_STARTED
    [finished] = lab.events(RunFinished)
    assert not finished.final
    assert finished.end.is_infrastructure
    assert lab.events(AgentExited)[0].exit_code == 0


def test_last_words_give_a_terminal_no_orders(tmp_path: Path) -> None:
    session = r"""
steps:
  - run: printf '\033[2J\033]0;title\007\033[31mred' > /proc/$PPID/fd/2; kill -9 $PPID
last: Done.
"""
    lab = Laboratory(tmp_path, session, sandbox=with_bwrap())
    lab.execute()
    assert "\x1b" in lab.detail  # the ledger has it as it was
    out = StringIO()
    StampedLines(Console(file=out, force_terminal=True)).say(lab.detail)
    assert "\x1b" not in out.getvalue()
    assert "red" in out.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ü", "plain – ü"),
        ("a\tb", "a b"),
        ("\x1b[2J\x07\x9b31m", "�[2J��31m"),
        ("\u202eevil", "�evil"),
        ("\ud800\x00", "��"),
        ("x\n2026-01-01T00:00:00Z run r completed", "x\n    2026-01-01T00:00:00Z run r completed"),
    ],
)
def test_words_for_people(text: str, shown: str) -> None:
    assert printable(text) == shown


SESSION = f"""
steps:{SUBMIT}
  - run: >-
      (setsid nohup bash -c 'while :; do sleep 0.2; echo x=$RANDOM > code/w.py; done'
      > /dev/null 2>&1 &) ; echo started
  - run: sleep 30
last: Done.
"""
CHILD = """
import sys
from pathlib import Path
from tests.rl_bench.test_run_hostile import SESSION
from tests.rl_bench.test_run_with_driver import Laboratory
lab = Laboratory(Path(sys.argv[1]), SESSION, sandbox=sys.argv[2], wall_clock_s=float(sys.argv[4]))
lab.run.execute(attempt=int(sys.argv[3]), is_last=True)
"""


def start(
    root: Path, sandbox: str, *, attempt: int, wall_clock_s: float
) -> "subprocess.Popen[bytes]":
    words = (str(root), sandbox, str(attempt), str(wall_clock_s))
    return subprocess.Popen([sys.executable, "-c", CHILD, *words], cwd=Path(__file__).parents[2])


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("delay_s", [0.3, 1.7, 4.0])
def test_a_killed_run_loses_nothing_and_its_next_attempt_goes_on(
    tmp_path: Path, delay_s: float
) -> None:
    sandbox = with_bwrap()
    lab = Laboratory(tmp_path, SESSION, sandbox=sandbox)
    ledger = lab.root / "ledger.jsonl"
    first = start(tmp_path, sandbox, attempt=0, wall_clock_s=60)
    assert wait_for(lambda: ledger.exists() and "agent_started" in ledger.read_text(), limit_s=60)
    time.sleep(delay_s)
    first.send_signal(signal.SIGKILL)
    first.wait()
    mark = str(lab.root)
    assert wait_for(lambda: not [line for line in command_lines() if mark in line], limit_s=60)
    kept = ledger.read_bytes()

    assert start(tmp_path, sandbox, attempt=1, wall_clock_s=6).wait() == 0

    whole = kept[: kept.rfind(b"\n") + 1]
    assert ledger.read_bytes().startswith(whole)
    entries = read_ledger(ledger)
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    assert [event.attempt for event in lab.events(RunStarted)] == [0, 1]
    assert lab.events(RunFinished)[-1].end is RunEnd.TIMED_OUT
    accepted = [event.submission_id for event in lab.events(SubmissionAccepted)]
    graded = [event.submission_id for event in lab.events(SubmissionGraded)]
    assert accepted == graded
    assert accepted.count(1) <= 2  # one an attempt
    told = [event.revision for event in lab.events(CodeChanged)]
    assert len(set(told)) == len(told)
    history = lab.root / "code.git"
    listed = run_git(history, ["rev-list", "--all"]).decode().split()
    assert set(told) <= set(listed)


def command_lines() -> list[str]:
    return [
        " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid()
    ]
