"""Agents as real processes: whatever they do, nothing of them is left, and their end is known."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rl_bench.process import agent_process, tree
from rl_bench.process.agent_process import AgentExit, AgentProcess, tail
from rl_bench.process.stall import StallWatch

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

DETACHED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        if "deaf" in sys.argv:
            import signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        while True:
            "busy" in sys.argv or time.sleep(0.05)
    os._exit(0)
os.wait()
"""


def start(folder: Path, argv: list[str], *, grace_s: float = 0.3, cap: int = 10**6) -> AgentProcess:
    return AgentProcess.start(
        argv,
        env=ENV,
        cwd=folder,
        stdout=folder / "out",
        stderr=folder / "err",
        grace_s=grace_s,
        max_output_bytes=cap,
    )


def countdown(seconds: float) -> Callable[[], float]:
    deadline = time.monotonic() + seconds
    return lambda: max(0.0, deadline - time.monotonic())


def finish(agent: AgentProcess, *, budget_s: float = 20.0) -> AgentExit:
    return agent.wait(remaining_s=countdown(budget_s), grace_s=0.3)


def alive(pid: int) -> bool:
    return pid in tree.parents()


def wait_for(condition: Callable[[], bool], *, limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def read_pid(path: Path) -> int:
    assert wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_exit_code_output_and_environment(tmp_path: Path) -> None:
    os.environ["OF_THE_RUNNER"] = "leak"
    try:
        agent = start(tmp_path, ["sh", "-c", "pwd; env; echo bad >&2; exit 3"])
        exit_ = finish(agent)
    finally:
        del os.environ["OF_THE_RUNNER"]
    assert exit_.exit_code == 3
    assert not exit_.killed
    assert exit_.num_survivors_killed == 0
    out = (tmp_path / "out").read_text()
    assert out.startswith(f"{tmp_path}\n")
    assert "OF_THE_RUNNER" not in out
    assert tail(tmp_path / "err") == "bad\n"
    assert tail(tmp_path / "none") == ""


def test_exit_code_survives_a_parent_that_ignores_sigchld(tmp_path: Path) -> None:
    code = f"""
        import signal, sys, time
        from pathlib import Path
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        from rl_bench.process.agent_process import AgentProcess
        folder = Path({str(tmp_path)!r})
        agent = AgentProcess.start(["sh", "-c", "exit 3"], env={ENV!r}, cwd=folder,
                                   stdout=folder / "out", stderr=folder / "err")
        sys.exit(agent.wait(remaining_s=lambda: 10.0, grace_s=1.0).exit_code)
    """
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=root, check=False)
    assert done.returncode == 3


def test_input_is_at_its_end(tmp_path: Path) -> None:
    exit_ = finish(start(tmp_path, ["sh", "-c", "cat; echo read"]))
    assert exit_.exit_code == 0
    assert (tmp_path / "out").read_text() == "read\n"


def test_unknown_command_is_told(tmp_path: Path) -> None:
    exit_ = finish(start(tmp_path, ["no-such-agent"]))
    assert "no-such-agent" in exit_.start_error


def test_long_arguments_and_many_open_files(tmp_path: Path) -> None:
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        exit_ = finish(start(tmp_path, ["sh", "-c", 'printf %s "$0" | wc -c', "ü" * 60_000]))
    finally:
        for file in files:
            os.close(file)
    assert exit_.exit_code == 0
    assert (tmp_path / "out").read_text().strip() == "120000"


