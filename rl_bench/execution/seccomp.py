"""The system calls that a program is refused, as a filter of the kernel (seccomp, BPF).

A list of refusals, not of permissions: which calls an interpreter needs varies with its libc. What
is refused answers EPERM. Processes cannot be started, threads can; sockets cannot be opened; no
signal reaches another process, nor does any change of its limits or its scheduling; and nothing
that this project knows of changes files past Landlock or takes memory past the limit on address
space. Source: seccomp(2), ``<linux/filter.h>``, x86-64 numbers.
"""

import ctypes
import errno
import struct

from rl_bench.execution import libc

_MODE_FILTER = 2
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS, _ARGUMENT_BYTES = 0, 4, 16, 8
_CLONE_THREAD = 0x00010000
_SYS_CLONE, _SYS_CLONE3, _SYS_PRLIMIT = 56, 435, 302

REFUSED: dict[str, tuple[int, ...]] = {
    "processes": (57, 58),  # fork, vfork; clone is looked into
    # kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal, pidfd_open
    "signals": (62, 200, 234, 129, 297, 424, 434),
    # ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd, perf_event_open
    "other processes": (101, 310, 311, 312, 438, 298),
    # setpriority, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr, ioprio_set,
    # migrate_pages, move_pages, process_madvise, process_mrelease
    "scheduling": (141, 142, 144, 203, 314, 251, 256, 279, 440, 448),
    # socket, connect, accept, bind, listen, accept4
    "network": (41, 42, 43, 49, 50, 288),
    # memfd_create, memfd_secret, shmget, shmat, msgget, semget, mq_open
    "memory beside the limit": (319, 447, 29, 30, 68, 64, 240),
    # truncate, chmod, fchmod, chown, fchown, lchown, fchownat, fchmodat, fchmodat2, utime, utimes,
    # futimesat, utimensat, (l, f)setxattr, (l, f)removexattr, mknod, mknodat
    "files that exist": (
        *(76, 90, 91, 92, 93, 94, 260, 268, 452, 132, 235, 261, 280),
        *(188, 189, 190, 197, 198, 199, 133, 259),
    ),
    # mount, umount2, pivot_root, chroot, unshare, setns, open_tree … fspick, mount_setattr,
    # name_to_handle_at, open_by_handle_at
    "namespaces": (165, 166, 155, 161, 272, 308, 428, 429, 430, 431, 432, 433, 442, 303, 304),
    # io_uring_setup, _enter, _register; bpf, userfaultfd, add_key, request_key, keyctl, personality
    "kernel surface": (425, 426, 427, 321, 323, 248, 249, 250, 135),
    # acct, settimeofday, swapon, swapoff, reboot, sethostname, setdomainname, iopl, ioperm,
    # init_module, delete_module, finit_module, kexec_load, kexec_file_load, clock_settime, syslog
    "the machine": (163, 164, 167, 168, 169, 170, 171, 172, 173, 175, 176, 313, 246, 320, 227, 103),
}

REFUSED_WITH: dict[int, tuple[int, tuple[int, ...]]] = {
    # fcntl with F_SETOWN, F_SETSIG, F_SETOWN_EX: signals by way of a pipe
    72: (1, (8, 10, 15)),
    # ioctl with FIOSETOWN, SIOCSPGRP (likewise), TIOCSTI
    16: (1, (0x8901, 0x8902, 0x5412)),
    # prctl with PR_SET_PDEATHSIG: dying with the parent
    157: (0, (1,)),
}
"""Calls refused for some values of one argument: its position, and the values."""


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> None:
    """Applies the filter to this process for good; needs ``no_new_privs``.

    Raises:
        OSError: The kernel has no filters.
    """
    content = b"".join(_instructions())
    program = _Program(len=len(content) // 8, filter=content)
    libc.prctl(libc.PR_SET_SECCOMP, _MODE_FILTER, program)


def _instructions() -> list[bytes]:
    steps = [
        # Another architecture's calls have other numbers.
        _step(_LOAD, _AT_ARCH),
        _step(_IF_EQUAL, _ARCH_X86_64, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _AT_NUMBER),
        _step(_IF_AT_LEAST, _X32_BIT, no=1),
        _REFUSE,
        # Without clone3 the libc takes clone, whose flags can be seen.
        _step(_IF_EQUAL, _SYS_CLONE3, no=1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for number in sorted(number for numbers in REFUSED.values() for number in numbers):
        steps += [_step(_IF_EQUAL, number, no=1), _REFUSE]
    for number, (position, values) in REFUSED_WITH.items():
        refusals = [step for v in values for step in (_step(_IF_EQUAL, v, no=1), _REFUSE)]
        steps += _look_into(number, position, *refusals)
    steps += _look_into(_SYS_CLONE, 0, _step(_IF_ANY_BIT, _CLONE_THREAD, yes=1), _REFUSE)
    # Its own limits, process 0, it may lower.
    steps += _look_into(_SYS_PRLIMIT, 0, _step(_IF_EQUAL, 0, yes=1), _REFUSE)
    return [*steps, _PERMIT]


def _look_into(number: int, position: int, *steps: bytes) -> list[bytes]:
    """Decides one call by an argument's lower half: what ``steps`` let through is permitted."""
    load = _step(_LOAD, _AT_ARGUMENTS + _ARGUMENT_BYTES * position)
    return [_step(_IF_EQUAL, number, no=len(steps) + 2), load, *steps, _PERMIT]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; a condition skips ``yes`` or ``no`` of those that follow."""
    return struct.pack("=HBBI", code, yes, no, value)


_REFUSE = _step(_RETURN, _ERRNO | errno.EPERM)
_PERMIT = _step(_RETURN, _ALLOW)
