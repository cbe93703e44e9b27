"""The grading API as a server: what it listens on, and what it answers to what is no submission."""

import ipaddress
import socket
import time
from pathlib import Path

import httpx
import psutil
import pytest

from rl_bench.events import (
    Note,
    SubmissionAccepted,
    SubmissionRejected,
)
from rl_bench.grading_api import GradingServer
from rl_bench.local_server import HOST
from tests.rl_bench.grading_scene import Scene, get, make_spec, submit


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 60_000, 400),
        (b'{"model_path": 3}', 400),
        (b'{"path": "output"}', 400),
        (b'{"model_path": "output", "task": 7}', 400),
        (b'{"model_path": "\xff"}', 400),
        (b'{"model_path": "' + b"x" * 70_000 + b'"}', 413),
    ],
)
def test_malformed_requests(tmp_path: Path, content: bytes, status: int) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        reply = httpx.post(f"{scene.server.url}/submit", content=content)
        assert get(scene, "health").json() == {"status": "ok"}
    assert reply.status_code == status
    assert reply.json()["message"]


def test_endless_body_is_cut_off(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        chunks = (b"x" * 10_000 for _ in range(1000))
        try:
            status = httpx.post(f"{scene.server.url}/submit", content=chunks).status_code
        except httpx.WriteError:
            status = 413
        assert status == 413
        assert get(scene, "health").status_code == 200


def test_bad_checkpoint_is_refused_with_its_file(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        adapter = scene.workspace.output / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text("{}")
        cut = scene.workspace.root / scene.checkpoint("cut", value=1) / "model.safetensors"
        cut.write_bytes(cut.read_bytes()[:-4])
        refused = submit(scene, "output/adapter"), submit(scene, "output/cut")
        good = submit(scene, scene.checkpoint("good", value=2)).json()
    assert [reply.status_code for reply in refused] == [422, 422]
    assert refused[0].json()["reason"] == "adapter_only"
    assert "merge" in refused[0].json()["cure"]
    assert refused[1].json()["file"] == "model.safetensors"
    assert good["submission_id"] == 1
    assert not any((tmp_path / "snapshots").glob(".draft*"))
    reasons = [event.reason for event in scene.events(SubmissionRejected)]
    assert reasons == ["adapter_only", "truncated_shard"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "{token}/set_baseline"),
        ("POST", "{token}/scores"),
        ("DELETE", "{token}/submissions/1"),
        ("GET", "{token}/docs"),
        ("GET", "docs"),
        ("GET", "openapi.json"),
        ("POST", "submit"),
        ("POST", "wrong-token/submit"),
        ("GET", "ключ/scores"),
        ("GET", ""),
    ],
)
def test_everything_else_is_not_found_and_noted(tmp_path: Path, method: str, path: str) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        token = scene.server.token
        url = f"http://{HOST}:{scene.server.port}/{path.format(token=token)}"
        reply = httpx.request(method, url)
    assert reply.status_code == 404
    (note,) = scene.events(Note)
    assert isinstance(note, Note)
    assert note.topic == "unknown_request"
    assert token not in note.message


def test_neighbours_token_opens_nothing(tmp_path: Path) -> None:
    one, two = Scene(tmp_path / "1", make_spec()), Scene(tmp_path / "2", make_spec())
    with one.serving(), two.serving():
        url = f"http://{HOST}:{two.server.port}/{one.server.token}/scores"
        assert httpx.get(url).status_code == 404


def test_listens_on_loopback_only(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        listening = [
            connection.laddr
            for connection in psutil.Process().net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert (HOST, scene.server.port) in listening
        assert all(_is_loopback(address) for address, _ in listening), listening


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def test_answers_on_a_unix_socket_as_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path, make_spec())
    path = tmp_path / "grading.sock"
    with GradingServer(scene.desk, socket_path=path) as server:
        assert path.stat().st_mode & 0o777 == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get(f"{server.url}/health").json() == {"status": "ok"}
    assert not path.exists()
    scene.close()


def test_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    scene = Scene(tmp_path, make_spec())
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        server = GradingServer(scene.desk, port=other.getsockname()[1])
        with server:
            assert server.port != other.getsockname()[1]
            assert httpx.get(f"{server.url}/health").status_code == 200
    server.close()
    scene.close()


def test_stopping_does_not_wait_for_idle_clients(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        client = httpx.Client()
        client.get(f"{scene.server.url}/health")
        begin = time.monotonic()
    assert time.monotonic() - begin < 30
    client.close()


def test_a_fault_of_the_api_is_not_the_agents_and_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("surprise")

    with Scene(tmp_path, make_spec()).serving() as scene:
        monkeypatch.setattr(scene.desk, "times", fail)
        reply = get(scene, "time")
        assert get(scene, "health").status_code == 200
    assert (reply.status_code, reply.json()["reason"]) == (503, "internal_error")
    assert int(reply.headers["Retry-After"]) > 0
    (note,) = scene.events(Note)
    assert isinstance(note, Note)
    assert (note.topic, note.message) == ("grading_api_error", "RuntimeError: surprise")


def test_a_request_that_breaks_off_submits_nothing(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        body = f'{{"model_path": "{scene.checkpoint("one", value=9)}"}}'.encode()
        head = f"POST /{scene.server.token}/submit HTTP/1.1\r\nHost: x\r\n"
        with socket.create_connection((HOST, scene.server.port)) as client:
            client.sendall(f"{head}Content-Length: {len(body) + 1}\r\n\r\n".encode() + body)
        assert get(scene, "health").status_code == 200
        assert get(scene, "scores").json()["total_submissions"] == 0
    assert not scene.events(SubmissionAccepted, SubmissionRejected)