def test_deadline_ends_a_detached_busy_loop(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"{sys.executable} -c '{DETACHED}' {pid_file} busy deaf; sleep 60"
    agent = start(tmp_path, ["sh", "-c", script])
    pid = read_pid(pid_file)
    begin = time.monotonic()
    exit_ = finish(agent, budget_s=0.2)
    assert time.monotonic() - begin < 30.0
    assert exit_.killed
    assert exit_.deadline
    assert exit_.exit_code == -signal.SIGTERM
    assert exit_.num_survivors_killed >= 1
    assert exit_.num_unkillable == 0
    assert not alive(pid)
    assert not alive(agent.pid)


def test_grandchild_that_holds_the_output_holds_nobody_up(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"nohup setsid sleep 60 & echo $! > {pid_file}; exit 0"
    begin = time.monotonic()
    exit_ = finish(start(tmp_path, ["sh", "-c", script]))
    assert time.monotonic() - begin < 30.0
    assert exit_.exit_code == 0
    assert not exit_.killed
    assert exit_.num_survivors_killed == 1
    assert not alive(read_pid(pid_file))


def test_agent_has_the_grace_to_end_by_itself(tmp_path: Path) -> None:
    script = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    agent = start(tmp_path, ["sh", "-c", script])
    assert wait_for(lambda: "ready" in tail(tmp_path / "out"))
    exit_ = agent.wait(remaining_s=lambda: 0.0, grace_s=5.0)
    assert exit_.exit_code == 7
    assert exit_.deadline
    assert tail(tmp_path / "out") == "ready\nsaved\n"


def test_credit_moves_the_deadline(tmp_path: Path) -> None:
    agent = start(tmp_path, ["sleep", "60"])
    begin = time.monotonic()
    asked: list[float] = []

    def remaining_s() -> float:
        asked.append(time.monotonic() - begin)
        return (0.3 if len(asked) == 1 else 1.0) - asked[-1]

    exit_ = agent.wait(remaining_s=remaining_s, grace_s=0.3)
    assert exit_.deadline
    assert asked[-1] >= 1.0


def test_fork_storm_is_ended(tmp_path: Path) -> None:
    storm = """
import os, time
for _ in range(4):
    os.fork()
while True:
    time.sleep(0.01)
    os.fork() or os._exit(0)
"""
    agent = start(tmp_path, [sys.executable, "-c", storm])
    time.sleep(0.5)
    exit_ = agent.stop(grace_s=0.0)
    assert exit_.killed
    assert not exit_.deadline
    assert exit_.num_unkillable == 0
    assert agent.stop(grace_s=0.0) == exit_


@pytest.mark.parametrize("with_heir", [False, True])
def test_nothing_outlives_a_killed_run(tmp_path: Path, with_heir: bool) -> None:
    # An heir is a fork of the run that lives on and keeps its pipes open.
    pid_file = tmp_path / "pid"
    argv = [sys.executable, "-c", DETACHED + "time.sleep(60)", str(pid_file), "deaf"]
    code = f"""
        import os, time
        from pathlib import Path
        from rl_bench.process.agent_process import AgentProcess
        folder = Path({str(tmp_path)!r})
        agent = AgentProcess.start({argv!r}, env={ENV!r}, cwd=folder,
                                   stdout=folder / "out", stderr=folder / "err")
        heir = os.fork() if {with_heir} else -1
        if heir != 0:
            print(agent.pid, heir, flush=True)
        time.sleep(60)
    """
    root = Path(__file__).parents[2]
    run = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=root, stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    agent_pid, heir = map(int, run.stdout.readline().split())
    run.stdout.close()
    child = read_pid(pid_file)
    run.kill()
    run.wait()
    try:
        assert wait_for(lambda: not alive(agent_pid) and not alive(child), limit_s=30.0)
    finally:
        if heir > 0:
            os.kill(heir, signal.SIGKILL)


def test_agent_that_kills_its_supervisor_is_ended_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"{sys.executable} -c '{DETACHED}' {pid_file} deaf; kill -9 $PPID; sleep 60"
    agent = start(tmp_path, ["sh", "-c", script])
    exit_ = finish(agent)
    assert exit_.supervisor_lost
    assert not alive(read_pid(pid_file))
    assert not alive(agent.pid)


def test_output_is_bounded_and_keeps_head_and_tail(tmp_path: Path) -> None:
    script = "echo first; yes | head -c 40000000; sleep 0.4; echo last"
    exit_ = finish(start(tmp_path, ["sh", "-c", script], cap=100_000))
    assert exit_.exit_code == 0
    data = (tmp_path / "out").read_text()
    assert len(data) < 120_000
    assert data.startswith("first\n")
    assert "cut here" in data
    assert data.endswith("last\n")


def test_stall_is_told_once() -> None:
    watch = StallWatch(limit_s=10)
    seen = [watch.see((0, cpu), now=now) for now, cpu in [(0, 0.0), (9, 0.1), (11, 0.1), (30, 0.1)]]
    assert seen == [None, None, 11, None]
    assert watch.see((0, 5.0), now=40) is None
    assert watch.see((1, 5.0), now=45) is None
    assert watch.see((1, 5.0), now=56) == 11


def test_stalled_agent_raises_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_bench.process.agent_process.STALL_CHECK_S", 0.2)
    told: list[float] = []
    start(tmp_path, ["sleep", "1.5"]).wait(
        remaining_s=lambda: 10.0, grace_s=0.3, stall_s=0.5, on_stall=told.append
    )
    assert len(told) == 1


def test_supervisor_is_no_direct_child(tmp_path: Path) -> None:
    """Ray kills the direct children of a worker that ends, and the supervisor is needed then."""
    before = set(psutil.Process().children())
    agent = start(tmp_path, ["sleep", "30"])
    try:
        assert set(psutil.Process().children()) <= before
    finally:
        agent.stop(grace_s=0.3)


def test_a_kernel_that_tells_no_end_is_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = "import os\ndef refuse(*_): raise OSError(38, 'none')\nos.pidfd_open = refuse\n"
    monkeypatch.setattr(agent_process, "_SUPERVISE", without + agent_process._SUPERVISE)
    assert finish(start(tmp_path, ["sh", "-c", "exit 3"])).exit_code == 3


TRACED = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.prctl(0x59616D61, -1, 0, 0, 0)  # PR_SET_PTRACER, for whoever likes
me = os.getpid()
told, tell = os.pipe()
if os.fork() == 0:
    refused = libc.ptrace(0x4206, me, 0, 0)  # PTRACE_SEIZE
    os.write(tell, b"no" if refused else b"yes")
    time.sleep(60)
open("traced", "wb").write(os.read(told, 3))
"""


def test_an_agent_that_nobody_may_reap_keeps_no_core_busy(tmp_path: Path) -> None:
    """A child of it traces it and does not wait, so that it stays a zombie."""
    agent = start(tmp_path, [sys.executable, "-c", TRACED])
    try:
        assert wait_for(lambda: not alive(agent.pid))
        if (tmp_path / "traced").read_text() != "yes":
            pytest.skip("tracing is not allowed here")
        supervisor = psutil.Process(agent.supervisor_pid)
        before = supervisor.cpu_times()
        time.sleep(1)
        assert supervisor.cpu_times().user - before.user < 0.2
    finally:
        agent.stop(grace_s=0.3)
