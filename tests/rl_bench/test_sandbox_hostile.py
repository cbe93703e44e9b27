"""What an agent does to its sandbox from within: it stays shut, and stays up."""

import json
import selectors
import shutil
import socket
import struct
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from rl_bench.config import SandboxConfig
from rl_bench.errors import SandboxError
from rl_bench.sandbox import inside
from rl_bench.sandbox.base import Launch
from rl_bench.sandbox.call_filter import call_filter
from rl_bench.sandbox.choose import make_sandbox
from tests.rl_bench.cage import ENV, Cage, countdown, finish, make_cage, wait_for
from tests.rl_bench.test_sandbox_forward import http_service

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    return make_cage(tmp_path, "bwrap")


@pytest.mark.parametrize("name", [".tmp", "data", "models"])
def test_a_link_for_the_next_session_cannot_be_planted(
    cage: Cage, tmp_path: Path, name: str
) -> None:
    """Bubblewrap follows a link outside: /tmp would be whatever folder it leads to."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "items").write_text("evaluation")
    script = f"mv {name} away; rm -rf {name}; rmdir {name}; ln -sfn {secret} {name}; true"
    cage.run_to_end("bash", "-c", script)
    again = cage.run_to_end("bash", "-c", "cat /tmp/items; echo x > /tmp/mine; ls /tmp data models")
    assert "evaluation" not in again
    assert [path.name for path in secret.iterdir()] == ["items"]
    assert (cage.workspace / name).is_dir()
    assert not (cage.workspace / name).is_symlink()


@pytest.mark.parametrize("name", [".tmp", "data"])
def test_a_link_that_is_there_all_the_same_is_refused(
    cage: Cage, tmp_path: Path, name: str
) -> None:
    shutil.rmtree(cage.workspace / name)
    (cage.workspace / name).symlink_to(tmp_path)
    launch = Launch(argv=("true",), env=ENV, cwd=cage.workspace)
    with pytest.raises(SandboxError, match="link"):
        make_sandbox(SandboxConfig(name="bwrap")).wrap(launch, cage.view())


def test_killing_and_stopping_all_that_is_seen(cage: Cage) -> None:
    script = "for s in STOP KILL TERM INT HUP SEGV; do kill -$s 1; done; kill -9 -1"
    exit_ = finish(cage.start("bash", "-c", f"sleep 60 & {script}; echo never"))
    assert not exit_.sandbox_error
    assert exit_.exit_code in (0, -9)
    # bash itself is spared by its own ``kill -1``, and what is left is the agent's.


def test_a_stopped_agent_ends_at_its_deadline(cage: Cage) -> None:
    agent = cage.start("bash", "-c", "kill -STOP $$")
    exit_ = agent.wait(remaining_s=countdown(1.0), grace_s=0.3)
    assert exit_.deadline
    assert exit_.killed
    assert exit_.wall_s < 40


FLOOD = """
import os, socket, sys, time, urllib.request
base = "http://127.0.0.1:{port}"
held = []
for _ in range(1500):
    try:
        held.append(socket.create_connection(("127.0.0.1", {port}), timeout=5))
    except OSError:
        pass
print(len(held) > 1000)
for each in held:
    each.close()
for _ in range(100):
    try:
        print(len(urllib.request.urlopen(base + "/zeros?size=131072").read()))
        break
    except OSError:
        time.sleep(0.1)
"""


def test_a_flood_of_connections_breaks_nothing(cage: Cage, tmp_path: Path) -> None:
    """A sandbox that broke would be infrastructure's failure: a way to a second attempt."""
    with http_service(tmp_path) as (server, forward):
        argv = (sys.executable, "-c", FLOOD.format(port=server.port))
        exit_ = finish(cage.start(*argv, forwards=(forward,)))
    assert not exit_.sandbox_error
    assert exit_.exit_code == 0, cage.stderr.read_text()
    assert cage.stdout.read_text().split() == ["True", "131072"]


def test_what_floods_the_output_holds_up_neither_services_nor_the_end(
    cage: Cage, tmp_path: Path
) -> None:
    code = """
        import subprocess, sys, time, urllib.request
        for _ in range(3):
            subprocess.Popen(["dd", "if=/dev/zero", "bs=1M"], stderr=subprocess.DEVNULL)
        began = time.monotonic()
        urllib.request.urlopen("http://127.0.0.1:{port}/zeros?size=65536", timeout=20).read()
        open("code/waited", "w").write(str(time.monotonic() - began))
        sys.exit(3)
    """
    with http_service(tmp_path) as (server, forward):
        code = textwrap.dedent(code).replace("{port}", str(server.port))
        agent = cage.start(sys.executable, "-c", code, forwards=(forward,), on_live_children="wait")
        assert wait_for(lambda: agent.poll() is not None or agent.has_exited, limit_s=20)
        exit_ = agent.stop(grace_s=0.1)
    assert exit_.exit_code == 3
    assert exit_.num_live_children == 3
    assert float((cage.code / "waited").read_text()) < 10


