"""The run's services through the sandbox's wall: every byte, many at once, and their ends."""

import hashlib
import os
import socket
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from rl_bench.local_server import LocalServer
from rl_bench.sandbox.base import Forward
from tests.rl_bench.cage import Cage, finish, make_cage, wait_for

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cage(tmp_path: Path) -> Cage:
    return make_cage(tmp_path, "bwrap")


def run(cage: Cage, code: str, *forwards: Forward) -> list[str]:
    """The output lines of a program in the cage that is given ``forwards``."""
    argv = (sys.executable, "-c", textwrap.dedent(code))
    exit_ = finish(cage.start(*argv, forwards=forwards))
    assert exit_.exit_code == 0, cage.stderr.read_text()
    return cage.stdout.read_text().splitlines()


async def digest(request: Request) -> PlainTextResponse:
    seen, size = hashlib.sha256(), 0
    async for block in request.stream():
        seen.update(block)
        size += len(block)
    return PlainTextResponse(f"{size} {seen.hexdigest()}")


async def zeros(request: Request) -> StreamingResponse:
    size = int(request.query_params["size"])

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(size // 65536):
            yield bytes(65536)

    return StreamingResponse(blocks())


@contextmanager
def http_service(folder: Path) -> Iterator[tuple[LocalServer, Forward]]:
    path = folder / "s"
    server = LocalServer("test service", socket_path=path)
    routes = [Route("/digest", digest, methods=["POST"]), Route("/zeros", zeros)]
    try:
        server.start(Starlette(routes=routes))
        yield server, Forward(port=server.port, socket_path=path)
    finally:
        server.close()


def test_http_with_large_bodies_both_ways(cage: Cage, tmp_path: Path) -> None:
    with http_service(tmp_path) as (server, forward):
        code = f"""
            import hashlib, os, urllib.request
            base = "http://127.0.0.1:{server.port}"
            body = os.urandom(1 << 20) * 50
            reply = urllib.request.urlopen(urllib.request.Request(base + "/digest", data=body))
            print(reply.read().decode() == f"{{len(body)}} {{hashlib.sha256(body).hexdigest()}}")
            print(len(urllib.request.urlopen(base + "/zeros?size=52428800").read()))
        """
        assert run(cage, code, forward) == ["True", "52428800"]


def test_a_hundred_connections_at_once(cage: Cage, tmp_path: Path) -> None:
    with http_service(tmp_path) as (server, forward):
        code = f"""
            import hashlib, threading, urllib.request
            from concurrent.futures import ThreadPoolExecutor
            together = threading.Barrier(100)
            def ask(number):
                body = str(number).encode() * 20_000
                together.wait()
                url = "http://127.0.0.1:{server.port}/digest"
                reply = urllib.request.urlopen(urllib.request.Request(url, data=body)).read()
                return reply.decode() == f"{{len(body)}} {{hashlib.sha256(body).hexdigest()}}"
            with ThreadPoolExecutor(100) as pool:
                print(sum(pool.map(ask, range(100))))
        """
        assert run(cage, code, forward) == ["100"]


@contextmanager
def raw_service(
    folder: Path, serve: Callable[[socket.socket], None], *, port: int = 4000
) -> Iterator[Forward]:
    """A unix socket whose connections ``serve`` gets, one after the other."""
    path = folder / f"{port}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield Forward(port=port, socket_path=path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while block := connection.recv(65536):
        data += block
    return data


def test_a_side_that_has_said_all_still_hears(cage: Cage, tmp_path: Path) -> None:
    def answer_at_the_end(connection: socket.socket) -> None:
        connection.sendall(b"heard " + read_all(connection))

    code = """
        import socket
        with socket.create_connection(("127.0.0.1", 4000)) as sock:
            sock.sendall(b"all of it")
            sock.shutdown(socket.SHUT_WR)
            print(sock.makefile().read())
    """
    with raw_service(tmp_path, answer_at_the_end) as forward:
        assert run(cage, code, forward) == ["heard all of it"]


def test_a_service_that_has_said_all_still_hears(cage: Cage, tmp_path: Path) -> None:
    heard: list[bytes] = []

    def greet_and_listen(connection: socket.socket) -> None:
        connection.sendall(b"hello")
        connection.shutdown(socket.SHUT_WR)
        heard.append(read_all(connection))

    code = """
        import socket, time
        with socket.create_connection(("127.0.0.1", 4000)) as sock:
            print(sock.makefile().read())
            sock.sendall(b"x" * 1_000_000)
        time.sleep(2)  # what is still under way when a program ends may end with it
    """
    with raw_service(tmp_path, greet_and_listen) as forward:
        assert run(cage, code, forward) == ["hello"]
        assert wait_for(lambda: heard == [b"x" * 1_000_000])


def test_a_slow_reader_holds_nobody_up_and_fills_no_memory(cage: Cage, tmp_path: Path) -> None:
    sent, sent_to_the_idle = [], []

    def flood(connection: socket.socket) -> None:
        for _ in range(200):
            connection.sendall(b"x" * 100_000)
            sent.append(100_000)

    def echo(connection: socket.socket) -> None:
        time.sleep(0.5)  # time to take all that there is room for
        sent_to_the_idle.append(sum(sent))
        connection.sendall(connection.recv(100))

    code = """
        import socket
        slow = socket.create_connection(("127.0.0.1", 4000))
        with socket.create_connection(("127.0.0.1", 4001)) as quick:
            quick.sendall(b"quick")
            print(quick.recv(100).decode())
        print(len(slow.makefile("rb").read()))
    """
    first, second = raw_service(tmp_path, flood), raw_service(tmp_path, echo, port=4001)
    with first as forward, second as other:
        assert run(cage, code, forward, other) == ["quick", "20000000"]
    assert 0 < sent_to_the_idle[0] < 15_000_000


def test_a_side_that_breaks_off_does_not_look_like_an_end(cage: Cage, tmp_path: Path) -> None:
    def answer_a_part(connection: socket.socket) -> None:
        connection.sendall(b"half of the")
        time.sleep(0.3)
        # Unread input makes the end a reset, as a process that is killed does.

    code = """
        import socket
        with socket.create_connection(("127.0.0.1", 4000)) as sock:
            sock.sendall(b"question" * 10)
            try:
                while sock.recv(100):
                    pass
                print("an end")
            except ConnectionResetError:
                print("broken off")
    """
    with raw_service(tmp_path, answer_a_part) as forward:
        assert run(cage, code, forward) == ["broken off"]


def test_a_service_that_is_gone_resets(cage: Cage, tmp_path: Path) -> None:
    with raw_service(tmp_path, lambda connection: None) as forward:
        pass
    code = """
        import socket
        for _ in range(3):
            try:
                with socket.create_connection(("127.0.0.1", 4000)) as sock:
                    sock.sendall(b"anyone?")
                    assert sock.recv(1)
            except ConnectionResetError:
                print("reset")
    """
    assert run(cage, code, forward) == ["reset"] * 3


def test_children_that_are_waited_for_reach_it_too(cage: Cage, tmp_path: Path) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"hello\n")

    code = """
        import os, socket, time
        if os.fork() == 0:
            time.sleep(1)
            print(socket.create_connection(("127.0.0.1", 4000)).makefile().read(), end="")
    """
    with raw_service(tmp_path, greet) as forward:
        argv = (sys.executable, "-c", textwrap.dedent(code))
        exit_ = finish(cage.start(*argv, forwards=(forward,), on_live_children="wait"))
    assert exit_.exit_code == 0
    assert exit_.num_live_children == 1
    assert cage.stdout.read_text() == "hello\n"


def test_others_of_the_runs_folder_are_not_reached(cage: Cage, tmp_path: Path) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"hello")

    first, second = raw_service(tmp_path, greet), raw_service(tmp_path, greet, port=4001)
    with first as forward, second as other:
        code = f"""
            import socket
            with socket.socket() as sock:
                print(sock.connect_ex(("127.0.0.1", 4001)) != 0)
            with socket.socket(socket.AF_UNIX) as sock:
                print(sock.connect_ex({str(other.socket_path)!r}) != 0)
            print(socket.create_connection(("127.0.0.1", 4000)).recv(5).decode())
        """
        assert run(cage, code, forward) == ["True", "True", "hello"]
