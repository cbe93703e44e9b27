"""The system calls that an agent in a sandbox is refused, as a filter of the kernel (seccomp, BPF).

Few are, since what a CLI or a training needs varies:

- **Sockets that no namespace confines.** By ``AF_VSOCK`` a program reaches the host of its virtual
  machine, and services of the machine that listen there, from any network namespace. Families
  beside the internet's, unix and netlink are answered as by a kernel that lacks them.
- **Limits and scheduling of the sandbox's first process**, which is of the same user: without
  descriptors or CPU time it would serve nobody, or break.
- **Ways past the filter**: io_uring opens sockets, calls of another architecture have other
  numbers. Neither is there.

Sources: vsock(7), prlimit(2), seccomp(2), ``<linux/audit.h>``, ``<asm/unistd.h>``.
"""

import errno
import os
import socket
import struct
from typing import NamedTuple

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Netlink is how programs list their interfaces; each namespace has its own."""
_FIRST_PROCESS = 1
_IO_URING_SETUP = 425
_X32_BIT = 0x40000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS, _ARGUMENT_BYTES = 0, 4, 16, 8
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Numbers(NamedTuple):
    """An architecture: the kernel's name of it, and its numbers of calls.

    ``scheduling``: sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr.
    """

    architecture: int
    socket: int
    prlimit: int
    scheduling: tuple[int, ...]


_MACHINES = {
    "x86_64": _Numbers(0xC000003E, 41, 302, (142, 144, 203, 314)),
    "aarch64": _Numbers(0xC00000B7, 198, 261, (118, 119, 122, 274)),
}


def call_filter(machine: str = "") -> bytes:
    """The filter's instructions (BPF); empty for a machine whose numbers are not known.

    Args:
        machine: As ``uname -m`` tells it; empty: this one.
    """
    numbers = _MACHINES.get(machine or os.uname().machine)
    if numbers is None:
        return b""
    steps = [
        _step(_LOAD, _AT_ARCHITECTURE),
        _step(_IF_EQUAL, numbers.architecture, yes=1),
        _ABSENT,
        _step(_LOAD, _AT_NUMBER),
        _step(_IF_AT_LEAST, _X32_BIT, no=1),
        _ABSENT,
        _step(_IF_EQUAL, _IO_URING_SETUP, no=1),
        _ABSENT,
        *_on(numbers.prlimit, _limits_of_others()),
    ]
    for number in numbers.scheduling:
        steps += _on(number, [_argument(0), _step(_IF_EQUAL, _FIRST_PROCESS, no=1), _REFUSE])
    return b"".join([*steps, *_on(numbers.socket, _sockets()), _PERMIT])


def _sockets() -> list[bytes]:
    """Permits the families that are confined."""
    steps = [_argument(0)]
    for family in FAMILIES:
        steps += [_step(_IF_EQUAL, family, no=1), _PERMIT]
    return [*steps, _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT)]


def _limits_of_others() -> list[bytes]:
    """Refuses to set limits of a process that is named; one's own are those of process 0."""
    return [
        _argument(0),
        _step(_IF_EQUAL, 0, yes=5),
        _argument(2),
        _step(_IF_EQUAL, 0, no=2),
        _argument(2, upper=True),
        _step(_IF_EQUAL, 0, yes=1),
        _REFUSE,
    ]


def _on(number: int, steps: list[bytes]) -> list[bytes]:
    """Decides one call: what ``steps`` let through is permitted."""
    return [_step(_IF_EQUAL, number, no=len(steps) + 1), *steps, _PERMIT]


def _argument(position: int, *, upper: bool = False) -> bytes:
    """Loads one half of an argument."""
    return _step(_LOAD, _AT_ARGUMENTS + _ARGUMENT_BYTES * position + 4 * upper)


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; a condition skips ``yes`` or ``no`` of those that follow."""
    return struct.pack("=HBBI", code, yes, no, value)


_ABSENT = _step(_RETURN, _ERRNO | errno.ENOSYS)
_REFUSE = _step(_RETURN, _ERRNO | errno.EPERM)
_PERMIT = _step(_RETURN, _ALLOW)
