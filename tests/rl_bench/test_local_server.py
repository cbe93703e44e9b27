"""The server of one run's agent at its end: whoever asked it is answered or turned away."""

import socket
import threading
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Server

from rl_bench.errors import WorkspaceError
from rl_bench.local_server import HOST, LocalServer

ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})


def client_of(server: LocalServer) -> socket.socket:
    client = socket.create_connection((HOST, server.port), timeout=20)
    client.sendall(ASKED)
    return client


def is_over(client: socket.socket) -> bool:
    """Reads to the end, or until the server turns the client away; waiting for it raises."""
    try:
        while client.recv(2**20):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_client_that_comes_as_the_server_ends_is_not_left_waiting() -> None:
    server = LocalServer("test").start(endless)
    reached, may_go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        reached.set()
        may_go_on.wait(20)

    holding = threading.Thread(target=lambda: server.run(hold()))
    closing = threading.Thread(target=server.close)
    holding.start()
    assert reached.wait(20)
    with client_of(server) as client:
        closing.start()
        closing.join(0.2)  # its order waits for the loop, as the client does
        may_go_on.set()
        closing.join()
        assert is_over(client)
    holding.join()


def test_an_answer_without_an_end_is_broken_off() -> None:
    server = LocalServer("test").start(endless)
    with client_of(server) as client:
        assert client.recv(1)
        server.close()  # the client reads nothing meanwhile
        assert is_over(client)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_cannot_start_keeps_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Server, sockets: list[socket.socket] | None = None) -> None:
        raise OSError("no")

    monkeypatch.setattr(Server, "startup", fail)
    path = tmp_path / "socket"
    server = LocalServer("test", socket_path=path)
    with pytest.raises(WorkspaceError, match="did not start"):
        server.start(endless)
    assert not path.exists()
    with socket.socket() as other:
        other.bind((HOST, server.port))
