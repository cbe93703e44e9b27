"""Any folder that is submitted is stored as something loadable, or refused by name and reason."""

import json
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from rl_bench.checkpoint import weight_files
from rl_bench.checkpoint_files import MAX_JSON_BYTES
from rl_bench.errors import SubmissionError
from rl_bench.events import SubmissionRejected
from rl_bench.grading_desk import MAX_MESSAGE_CHARS
from rl_bench.models.tiny import build_tiny
from rl_bench.safetensors_header import MAX_HEADER_BYTES
from rl_bench.submission import SubmissionStore
from tests.adversarial.bounds import FEW, MANY
from tests.rl_bench.grading_scene import Scene, make_spec, write_checkpoint

INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00001.safetensors"
JSON_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10)
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["F32", "\ud800", "\0", "", "../x", SHARD, "a" * 300 + ".safetensors"])
    | st.text(max_size=8)
)
JSON = st.recursive(
    JSON_LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
HEADER_KEYS = st.sampled_from(
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "__metadata__",
        "lm_head.weight",
        "x",
        "\ud800",
    ]
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "F4", "I8"]) | JSON,
        "shape": st.lists(st.integers(0, 5), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(0, 60), min_size=2, max_size=2) | JSON,
    },
)


class Place:
    """A base model and an agent's workspace with one submission in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        workspace = root / "run" / "workspace"
        self.folder = write_checkpoint(workspace / "output" / "m", value=1.0)
        base = write_checkpoint(root / "base")
        self.store = SubmissionStore(root / "snapshots", workspace=workspace, base_model=base)

    def take(self) -> SubmissionError | None:
        """Submits it: None when it was stored, and then its tensors can be read."""
        try:
            snapshot = self.store.take("output/m")
        except SubmissionError as error:
            return self._told(error)
        for file in weight_files(snapshot.folder):
            with safe_open(file, framework="np") as tensors:
                for name in tensors.keys():  # noqa: SIM118  it is no mapping
                    tensors.get_tensor(name)
        return None

    def _told(self, error: SubmissionError) -> SubmissionError:
        assert not list((self.root / "snapshots").iterdir())
        assert error.reason
        assert error.file
        assert error.cure
        return error


def submit(spoil: Callable[[Path], object]) -> SubmissionError | None:
    with tempfile.TemporaryDirectory() as root:
        place = Place(Path(root))
        spoil(place.folder)
        return place.take()


def header_of(file: Path) -> tuple[bytes, bytes]:
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return data[8 : 8 + length], data[8 + length :]


def put_header(folder: Path, text: bytes, *, data: bytes | None = None) -> None:
    file = folder / "model.safetensors"
    rest = header_of(file)[1] if data is None else data
    file.write_bytes(struct.pack("<Q", len(text)) + text + rest)


def shard(folder: Path) -> dict[str, str]:
    """Makes the folder one of a single shard and an index; the index's weight map."""
    names = json.loads(header_of(folder / "model.safetensors")[0])
    (folder / "model.safetensors").rename(folder / SHARD)
    return {name: SHARD for name in names if name != "__metadata__"}


@MANY
@given(st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_bytes_anywhere_in_a_weight_file(offset: int, patch: bytes) -> None:
    def spoil(folder: Path) -> None:
        file = folder / "model.safetensors"
        data = bytearray(file.read_bytes())
        at = offset % len(data)
        data[at : at + len(patch)] = patch
        file.write_bytes(data)

    submit(spoil)


@MANY
@given(st.dictionaries(HEADER_KEYS, ENTRY | JSON, max_size=4), st.integers(0, 80))
def test_any_header_of_json(header: dict[str, object], num_bytes: int) -> None:
    submit(lambda folder: put_header(folder, json.dumps(header).encode(), data=bytes(num_bytes)))


def test_a_weight_file_that_is_cut_at_any_byte() -> None:
    with tempfile.TemporaryDirectory() as root:
        place = Place(Path(root))
        file = place.folder / "model.safetensors"
        whole = file.read_bytes()
        for size in range(len(whole)):
            file.write_bytes(whole[:size])
            error = place.take()
            assert error is not None, size
            assert (error.reason, error.file) == ("truncated_shard", file.name)
        file.write_bytes(whole)
        assert place.take() is None


@MANY
@given(st.dictionaries(HEADER_KEYS, JSON, max_size=3), st.booleans())
def test_any_index(extra: dict[str, object], is_whole: bool) -> None:
    def spoil(folder: Path) -> None:
        weight_map = {**(shard(folder) if is_whole else {}), **extra}
        (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))

    submit(spoil)


@MANY
@given(
    st.sampled_from(["config.json", "tokenizer.json", "tokenizer_config.json", INDEX]),
    JSON
    | st.dictionaries(
        st.sampled_from(
            [
                "architectures",
                "model_type",
                "vocab_size",
                "tie_word_embeddings",
                "model",
                "vocab",
                "added_tokens",
                "chat_template",
                "tokenizer_class",
                "weight_map",
            ]
        ),
        JSON,
    ),
    st.booleans(),
)
def test_any_json_in_place_of_a_file(name: str, content: object, keeps: bool) -> None:
    def spoil(folder: Path) -> None:
        file = folder / name
        if keeps and isinstance(content, dict) and file.exists():
            file.write_text(json.dumps(json.loads(file.read_text()) | content))
        else:
            file.write_text(json.dumps(content))

    submit(spoil)


