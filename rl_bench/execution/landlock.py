"""Landlock: a process gives up every file but those it names, for good and without privileges.

Source: landlock(7), ``<linux/landlock.h>``; Linux 5.13 or later. What Landlock does not govern
(modes and owners of files, sockets, signals) the filter of `seccomp` refuses.
"""

import ctypes
import os
from pathlib import Path

from rl_bench.execution import libc
from rl_bench.execution.interpreter import InterpreterFiles

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_RIGHTS_BY_VERSION = ((1, 13), (2, 14), (3, 15), (5, 16))
"""From which version on the kernel knows how many rights."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict_to(files: InterpreterFiles) -> None:
    """Leaves this process ``files`` to read and execute; needs ``no_new_privs``.

    Raises:
        OSError: The kernel has no Landlock, or it is off.
    """
    version = libc.syscall(_CREATE_RULESET, 0, 0, _ASK_VERSION)
    num_rights = max(num for since, num in _RIGHTS_BY_VERSION if since <= version)
    rules = _Ruleset(handled_access_fs=(1 << num_rights) - 1)
    ruleset = libc.syscall(_CREATE_RULESET, rules, ctypes.sizeof(rules), 0)
    for folder in files.shared:
        # A rule holds for all below: a folder that holds installed packages is given file by file.
        if not any(path.is_relative_to(folder) for path in (files.library, *files.packages)):
            _allow(ruleset, folder, _EXECUTE | _READ_FILE | _READ_FOLDER)
    for path in (files.executable, *files.shared_files, *files.library_entries):
        more = _READ_FOLDER if path.is_dir() else 0
        _allow(ruleset, path, _EXECUTE | _READ_FILE | more)
    _allow(ruleset, files.library, _READ_FOLDER)  # the import system lists it
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _PathRule(allowed_access=rights, parent_fd=fd)
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(fd)
