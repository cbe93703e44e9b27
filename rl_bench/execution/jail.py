"""Starts a program's process with everything taken from it that it could harm or deceive with.

The layers, and what each stops (`Isolation` says which of the first three there are):

1. namespaces: other processes, the network, files. The program is the first process of its own
   pid namespace, so that killing it kills whatever it started; its root holds a bare Python,
   read-only (`namespaces`). The tests are on no path that exists there.
2. a uid that nobody else has (started as root), or an ordinary user of a user namespace: no
   capability, no file of anyone, `RLIMIT_NPROC` counts its own threads only.
3. Landlock, where namespaces are not to be had: files. The uid stays, without capabilities.
4. seccomp (`seccomp`): new processes, sockets, signals, memory files, mounts, debuggers, limits and
   scheduling of others, modes and owners of files.
5. limits: CPU time, address space, file size (0), open files, threads, core dumps.
6. a fresh interpreter: ``execve`` leaves nothing of this process in memory; no environment of
   ours, no installed packages, no file descriptors but the two pipes; output goes to
   ``/dev/null``; a session of its own.
7. wall time, kept by whoever started it; the program also dies with its parent.

Hashing is fixed (``PYTHONHASHSEED=0``), so that equal programs end equally. The interpreter's
isolated mode, ``-I``, would ignore that; what else it does, ``-s -P -S`` and an environment of two
variables do.
"""

import fcntl
import math
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rl_bench.execution import landlock, libc, namespaces, seccomp
from rl_bench.execution.base import Isolation, Limits
from rl_bench.execution.candidate_process import REPLIES_FD, REQUESTS_FD
from rl_bench.execution.codec import dumps, write_frame
from rl_bench.execution.interpreter import InterpreterFiles, interpreter_files

SETUP_FAILED = "setup failed"
"""Kind of the first reply when the jail could not be built; else it is the program's hello."""
_FIRST_OWN_UID = 0x60000000
_FOLDER = Path(__file__).parent
_PARTS = ("codec", "candidate_process")
_ENV = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
_NO_ROOT_LOCKED = 0b11
_LAST_CAPABILITY = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class JailedProcess:
    """A started process and this side's ends of its pipes."""

    pid: int
    requests_fd: int
    replies_fd: int

    def kill(self) -> None:
        """Ends it and whatever it started, and waits until they are gone."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.requests_fd)
        os.close(self.replies_fd)


class _Identity(NamedTuple):
    """Who starts the program, and the uid that is the program's own."""

    uid: int
    gid: int
    own: int


def start(isolation: Isolation, *, limits: Limits) -> JailedProcess:
    """Starts a process that waits for a program; call from a process with one thread only.

    Raises:
        OSError: The kernel refuses namespaces, or another process.
    """
    files = interpreter_files()
    boot = _boot_code()
    requests_out, requests_in = os.pipe()
    replies_out, replies_in = os.pipe()
    identity = _Identity(uid=os.getuid(), gid=os.getgid(), own=_FIRST_OWN_UID + os.getpid())
    pid = libc.clone(_flags(isolation))
    if pid == 0:
        try:
            _keep_only(requests_out, replies_in)
            _enter(isolation, files, identity=identity)
            _give_up(isolation, files, limits=limits, own_uid=identity.own)
            argv = [str(files.executable), "-s", "-P", "-S", "-B", "-c", boot]
            os.execve(files.executable, argv, _ENV)  # noqa: S606  no shell is the point
        except BaseException as error:  # noqa: BLE001  a copy of the checker that must never act as one
            write_frame(REPLIES_FD, dumps([SETUP_FAILED, f"{type(error).__name__}: {error}"]))
        finally:
            os._exit(1)
    os.close(requests_out)
    os.close(replies_in)
    return JailedProcess(pid=pid, requests_fd=requests_in, replies_fd=replies_out)


def _flags(isolation: Isolation) -> int:
    match isolation:
        case Isolation.NAMESPACES:
            return namespaces.OWN
        case Isolation.USER_NAMESPACES:
            return namespaces.OWN | libc.CLONE_NEWUSER
        case Isolation.LANDLOCK:
            return 0


def _enter(isolation: Isolation, files: InterpreterFiles, *, identity: "_Identity") -> None:
    os.setsid()
    os.chdir("/")
    if isolation is Isolation.USER_NAMESPACES:
        namespaces.map_ids(identity.uid, identity.gid)
    if isolation is not Isolation.LANDLOCK:
        namespaces.enter_root(files)


def _give_up(
    isolation: Isolation, files: InterpreterFiles, *, limits: Limits, own_uid: int
) -> None:
    _limit(limits)
    if os.geteuid() == 0 or isolation is Isolation.USER_NAMESPACES:
        _drop_capabilities()
    if isolation is Isolation.NAMESPACES:
        os.setgroups([])
        os.setresgid(own_uid, own_uid, own_uid)
        os.setresuid(own_uid, own_uid, own_uid)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)  # changing the uid would clear it
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if isolation is Isolation.LANDLOCK:
        landlock.restrict_to(files)
    seccomp.install()


def _boot_code() -> str:
    """The project's part of the program's process as one text: no file of it is shown there."""
    sources = [
        (f"rl_bench.execution.{name}", (_FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        for name in _PARTS
    ]
    return (
        "import sys, types\n"
        f"for name, source in {sources!r}:\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    exec(compile(source, name, 'exec'), module.__dict__)\n"
        "module.main()\n"
    )


def _limit(limits: Limits) -> None:
    for kind, value in (
        # A second more than the clock on the wall, which tells a slow program from a dead one.
        (resource.RLIMIT_CPU, math.ceil(limits.timeout_s) + 1),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, limits.max_files),
        (resource.RLIMIT_NPROC, limits.max_threads),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        _, most = resource.getrlimit(kind)
        allowed = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (allowed, allowed))


def _drop_capabilities() -> None:
    """Sees to it that no capability is left after ``execve``, not even to uid 0."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, capability)
        except OSError:  # past the kernel's last one
            break
    libc.prctl(libc.PR_SET_SECUREBITS, _NO_ROOT_LOCKED)


def _keep_only(requests: int, replies: int) -> None:
    """Leaves ``/dev/null`` as standard streams and the pipes on their agreed numbers."""
    null = os.open(os.devnull, os.O_RDWR)
    # Copies above every target first, so that none overwrites another.
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, 32) for fd in (null, null, null, requests, replies)]
    for target, fd in zip((0, 1, 2, REQUESTS_FD, REPLIES_FD), copies, strict=True):
        os.dup2(fd, target)
    os.closerange(REPLIES_FD + 1, os.sysconf("SC_OPEN_MAX"))
