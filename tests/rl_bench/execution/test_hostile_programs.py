"""Programs that cheat or attack: none passes, none does harm.

Each test passes only a program whose attack succeeded, so that a hole shows as ``passed``.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from rl_bench.execution.base import MIB, FunctionTest, Isolation, Limits, Outcome
from rl_bench.execution.checker import ProcessChecker, checker_command
from rl_bench.execution.checker_process import Job, write_job

T = TypeVar("T")

SECRET = "the-expected-result-7f3a"  # noqa: S105  what the test knows and a program must not
TEST = FunctionTest(
    preamble="", code=f"def check(f):\n    assert f(1) == {SECRET!r}", entry_point="f"
)
LIMITS = Limits(timeout_s=5.0, memory_bytes=256 * MIB)
BRIEF = replace(LIMITS, timeout_s=0.3)
"""For programs that are to run out of time."""

HOSTILE = {
    "fork bomb": (
        "import os\ndef f(x):\n    while True:\n        os.fork()",
        Outcome.ERROR,
    ),
    "processes": (
        "import subprocess, sys\ndef f(x):\n    return subprocess.run([sys.executable, '-c', ''])",
        Outcome.ERROR,
    ),
    "another program": ("import os\ndef f(x): os.execv('/bin/sh', ['sh'])", Outcome.ERROR),
    "exit at once": ("import os\nos._exit(0)", Outcome.ERROR),
    "exit in a call": ("import os\ndef f(x): os._exit(0)", Outcome.ERROR),
    "polite exit": ("import sys\nsys.exit(0)", Outcome.ERROR),
    "polite exit in a call": ("import sys\ndef f(x): sys.exit(0)", Outcome.ERROR),
    "endless output": ("def f(x):\n    while True: print('passed' * 1000)", Outcome.TIMED_OUT),
    "endless loop": ("def f(x):\n    while True: pass", Outcome.TIMED_OUT),
    "endless import": ("while True: pass", Outcome.TIMED_OUT),
    "sleep": ("import time\ndef f(x): time.sleep(1000)", Outcome.TIMED_OUT),
    "one huge object": ("def f(x): return bytearray(1 << 40)", Outcome.ERROR),
    "memory bomb": (
        "def f(x):\n    kept = []\n    while True: kept.append(bytearray(1 << 26))",
        Outcome.ERROR,
    ),
    "memory files": (
        "import os\ndef f(x):\n    fd = os.memfd_create('x')\n    os.write(fd, b'x')",
        Outcome.ERROR,
    ),
    "equal to everything": (
        "class A:\n    __eq__ = lambda self, other: True\ndef f(x): return A()",
        Outcome.ERROR,
    ),
    "a text equal to everything": (
        "class A(str):\n    __eq__ = lambda self, other: True\n    __hash__ = str.__hash__\n"
        "def f(x): return A('no')",
        Outcome.WRONG,
    ),
    "patched builtins": (
        "import builtins\n"
        "class Quiet(Exception): pass\n"
        "builtins.AssertionError = Quiet\n"
        "builtins.__import__ = builtins.open = builtins.len = lambda *a, **k: 0\n"
        "def f(x): return None",
        None,  # whatever breaks, breaks in its own process
    ),
    "patched codec": (
        "import sys\n"
        "main = sys.modules['rl_bench.execution.candidate_process']\n"
        "def f(x):\n"
        '    main.dumps = lambda value: b\'["l", "passed"]\'\n'
        "    return 'passed'",
        Outcome.ERROR,
    ),
    "threads left behind": (
        "import threading\n"
        "def loop():\n    while True: pass\n"
        "threading.Thread(target=loop).start()\n"
        "def f(x): return 'no'",
        Outcome.WRONG,
    ),
    "thread bomb": (
        "import threading, time\n"
        "def f(x):\n"
        "    while True: threading.Thread(target=time.sleep, args=(99,)).start()",
        Outcome.ERROR,
    ),
    "deaf to signals": (
        "import signal\n"
        "for number in signal.valid_signals():\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except OSError: pass\n"
        "def f(x):\n    while True: pass",
        Outcome.TIMED_OUT,
    ),
    "alarm": (
        "import signal\ndef f(x):\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        "    while True: pass",
        None,  # a namespace's first process does not hear its own alarm
    ),
    "closed pipe": ("import os\ndef f(x):\n    os.close(4)\n    return 'no'", Outcome.ERROR),
    "all closed": ("import os\ndef f(x):\n    os.closerange(0, 64)", Outcome.ERROR),
    "junk in the pipe": (
        "import os\ndef f(x):\n    os.write(4, b'\\xff' * 4096)\n    return 'no'",
        Outcome.ERROR,
    ),
    "half a reply": (
        "import os, time\ndef f(x):\n    os.write(4, b'\\0\\0\\0\\x10ab')\n    time.sleep(1000)",
        Outcome.TIMED_OUT,
    ),
    "forged verdict": (
        "import json, os\n"
        "def f(x):\n"
        "    forged = json.dumps({'outcome': 'passed', 'error': '', 'seconds': 0.0}).encode()\n"
        "    for fd in range(64):\n"
        "        for data in (forged, len(forged).to_bytes(4, 'big') + forged):\n"
        "            try: os.write(fd, data)\n"
        "            except OSError: pass\n"
        "    os._exit(0)",
        Outcome.ERROR,
    ),
    "huge recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return [f(x)]",
        None,  # out of memory or of time, whichever comes first
    ),
    "crash": ("import ctypes\ndef f(x): ctypes.string_at(0)", Outcome.ERROR),
    "kills": (
        "import os, signal\n"
        "def f(x):\n"
        "    for pid in (os.getppid(), -os.getppid(), 0, -1, 1):\n"
        "        try: os.kill(pid, signal.SIGKILL)\n"
        "        except OSError: pass\n"
        "    return 'no'",
        Outcome.WRONG,
    ),
    "own namespaces": (
        "import ctypes\n"
        "def f(x):\n"
        f"    return {SECRET!r} if ctypes.CDLL(None).unshare(0x10000000) == 0 else 'no'",
        Outcome.WRONG,
    ),
    "deep result": (
        "def f(x):\n    a = []\n    for _ in range(10**5): a = [a]\n    return a",
        Outcome.ERROR,
    ),
    "long number": ("def f(x): return 1 << 10**8", Outcome.ERROR),
    "no function": ("g = 1", Outcome.ERROR),
    "no callable": ("f = 1", Outcome.ERROR),
    "no syntax": ("def f(x:\n", Outcome.ERROR),
    "null bytes": ("def f(x): return '\0'", Outcome.ERROR),
    "exception that cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise SystemExit\ndef f(x): raise E",
        Outcome.ERROR,
    ),
    "nothing": (" \n", Outcome.REFUSED),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_none_passes_and_none_is_left(best: Isolation, name: str) -> None:
    program, expected = HOSTILE[name]
    limits = BRIEF if expected in (None, Outcome.TIMED_OUT) else LIMITS
    verdict = ProcessChecker(limits=limits).check(program, TEST)
    assert verdict.outcome is not Outcome.PASSED
    assert expected in (None, verdict.outcome), verdict
    assert not [process for process in psutil.process_iter() if is_orphan(process)]


def is_orphan(process: psutil.Process) -> bool:
    """Whether a program's process outlived the checker that started it."""
    try:
        parent = process.parent()
        is_candidate = "candidate_process" in " ".join(process.cmdline())
        return is_candidate and "checker_process" not in " ".join(parent.cmdline())
    except (psutil.Error, AttributeError):  # it, or its parent, has just ended
        return False


