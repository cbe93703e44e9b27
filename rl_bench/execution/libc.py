"""Kernel calls that Python 3.11 has no function for. Each raises `OSError` when refused.

Numbers and constants are those of Linux on x86-64 (``<asm/unistd_64.h>``, ``<linux/sched.h>``,
``<linux/mount.h>``, ``<linux/prctl.h>``).
"""

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38

_SYS_CLONE = 56
_SYS_PIVOT_ROOT = 155
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_MOUNT_ATTR_NOSUID = 0x2

# PyDLL keeps Python's lock during a call: a cloned child must not wait for a thread it lacks.
_libc = ctypes.PyDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def syscall(number: int, *args: object) -> int:
    """Calls the kernel; whole numbers are passed as longs, bytes and structures by address."""
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_argument, args)))


def clone(flags: int) -> int:
    """Forks into new namespaces; 0 in the child, whose caller must execute a program or exit."""
    return syscall(_SYS_CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mounts; the arguments are those of the manual's section 2."""
    texts = [text.encode() for text in (source, target, kind)]
    _checked(_libc.mount(*texts, ctypes.c_ulong(flags), options.encode()))


def pivot_into(root: str) -> None:
    """Makes the mount point ``root`` the root of the file system and lets go of the old one."""
    os.chdir(root)
    # Old and new root at one place; the old one then lies on top and is detached (pivot_root(2)).
    syscall(_SYS_PIVOT_ROOT, b".", b".")
    _checked(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)))
    os.chdir("/")


def make_read_only(path: str) -> None:
    """Makes the mount at ``path`` and all below it read-only and blind to set-uid bits."""
    attributes = _MountAttr(set=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID)
    size = ctypes.sizeof(attributes)
    syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, attributes, size)


def prctl(option: int, value: object, *others: object) -> None:
    """Sets an attribute of this process; the arguments are those of the manual's section 2."""
    padded = (*others, 0, 0, 0)[:3]
    _checked(_libc.prctl(ctypes.c_int(option), _argument(value), *map(_argument, padded)))


def _argument(value: object) -> object:
    if isinstance(value, int):
        return ctypes.c_long(value)
    return ctypes.byref(value) if isinstance(value, ctypes.Structure) else value


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