@FEW
@given(st.sampled_from(["config.json", "tokenizer.json", "model.safetensors", INDEX]), st.binary())
def test_any_bytes_in_place_of_a_file(name: str, content: bytes) -> None:
    error = submit(lambda folder: (folder / name).write_bytes(content))

    assert error is not None


def test_a_header_that_bites_a_real_checkpoint(tmp_path: Path) -> None:
    """Every entry of a real model's header, left out once: refused, and told of."""
    base = build_tiny(tmp_path / "base")
    workspace = tmp_path / "run" / "workspace"
    folder = build_tiny(workspace / "output" / "m")
    store = SubmissionStore(tmp_path / "snapshots", workspace=workspace, base_model=base)
    assert store.take("output/m").unchanged
    header, data = header_of(folder / "model.safetensors")
    entries = json.loads(header)
    for name in list(entries)[1:6]:
        kept = {key: value for key, value in entries.items() if key != name}
        put_header(folder, json.dumps(kept).encode(), data=data)
        with pytest.raises(SubmissionError) as caught:
            store.take("output/m")
        assert caught.value.file == "model.safetensors"


def test_what_takes_memory_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    file = place.folder / "model.safetensors"
    text = b'{"__metadata__":[' + b"{}," * (MAX_HEADER_BYTES // 3) + b"{}]}"
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    error = place.take()
    assert error is not None
    assert error.reason == "malformed_header"

    shard(write_checkpoint(place.folder, value=1.0))
    half = MAX_HEADER_BYTES * 2 // 3
    names = {}
    for number in range(2):
        names[f"x{number}"] = f"s{number}.safetensors"
        with (place.folder / f"s{number}.safetensors").open("wb") as stream:
            stream.write(struct.pack("<Q", half))
            stream.truncate(8 + half)
    (place.folder / SHARD).unlink()
    (place.folder / INDEX).write_text(json.dumps({"weight_map": names}))
    error = place.take()
    assert error is not None
    assert (error.reason, error.file) == ("malformed_header", "s1.safetensors")

    (place.folder / INDEX).write_bytes(b" " * (MAX_JSON_BYTES + 1))
    error = place.take()
    assert error is not None
    assert error.reason == "file_too_large"


SECRETS = {
    "config.json": json.dumps(
        {"architectures": ["a secret word"], "model_type": "secret"}
    ).encode(),
    "tokenizer.json": b'{"model": {"vocab": {"secret": 99}}}',
    "model.safetensors": b"secret bytes of a key",
    INDEX: b'{"weight_map": {"a secret": "secret.safetensors"}}',
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_link_out_tells_nothing_of_what_it_leads_to(tmp_path: Path, name: str) -> None:
    place = Place(tmp_path)
    if name == INDEX:
        shard(place.folder)
    secret = tmp_path / "truth"
    answers = set()
    for content in (SECRETS[name], b"", None, "folder", "pipe"):
        if secret.is_dir():
            secret.rmdir()
        else:
            secret.unlink(missing_ok=True)
        if content == "folder":
            secret.mkdir()
        elif content == "pipe":
            os.mkfifo(secret)
        elif isinstance(content, bytes):
            secret.write_bytes(content)
        (place.folder / name).unlink(missing_ok=True)
        (place.folder / name).symlink_to(secret)
        error = place.take()
        assert error is not None
        answers.add((error.reason, error.file, str(error)))
    [(reason, file, text)] = answers
    assert (reason, file) == ("outside_workspace", name)
    assert "secret" not in text


@pytest.mark.parametrize("path", ["/nothing/here", "/etc", "/etc/passwd", "{root}/snapshots"])
def test_a_path_out_is_refused_there_or_not(tmp_path: Path, path: str) -> None:
    place = Place(tmp_path)
    with pytest.raises(SubmissionError) as caught:
        place.store.take(path.format(root=tmp_path))
    assert caught.value.reason == "outside_workspace"


def test_what_an_agent_writes_into_a_refusal_is_cut(tmp_path: Path) -> None:
    with Scene(tmp_path, make_spec()).serving(baseline=False) as scene:
        path = scene.checkpoint("m", value=1)
        config = scene.workspace.root / path / "config.json"
        config.write_text(json.dumps({"architectures": ["x" * 3_000_000]}))
        answer = httpx.post(f"{scene.server.url}/submit", json={"model_path": path}, timeout=60)
        assert answer.status_code == 422
        assert len(answer.content) < 2 * MAX_MESSAGE_CHARS
        [event] = scene.events(SubmissionRejected)
        assert isinstance(event, SubmissionRejected)
        assert len(event.message) <= MAX_MESSAGE_CHARS + 1
        assert scene.paths.ledger.stat().st_size < 20_000