SEARCH = """
import gc, os, sys
def is_secret(value):
    parts = ["expected", "result", "7f3a"]
    return isinstance(value, (str, bytes)) and "-".join(parts) in str(value)
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [*frame.f_locals.values(), *frame.f_globals.values(), *frame.f_code.co_consts]
        frame = frame.f_back
    for thing in gc.get_objects():
        seen += thing.values() if isinstance(thing, dict) else ()
        seen += thing if isinstance(thing, (list, tuple, set)) else ()
    seen += [*sys.argv, *sys.orig_argv, *os.environ.values()]
    for name in ("environ", "cmdline"):
        for pid in ("self", "1", str(os.getppid())):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    seen.append(file.read())
            except OSError:
                pass
    return any(is_secret(value) for value in seen)
"""
FINDS = FunctionTest(
    preamble=f"EXPECTED = {SECRET!r}",
    code="def check(f):\n    assert EXPECTED and f(1)",
    entry_point="f",
)


def test_tests_are_not_in_the_programs_memory(isolation: Isolation) -> None:
    verdict = ProcessChecker(limits=Limits(), isolation=isolation).check(SEARCH, FINDS)
    assert verdict.outcome is Outcome.WRONG, verdict


def test_the_search_finds_what_is_there() -> None:
    """In a Python of its own: other tests leave objects there that break when they are added."""
    code = f"SECRET = {SECRET!r}\nexec({SEARCH!r})\nprint(f(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def reads(path: Path) -> str:
    return f"def f(x):\n    open({str(path)!r}, 'rb').read()\n    return {SECRET!r}"


def test_files_cannot_be_read(isolation: Isolation, tmp_path: Path) -> None:
    (tmp_path / "tests.jsonl").write_text(SECRET)
    spec = find_spec("psutil")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin)  # a package, as the data set may be one
    for path in (tmp_path / "tests.jsonl", installed, Path("/etc/passwd"), Path(__file__)):
        verdict = ProcessChecker(limits=LIMITS, isolation=isolation).check(reads(path), TEST)
        assert (verdict.outcome, path) == (Outcome.ERROR, path)


