"""What a careless or malicious agent can leave behind: every answer comes, in time, and is true."""

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from rl_bench.checkpoint import inspect
from rl_bench.checkpoint_files import MAX_FILES
from rl_bench.clone import remove_tree
from rl_bench.errors import SubmissionError
from rl_bench.events import Note, SubmissionAccepted, SubmissionRejected
from rl_bench.local_server import HOST, MAX_CONNECTIONS, MAX_SPARE
from rl_bench.process.agent_process import tail
from tests.rl_bench.grading_scene import Scene, make_spec, submit, write_checkpoint

pytestmark = pytest.mark.timeout(60)

TERABYTE = 10**12


def header(text: bytes, *, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def sparse(path: Path, num_bytes: int = TERABYTE) -> None:
    with path.open("wb") as file:
        file.truncate(num_bytes)


def huge_shape(folder: Path) -> None:
    sizes = ",".join(["9" * 4000] * 2000)
    entry = f'{{"t":{{"dtype":"F32","shape":[{sizes}],"data_offsets":[0,4]}}}}'
    (folder / "model.safetensors").write_bytes(header(entry.encode()))


def unspeakable_tensor(folder: Path) -> None:
    entry = rb'{"\ud800":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'
    (folder / "model.safetensors").write_bytes(header(entry) + bytes(4))


def sparse_shard_beside_an_index(folder: Path) -> None:
    names = ("model.embed_tokens.weight", "model.norm.weight")
    weight_map = dict.fromkeys(names, "model.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    sparse(folder / "more.safetensors")


def index_out_of_the_folder(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../../../etc/passwd.safetensors"}}))


def many_files(folder: Path) -> None:
    for i in range(MAX_FILES + 1):
        (folder / f"{i}.txt").touch()


def unspeakable_name(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff\nx.safetensors")).touch()


def pipe_for_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


def loop_for_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("model.safetensors")


def socket_for_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket must be short
        try:
            listener.bind("model.safetensors")
        finally:
            os.chdir(here)


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return spoil


DEEP = b'{"a":' * 200_000
SPOILERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "deep config": (write("config.json", DEEP), "malformed_json"),
    "deep header": (write("model.safetensors", header(DEEP)), "malformed_header"),
    "deep tokenizer": (write("tokenizer.json", DEEP), "malformed_json"),
    "endless header": (
        write("model.safetensors", header(b"{}", length=2**63)),
        "malformed_header",
    ),
    "huge shape": (huge_shape, "malformed_header"),
    "unspeakable tensor": (unspeakable_tensor, "malformed_header"),
    "sparse weights": (lambda folder: sparse(folder / "model.safetensors"), "malformed_header"),
    "sparse config": (lambda folder: sparse(folder / "config.json"), "file_too_large"),
    "sparse template": (lambda folder: sparse(folder / "chat_template.jinja"), "file_too_large"),
    "sparse leftover": (lambda folder: sparse(folder / "notes.txt"), "file_too_large"),
    "sparse shard": (sparse_shard_beside_an_index, "stale_index"),
    "index outside": (index_out_of_the_folder, "malformed_index"),
    "many files": (many_files, "too_many_files"),
    "unspeakable name": (unspeakable_name, "stale_shard"),
    "pipe": (pipe_for_config, "no_config"),
    "loop": (loop_for_weights, "missing_shard"),
    "socket": (socket_for_weights, "missing_shard"),
}


@pytest.mark.parametrize("kind", SPOILERS)
def test_hostile_checkpoint_is_refused_at_once_and_leaves_nothing(
    kind: str, tmp_path: Path
) -> None:
    spoil, reason = SPOILERS[kind]
    with Scene(tmp_path, make_spec()).serving(baseline=False) as scene:
        path = scene.checkpoint("m", value=3)
        spoil(scene.workspace.root / path)
        started = time.monotonic()
        answer = submit(scene, path)
        assert time.monotonic() - started < 60, "under a second when the machine is quiet"
        assert answer.status_code == 422
        body = answer.json()
        assert body["message"]
        assert reason in (body["reason"], "missing_shard")
        assert len(scene.events(SubmissionRejected)) == 1
        assert not list((tmp_path / "snapshots").iterdir())


def test_hostile_leftovers_are_not_copied(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        path = scene.checkpoint("m", value=3)
        folder = scene.workspace.root / path
        sparse(folder / "optimizer.pt")
        sparse(folder / "consolidated.safetensors")
        (folder / "additional_chat_templates").mkdir()
        sparse(folder / "additional_chat_templates" / "x.safetensors")
        os.mkfifo(folder / "extra.json")
        assert submit(scene, path).json()["score"] == 3
        [snapshot] = (tmp_path / "snapshots").iterdir()
        assert sum(p.stat().st_size for p in snapshot.rglob("*") if p.is_file()) < 10_000


def test_output_folder_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving(baseline=False) as scene:
        os.mkfifo(scene.workspace.output / "m")
        answer = submit(scene, "output/m")
        assert (answer.status_code, answer.json()["reason"]) == (400, "not_a_folder")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def swollen(path: Path) -> None:
    path.chmod(0o644)
    sparse(path)


@pytest.mark.parametrize("obstacle", [pipe, device, swollen])
def test_files_that_would_block_or_never_end_are_tampering_not_a_hang(
    obstacle: Callable[[Path], None], tmp_path: Path
) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        root = scene.workspace.root
        obstacle(root / "scores.json")
        (root / "data").chmod(0o755)
        obstacle(root / "data" / "train.jsonl")
        scene.workspace.model.chmod(0o755)
        obstacle(scene.workspace.model / "tokenizer_config.json")

        assert submit(scene, scene.checkpoint("m", value=7)).json()["score"] == 7

        assert scene.workspace.tampered() == ("data/train.jsonl",)
        check = scene.workspace.verify_base()
        assert (check.original_intact, check.view_intact) == (True, False)
        notes = [e for e in scene.events(Note) if isinstance(e, Note) and e.topic == "tampering"]
        assert any("scores.json" in note.message for note in notes)
        assert json.loads((root / "scores.json").read_text())["best"]["score"] == 7


def test_output_log_that_is_a_pipe_has_no_tail(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    assert tail(tmp_path / "log") == ""


@pytest.mark.parametrize("gone", ["all", "code is a link to /", "code is a pipe"])
def test_agent_that_wrecks_its_workspace_keeps_its_scores(gone: str, tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        path = scene.checkpoint("m", value=7)
        code = scene.workspace.code
        if gone != "all":
            remove_tree(code)
            code.symlink_to("/") if "link" in gone else os.mkfifo(code)
        assert submit(scene, path).json()["score"] == 7
        remove_tree(scene.workspace.root)
        refused = submit(scene, path)
        assert refused.status_code == 400
        assert httpx.get(f"{scene.server.url}/scores").json()["best"]["score"] == 7
        assert len(scene.events(SubmissionAccepted)) == 1
        assert scene.workspace.tampered()
        assert not scene.workspace.verify_base().view_intact


def test_next_attempt_clears_a_tree_that_is_deeper_than_a_path_may_be(tmp_path: Path) -> None:
    top = tmp_path / "workspace"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deep", dir_fd=fd)
        deeper = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)

    remove_tree(top)

    assert not top.exists()


def raw(scene: Scene, data: bytes, *, limit_s: float = 10.0) -> bytes:
    with socket.create_connection((HOST, scene.server.port), timeout=limit_s) as connection:
        connection.sendall(data)
        answer = b""
        # Refused before all was read, the connection may end with a reset after the answer.
        with contextlib.suppress(ConnectionResetError):
            while block := connection.recv(65536):
                answer += block
        return answer


def test_hostile_http(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        token = scene.server.token.encode()
        assert b"200" in raw(scene, b"GET /%s/health HTTP/1.0\r\n\r\n" % token).split(b"\r\n")[0]
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01" + bytes(500),
            b"GET /%s/time HTTP/1.1\r\nHost: x\r\nX: " % token + b"a" * 200_000 + b"\r\n\r\n",
            b"POST /%s/submit HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n" % token,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ):
            status = raw(scene, garbage).split(b"\r\n")[0]
            assert not status or status.split(b" ")[1].startswith(b"4")
        slow = []
        for _ in range(50):
            connection = socket.create_connection((HOST, scene.server.port))
            connection.sendall(
                b"POST /%s/submit HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{" % token
            )
            slow.append(connection)
        assert submit(scene, scene.checkpoint("m", value=7)).json()["score"] == 7
        for connection in slow:
            connection.close()
        assert httpx.get(f"{scene.server.url}/health").status_code == 200
    topics = {note.topic for note in scene.events(Note) if isinstance(note, Note)}
    assert "grading_api_error" not in topics, "hanging up is no fault of ours"


def test_two_hundred_requests_at_once(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving() as scene:
        paths = [scene.checkpoint(f"m{i}", value=i) for i in range(4)] + ["nowhere"]
        with ThreadPoolExecutor(100) as pool:
            answers = list(pool.map(lambda i: submit(scene, paths[i % 5]), range(200)))
        by_code = [answer.status_code for answer in answers]
        assert by_code.count(200) == 160
        assert by_code.count(400) == 40
        assert len(scene.events(SubmissionAccepted)) == 4
        for i, answer in enumerate(answers):
            if i % 5 < 4:
                assert answer.json()["score"] == i % 5


def test_connections_that_ask_for_nothing_do_not_use_up_descriptors(tmp_path: Path) -> None:
    """Without a descriptor a run could neither see processes nor record code."""
    most = MAX_CONNECTIONS + MAX_SPARE
    with (
        Scene(tmp_path, make_spec()).serving(baseline=False) as scene,
        contextlib.ExitStack() as held,
    ):
        before = len(list(Path("/proc/self/fd").iterdir()))
        mine = [
            held.enter_context(socket.create_connection((HOST, scene.server.port), timeout=10))
            for _ in range(most + 200)
        ]
        ended = 0
        deadline = time.monotonic() + 20
        while ended < 200 and time.monotonic() < deadline:
            time.sleep(0.1)
            ended = sum(map(has_ended, mine))
        assert ended >= 200
        assert len(list(Path("/proc/self/fd").iterdir())) - before - len(mine) <= most
        for each in mine:
            each.close()
        time.sleep(0.5)
        assert httpx.get(f"{scene.server.url}/time", timeout=10).status_code == 200


def has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_duplicate_keys_have_one_reading(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    good = b'"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    (folder / "model.safetensors").write_bytes(header(b"{" + good + b"," + good + b"}") + bytes(4))
    with pytest.raises(SubmissionError) as caught:
        inspect(folder)
    assert caught.value.reason == "malformed_header"
