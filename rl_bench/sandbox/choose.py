"""Which sandbox a run gets, decided on the machine where it runs."""

import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from rl_bench.config import SandboxConfig
from rl_bench.errors import SandboxError
from rl_bench.sandbox.base import Launch, Sandbox, View
from rl_bench.sandbox.bubblewrap import Bubblewrap
from rl_bench.sandbox.none import NoSandbox

log = logging.getLogger(__name__)
PROBE_LIMIT_S = 20.0
PROBE_PAUSES_S = (0.5, 2.0)
"""Before a probe that failed is tried again, unless what failed says that trying helps nothing."""
_FORBIDDEN = (
    "Operation not permitted",
    "Permission denied",
    "No permissions to creat",
    "does not support user namespaces",
    "Function not implemented",
    "Read-only file system",
    "Unknown option",
)
"""Words of bubblewrap's last line that tell of the kernel's rules or of a version too old: the
next try would end the same way."""
_ON_LIMIT = "max_*_namespaces exceeded"
_MAX_USER_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
_CURE = (
    "Install bubblewrap 0.8 or newer (apt-get install bubblewrap) where user namespaces are "
    "permitted (sysctl user.max_user_namespaces above 0; kernel.unprivileged_userns_clone=1 and "
    "kernel.apparmor_restrict_unprivileged_userns=0 where the kernel has them; in a container, one "
    "that may make them), or choose sandbox=none, which protects nothing"
)


_FAULT_CURE = (
    "Free memory, processes or the folder of temporary files, should the machine be short of them. "
    f"Else: {_CURE}"
)


class _ForbiddenError(SandboxError):
    """bubblewrap does not work here, and will not."""


def make_sandbox(config: SandboxConfig) -> Sandbox:
    """The sandbox that ``config`` names; bubblewrap is tried out until it was seen to work.

    Raises:
        SandboxError: It does not work here. With ``auto`` only where bubblewrap is installed and
            its failure may pass: no agent goes unconfined because the machine was busy.
    """
    if config.name == "none":
        return NoSandbox()
    found = find_bubblewrap()
    if isinstance(found, Bubblewrap):
        return Bubblewrap(
            program=found.program,
            version=found.version,
            max_processes=config.max_processes,
            max_memory_gib=config.max_memory_gib,
        )
    if config.name == "bwrap":
        raise SandboxError(f"bubblewrap does not work here: {found}", cure=_CURE)
    log.warning("sandbox=auto: bubblewrap does not work here (%s): agents are not confined", found)
    return NoSandbox(why=f"bubblewrap does not work here: {found}. {_CURE}")


def find_bubblewrap() -> Bubblewrap | str:
    """A bubblewrap that has been seen to work here, or why there can be none.

    Raises:
        SandboxError: It is installed and failed, again and again, in a way that may pass.
    """
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap is not on PATH"
    try:
        return _proven(program)
    except _ForbiddenError as error:
        return error.message


@cache
def _proven(program: str) -> Bubblewrap:
    """The bubblewrap, once it has worked; failures, being errors, are not remembered."""
    fault = ""
    for pause_s in (0.0, *PROBE_PAUSES_S):
        time.sleep(pause_s)
        try:
            return _tried(program)
        except _ForbiddenError:
            raise
        except (OSError, subprocess.SubprocessError, SandboxError) as error:
            fault = str(error)
            log.info("a try of bubblewrap failed: %s", fault)
    tries = 1 + len(PROBE_PAUSES_S)
    raise SandboxError(f"bubblewrap failed {tries} times: {fault}", cure=_FAULT_CURE)


def _tried(program: str) -> Bubblewrap:
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    sandbox = Bubblewrap(program=program, version=_version(said))
    problem = _try_out(sandbox)
    if _is_forbidden(problem):
        raise _ForbiddenError(problem)
    if problem:
        raise SandboxError(problem)
    return sandbox


def _is_forbidden(problem: str) -> bool:
    if _ON_LIMIT in problem:
        try:
            return int(_MAX_USER_NAMESPACES.read_text()) == 0
        except (OSError, ValueError):
            return False
    return any(words in problem for words in _FORBIDDEN)


def _version(said: str) -> str:
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else said.strip()


def _try_out(sandbox: Bubblewrap) -> str:
    """Starts ``true`` in it; what went wrong, or an empty string."""
    told, tell = os.pipe()
    try:
        with tempfile.TemporaryDirectory(prefix="rl_bench-sandbox-") as name:
            folder = Path(name).resolve()
            launch = sandbox.wrap(
                Launch(argv=("true",), env={"PATH": os.defpath}, cwd=folder),
                View(workspace=folder, home=folder, tmp=folder),
                status_fd=tell,
            )
            done = subprocess.run(
                launch.argv,
                env=launch.env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                pass_fds=(tell,),
                timeout=PROBE_LIMIT_S,
            )
    finally:
        os.close(tell)
        said = os.read(told, 4096)
        os.close(told)
    if b'"exit_code": 0' in said:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ended with code {done.returncode}"