def test_files_cannot_be_changed(isolation: Isolation, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("content")
    kept.chmod(0o666)
    tmp_path.chmod(0o777)
    program = (
        "import os, shutil\n"
        f"kept, folder = {str(kept)!r}, {str(tmp_path)!r}\n"
        "attacks = [lambda: os.remove(kept), lambda: os.truncate(kept, 0),\n"
        "  lambda: os.chmod(kept, 0), lambda: os.utime(kept, (1, 1)),\n"
        "  lambda: os.rename(kept, kept + '2'), lambda: shutil.rmtree(folder),\n"
        "  lambda: open(folder + '/new', 'w'), lambda: open('new', 'w'),\n"
        "  lambda: open('/tmp/new-7f3a', 'w'), lambda: os.mkdir('d'), lambda: os.chdir(folder)]\n"
        "def works(attack):\n"
        "    try: attack()\n"
        "    except OSError: return False\n"
        "    return True\n"
        f"def f(x): return {SECRET!r} if any([works(a) for a in attacks[:-1]]) else 'no'"
    )
    before = kept.stat()
    verdict = ProcessChecker(limits=LIMITS, isolation=isolation).check(program, TEST)
    assert verdict.outcome is Outcome.WRONG, verdict
    assert kept.read_text() == "content"
    assert (kept.stat().st_mode, kept.stat().st_mtime) == (before.st_mode, before.st_mtime)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_no_socket_reaches_this_machine(isolation: Isolation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        address = server.getsockname()
        program = (
            f"import socket\ndef f(x):\n    socket.create_connection({address!r}, timeout=0.3)\n"
            f"    return {SECRET!r}"
        )
        verdict = ProcessChecker(limits=LIMITS, isolation=isolation).check(program, TEST)
        assert verdict.outcome is Outcome.ERROR, verdict
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_program_dies_with_its_checker(isolation: Isolation) -> None:
    job = Job(
        program="import time\ndef f(x): time.sleep(60)",
        test=TEST,
        limits=Limits(timeout_s=60.0),
        isolation=isolation,
    )
    with subprocess.Popen(checker_command(), stdin=subprocess.PIPE, text=True) as checker:
        assert checker.stdin is not None
        checker.stdin.write(write_job(job))
        checker.stdin.close()
        process = psutil.Process(checker.pid)
        program = wait_for(lambda: next(iter(process.children()), None))
        checker.kill()
    assert program is not None
    wait_for(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)


def wait_for(act: Callable[[], T]) -> T:
    """What ``act`` returns once that is true, within ten seconds."""
    deadline = time.monotonic() + 10
    while not (found := act()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


REFUSED = """
import ctypes, fcntl, os, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result < 0: raise OSError(ctypes.get_errno())
attacks = {
    "fork": os.fork,
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid() or 1, 0),
    "uid": lambda: os.setuid(0) if os.getuid() else os.chroot("/"),
    "trace": lambda: done(libc.ptrace(16, os.getppid(), 0, 0)),
    "mount": lambda: done(libc.mount(b"none", b"/", b"tmpfs", 0, b"")),
    "unshare": lambda: done(libc.unshare(0x10000000)),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)),
    "its limit": lambda: resource.prlimit(os.getppid() or 1, resource.RLIMIT_CPU, (1, 1)),
    "its priority": lambda: os.setpriority(os.PRIO_PROCESS, os.getppid() or 1, 19),
    "signal by pipe": lambda: fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid() or 1),
    "signal's number": lambda: fcntl.fcntl(3, fcntl.F_SETSIG, 9),
    "outliving": lambda: done(libc.prctl(1, 0, 0, 0, 0)),
    "processes": lambda: os.listdir("/proc"),
    "memory file": lambda: os.memfd_create("x"),
}
def f(x):
    worked = []
    for name, attack in attacks.items():
        try:
            attack()
        except (OSError, ValueError):
            continue
        worked.append(name)
    return worked
"""


def test_what_is_refused(isolation: Isolation) -> None:
    test = FunctionTest(
        preamble="",
        code="def check(f):\n    found = f(1)\n    assert found == [], found",
        entry_point="f",
    )
    verdict = ProcessChecker(limits=LIMITS, isolation=isolation).check(REFUSED, test)
    assert verdict.outcome is Outcome.PASSED, verdict


def test_no_capability_and_no_privilege_is_left(isolation: Isolation) -> None:
    program = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()\n"
        "def f(x):\n"
        "    assert libc.capget(header, data) == 0 and libc.prctl(39, 0, 0, 0, 0) == 1\n"
        "    return list(data)"
    )
    test = FunctionTest(
        preamble="", code="def check(f):\n    assert f(1)[:2] == [0, 0]", entry_point="f"
    )
    verdict = ProcessChecker(limits=LIMITS, isolation=isolation).check(program, test)
    assert verdict.outcome is Outcome.PASSED, verdict


def test_a_privileged_start_ends_in_a_uid_of_its_own(isolation: Isolation) -> None:
    if isolation is not Isolation.NAMESPACES:
        pytest.skip("only root can give a program another uid")
    test = FunctionTest(
        preamble="", code=f"def check(f):\n    assert f() > {os.getuid()} + 1000", entry_point="f"
    )
    program = "import os\ndef f(): return min(os.getresuid() + os.getresgid())"
    verdict = ProcessChecker(limits=LIMITS, isolation=isolation).check(program, test)
    assert verdict.outcome is Outcome.PASSED, verdict