def test_output_stays_bounded_while_the_agent_has_its_grace(cage: Cage) -> None:
    """In a grace of half a minute a deaf writer could fill a disk."""
    script = "trap '' TERM; while :; do head -c 5M /dev/zero; sleep 0.02; done"
    agent = cage.start("bash", "-c", script)
    stopped = threading.Thread(target=agent.stop, kwargs={"grace_s": 4.0})
    stopped.start()
    largest = 0
    while stopped.is_alive():
        largest = max(largest, cage.stdout.stat().st_size)
        time.sleep(0.02)
    # The limit is 64 MiB, and some pieces may come between two looks.
    assert 20 * 1024 * 1024 < largest < 110 * 1024 * 1024


def test_a_connection_whose_sides_end_in_one_batch_is_closed_once() -> None:
    """Both sides are ready in one batch, and the first of them breaks the connection off."""
    loop = selectors.DefaultSelector()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outer = socket.create_connection(listener.getsockname())
        client = listener.accept()[0]
    service, provider = socket.socketpair()
    inside.Connection(loop, client, service)
    num_open = inside.Connection.num_open
    provider.sendall(b"x" * 1000)
    outer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    outer.close()
    ready = loop.select(timeout=5)
    assert len(ready) == 2
    for key, events in sorted(ready, key=lambda item: item[0].fileobj is not client):
        key.data(events)
    assert inside.Connection.num_open == num_open - 1
    assert not loop.get_map()
    provider.close()
    loop.close()


def test_what_cannot_be_watched_is_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loop = selectors.DefaultSelector()
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(path))
        service.listen()
        door = inside.Door(loop, 0, str(path))
        [key] = loop.get_map().values()
        assert isinstance(key.fileobj, socket.socket)
        client = socket.create_connection(key.fileobj.getsockname())
        monkeypatch.setattr(inside, "MAX_CONNECTIONS", inside.Connection.num_open)
        door._accept(0)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        client.close()
        key.fileobj.close()
    loop.close()


FAMILIES = """
import ctypes, errno, json, socket
told = {}
for name in ("AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_VSOCK", "AF_ALG", "AF_PACKET"):
    try:
        socket.socket(getattr(socket, name), socket.SOCK_DGRAM).close()
        told[name] = "opened"
    except OSError as error:
        told[name] = errno.errorcode[error.errno]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(425, 1, ctypes.create_string_buffer(120))
told["io_uring"] = errno.errorcode[ctypes.get_errno()]
print(json.dumps(told))
"""


def test_only_sockets_that_the_namespace_confines_can_be_opened(cage: Cage) -> None:
    """By others, e.g. vsock, the host of a virtual machine is reached from any namespace."""
    if not call_filter():
        pytest.skip("no filter for this machine's processor")
    told = json.loads(cage.run_to_end(sys.executable, "-c", FAMILIES))
    assert {name for name, result in told.items() if result == "opened"} == {
        *("AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK")
    }
    assert told["AF_VSOCK"] == told["AF_ALG"] == told["AF_PACKET"] == "EAFNOSUPPORT"
    assert told["io_uring"] == "ENOSYS"


STRANGLE = """
import errno, os, resource, subprocess, sys
told = []
def attempt(act):
    try:
        act()
        told.append("done")
    except OSError as error:
        told.append(errno.errorcode[error.errno])
for kind in ("NOFILE", "AS", "CPU", "FSIZE"):
    attempt(lambda: resource.prlimit(1, getattr(resource, "RLIMIT_" + kind), (0, 0)))
attempt(lambda: os.sched_setaffinity(1, {0}))
attempt(lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
print(*told)
resource.prlimit(1, resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_first_process_cannot_be_strangled(cage: Cage) -> None:
    if not call_filter():
        pytest.skip("no filter for this machine's processor")
    lines = cage.run_to_end(sys.executable, "-c", STRANGLE).splitlines()
    assert set(lines[0].split()) == {"EPERM"}
    assert lines[1] == "(64, 64)"


def test_a_processor_that_is_not_known_gets_no_filter() -> None:
    assert call_filter("sparc64") == b""
    assert len(call_filter("aarch64")) == len(call_filter("x86_64"))
    assert call_filter("aarch64") != call_filter("x86_64")
