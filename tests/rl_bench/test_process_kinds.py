"""Hostile and unlucky agents under every sandbox: their end is known, nothing of them is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import get_args

import pytest

from rl_bench.process import tree
from rl_bench.process.agent_process import Cause, tail
from tests.rl_bench.cage import (
    DETACHED,
    Cage,
    Kind,
    countdown,
    finish,
    living,
    make_cage,
    none_left,
    wait_for,
)

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=get_args(Kind))
def cage(request: pytest.FixtureRequest, tmp_path: Path) -> Cage:
    return make_cage(tmp_path, request.param)


def has_started(cage: Cage) -> bool:
    return wait_for(lambda: (cage.code / "pid").exists() and (cage.code / "pid").read_text() != "")


def test_a_detached_busy_loop_dies_at_the_deadline_and_no_neighbour_does(
    cage: Cage, tmp_path: Path
) -> None:
    neighbour = make_cage(tmp_path, cage.kind, name="neighbour")
    other = neighbour.start(sys.executable, "-c", DETACHED + "time.sleep(60)", "deaf")
    script = f"nohup {sys.executable} -c '{DETACHED}' busy deaf; exec sleep 60"
    agent = cage.start("sh", "-c", script)
    try:
        assert has_started(cage)
        assert has_started(neighbour)
        mine, theirs = living(agent), living(other)
        assert len(mine) >= 2
        begin = time.monotonic()

        exit_ = agent.wait(remaining_s=lambda: 0.0, grace_s=0.5)

        assert time.monotonic() - begin < 30.0
        assert exit_.killed
        assert exit_.deadline
        assert exit_.cause is Cause.DEADLINE
        assert exit_.num_survivors_killed >= 1
        assert exit_.num_unkillable == 0
        assert none_left(mine)
        assert theirs <= living(other)
    finally:
        other.stop(grace_s=0.0)
    assert none_left(theirs)


def test_a_grandchild_that_holds_the_output_holds_nobody_up(cage: Cage) -> None:
    begin = time.monotonic()
    agent = cage.start("sh", "-c", "echo done; nohup setsid sleep 60 & exit 3")
    before = living(agent)
    exit_ = finish(agent)
    assert time.monotonic() - begin < 30.0
    assert exit_.exit_code == 3
    assert not exit_.killed
    assert exit_.num_live_children == 1
    assert exit_.num_survivors_killed == 1
    assert exit_.children_wait_s == 0
    assert exit_.cause is None
    assert cage.stdout.read_text() == "done\n"
    assert none_left(before)


def test_live_children_are_waited_for(cage: Cage) -> None:
    script = "(sleep 1.5; echo trained > code/model) & exit 0"
    agent = cage.start("sh", "-c", script, on_live_children="wait")
    exit_ = finish(agent)
    assert (cage.code / "model").read_text() == "trained\n"
    assert exit_.exit_code == 0
    assert exit_.num_live_children >= 1
    assert 0.3 < exit_.children_wait_s < 40
    assert exit_.num_survivors_killed == 0
    assert exit_.cause is None


def test_live_children_are_ended_at_the_deadline(cage: Cage) -> None:
    script = f"{sys.executable} -c '{DETACHED}' deaf & exit 0"
    agent = cage.start("sh", "-c", script, on_live_children="wait")
    assert has_started(cage)
    before = living(agent)
    exit_ = finish(agent, budget_s=2.0)
    assert exit_.exit_code == 0
    assert not exit_.killed
    assert exit_.deadline
    assert exit_.num_live_children >= 1
    assert exit_.num_survivors_killed >= 1
    assert none_left(before)


def test_waiting_for_children_heeds_an_abort(cage: Cage) -> None:
    agent = cage.start("sh", "-c", "sleep 60 & exit 0", on_live_children="wait")
    assert wait_for(lambda: agent.poll() is not None or agent.has_exited)
    exit_ = agent.wait(
        remaining_s=countdown(30), grace_s=0.3, should_abort=lambda: True, is_done=lambda: True
    )
    assert exit_.cause is Cause.STOPPED
    assert not exit_.deadline
    assert not exit_.killed


def test_children_have_the_grace_too(cage: Cage) -> None:
    script = """
        (trap 'echo saved > code/child; exit 0' TERM; echo x > code/pid
         while :; do sleep 0.05; done) &
        exit 0
    """
    agent = cage.start("sh", "-c", script, on_live_children="wait")
    assert has_started(cage)
    assert wait_for(lambda: agent.poll() is not None or agent.has_exited)
    exit_ = agent.stop(grace_s=5.0, cause=Cause.DEADLINE)
    assert (cage.code / "child").read_text() == "saved\n"
    assert exit_.deadline


def test_the_agent_has_the_grace(cage: Cage) -> None:
    script = "trap 'sleep 0.3; echo saved > code/model; exit 7' TERM; echo x > code/pid; "
    agent = cage.start("sh", "-c", script + "while :; do sleep 0.05; done")
    assert has_started(cage)
    exit_ = agent.wait(remaining_s=lambda: 0.0, grace_s=5.0)
    assert (cage.code / "model").read_text() == "saved\n"
    assert exit_.exit_code == 7
    assert exit_.deadline
    assert exit_.num_unkillable == 0


def test_a_killed_agent_has_its_signal_for_an_exit_code(cage: Cage) -> None:
    agent = cage.start("sh", "-c", "trap '' TERM; echo x > code/pid; while :; do sleep 0.05; done")
    assert has_started(cage)
    before = living(agent)
    exit_ = agent.stop(grace_s=0.2)
    assert exit_.exit_code == -signal.SIGKILL
    assert exit_.killed
    assert exit_.sandbox_error == ""
    assert none_left(before)


def test_a_crash_is_told(cage: Cage) -> None:
    exit_ = finish(cage.start("sh", "-c", "kill -SEGV $$"))
    assert exit_.exit_code == -signal.SIGSEGV
    assert not exit_.killed


def test_a_command_that_is_not_there_is_a_start_error(cage: Cage) -> None:
    exit_ = finish(cage.start("no-such-agent"))
    assert "no-such-agent" in exit_.start_error
    assert exit_.sandbox_error == ""
    assert exit_.exit_code is None


def test_input_is_at_its_end(cage: Cage) -> None:
    assert cage.run_to_end("sh", "-c", "cat; echo read") == "read\n"


def test_long_arguments(cage: Cage) -> None:
    text = "ü'\"$(exit 1)\n" * 9_000
    counted = cage.run_to_end("sh", "-c", 'printf %s "$0" | wc -c', text)
    assert int(counted) == len(text.encode())


def test_output_is_whole(cage: Cage) -> None:
    script = "seq 200000; echo last >&2"
    lines = cage.run_to_end("sh", "-c", script).splitlines()
    assert lines == [str(number) for number in range(1, 200_001)]
    assert cage.stderr.read_text() == "last\n"


BOMB = """
import os, time
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""


def test_a_fork_bomb_is_ended_fast(cage: Cage) -> None:
    begin = time.monotonic()
    agent = cage.start(sys.executable, "-c", BOMB, max_processes=200)
    exit_ = finish(agent)
    assert time.monotonic() - begin < 45.0
    assert exit_.cause is Cause.LIMIT
    assert "200 are allowed" in exit_.reason
    assert exit_.killed
    assert exit_.num_unkillable == 0
    assert not agent_processes(cage)


def agent_processes(cage: Cage) -> list[int]:
    """Processes that work in the cage's workspace."""
    found = []
    for pid in tree.parents():
        try:
            if Path(os.readlink(f"/proc/{pid}/cwd")) == cage.workspace:  # noqa: PTH115  "(deleted)"
                found.append(pid)
        except OSError:
            continue
    return found


def test_processes_within_the_limit_are_let_alone(cage: Cage) -> None:
    script = "for i in 1 2 3 4 5 6; do sleep 1.6 & done; wait"
    exit_ = finish(cage.start("sh", "-c", script, max_processes=7))
    assert exit_.exit_code == 0
    assert exit_.cause is None


def test_memory_over_the_limit_ends_the_run(cage: Cage) -> None:
    script = "x = bytearray(300_000_000); import time; time.sleep(60)"
    agent = cage.start(sys.executable, "-c", script, max_memory_bytes=150_000_000)
    exit_ = finish(agent)
    assert exit_.cause is Cause.LIMIT
    assert "GiB of memory" in exit_.reason
    assert exit_.killed


def test_shared_memory_counts_once(cage: Cage) -> None:
    """Four processes that share what the first of them holds are not over the limit."""
    script = """
        import os, time
        held = bytearray(os.urandom(1)) * 120_000_000
        children = []
        for _ in range(3):
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(1.5)
                os._exit(0)
        for pid in children:
            os.waitpid(pid, 0)
    """
    agent = cage.start(sys.executable, "-c", textwrap.dedent(script), max_memory_bytes=250_000_000)
    assert finish(agent).exit_code == 0


def test_hang_after_the_final_event(cage: Cage) -> None:
    agent = cage.start("sh", "-c", "echo result; sleep 60")
    before = living(agent)
    exit_ = agent.wait(
        remaining_s=countdown(30),
        grace_s=0.3,
        is_done=lambda: "result" in tail(cage.stdout),
        linger_s=0.5,
    )
    assert exit_.cause is Cause.HUNG
    assert "0.5 s" in exit_.reason
    assert exit_.killed
    assert none_left(before)


def test_an_agent_that_exits_after_its_final_event_did_not_hang(cage: Cage) -> None:
    agent = cage.start("sh", "-c", "echo result; sleep 0.6; exit 0")
    exit_ = agent.wait(
        remaining_s=countdown(30),
        grace_s=0.3,
        is_done=lambda: "result" in tail(cage.stdout),
        linger_s=20,
    )
    assert (exit_.exit_code, exit_.cause) == (0, None)


def test_children_of_an_agent_that_is_done_are_not_hanging(cage: Cage) -> None:
    script = "echo result; (sleep 2; echo x > code/model) & exit 0"
    agent = cage.start("sh", "-c", script, on_live_children="wait")
    exit_ = agent.wait(remaining_s=countdown(30), grace_s=0.3, is_done=lambda: True, linger_s=1.2)
    assert (exit_.exit_code, exit_.cause) == (0, None)
    assert (cage.code / "model").exists()


@pytest.mark.parametrize("who", ["run", "supervisor"])
def test_nothing_outlives_the_run_or_the_supervisor(cage: Cage, who: str) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        from tests.rl_bench.cage import Cage, DETACHED
        cage = Cage(run=Path({str(cage.run)!r}), kind={cage.kind!r})
        agent = cage.start(sys.executable, "-c", DETACHED + "time.sleep(60)", "deaf")
        print(agent.supervisor_pid, flush=True)
        print(agent.wait(remaining_s=lambda: 60.0, grace_s=0.3).supervisor_lost, flush=True)
    """
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        supervisor = int(run.stdout.readline())
        assert has_started(cage)
        before = set(tree.descendants(supervisor))
        assert len(before) >= 2
        if who == "run":
            run.kill()
        else:
            os.kill(supervisor, signal.SIGKILL)
            assert run.stdout.readline() == "True\n"
            assert none_left(before), "it says so when nothing is left"
        assert wait_for(lambda: none_left({*before, supervisor}), limit_s=40)
