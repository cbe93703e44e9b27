"""Pre-flight over real files: each broken checkpoint is refused with its reason, file and cure."""

import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from rl_bench.checkpoint import (
    CheckpointHeader,
    check_submission,
    content_hash,
    inspect,
)
from rl_bench.checkpoint_files import checkpoint_files
from rl_bench.errors import SubmissionError

EMBED = "model.embed_tokens.weight"
NORM = "model.norm.weight"
LAYER = "model.layers.0.mlp.up_proj.weight"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 8,
    "tie_word_embeddings": True,
    "transformers_version": "5.0.0",
}


def weights() -> dict[str, np.ndarray]:
    return {
        EMBED: np.arange(32, dtype=np.float32).reshape(8, 4),
        NORM: np.ones(4, np.float32),
        LAYER: np.ones((6, 4), np.float32),
    }


def write(folder: Path, *, single: bool = True) -> Path:
    """A checkpoint with a single weight file, or three shards and an index."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    vocab = {f"t{i}": i for i in range(8)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ x }}"})
    )
    if single:
        save_file(weights(), folder / "model.safetensors")
        return folder
    weight_map = {}
    for number, (name, tensor) in enumerate(weights().items(), start=1):
        weight_map[name] = f"model-0000{number}-of-00003.safetensors"
        save_file({name: tensor}, folder / weight_map[name])
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> CheckpointHeader:
    return inspect(write(tmp_path / "base"))


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(folder: Path, **changes: np.ndarray) -> None:
    save_file(weights() | changes, folder / "model.safetensors")


def test_header_says_what_the_files_hold(base: CheckpointHeader) -> None:
    assert base.architecture == "Qwen3ForCausalLM"
    assert base.tied
    assert base.tensors[EMBED].shape == (8, 4)
    assert base.tensors[EMBED].dtype == "F32"
    assert base.num_parameters == 32 + 4 + 24
    assert base.max_token_id == 7
    assert len(base.chat_template_hash) == 64


@pytest.mark.parametrize("single", [True, False])
def test_a_good_submission_passes(tmp_path: Path, base: CheckpointHeader, single: bool) -> None:
    check_submission(write(tmp_path / "sub", single=single), base)


def test_a_tied_model_may_hold_its_head(tmp_path: Path, base: CheckpointHeader) -> None:
    folder = write(tmp_path / "sub")
    edit_weights(folder, **{"lm_head.weight": weights()[EMBED]})
    check_submission(folder, base)
    edit_weights(folder, **{"lm_head.weight": np.ones((9, 4), np.float32)})
    assert refusal(folder, base).reason == "vocabulary"


def refusal(folder: Path, base: CheckpointHeader) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        check_submission(folder, base)
    return caught.value


def adapter_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")


def adapter_beside(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "adapter_model.safetensors")


def lora_inside(folder: Path) -> None:
    edit_weights(folder, **{"model.layers.0.mlp.up_proj.lora_A.weight": np.ones((2, 4), "f4")})


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size - 5)


def truncated_header(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 20)


def empty_weights(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 0)


def padded(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as stream:
        stream.write(b"more")


def garbage_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 4) + b"oops")


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")


def lying_header(folder: Path) -> None:
    entry = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}
    text = json.dumps(entry).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 4)


def negative_shape(folder: Path) -> None:
    entry = {"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}
    text = json.dumps(entry).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)


def untold_metadata(folder: Path) -> None:
    text = json.dumps({"__metadata__": {"epoch": 1}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)


SINGLE_FILE_FAULTS: list[tuple[Callable[[Path], object], str, str]] = [
    (adapter_only, "adapter_only", "adapter_config.json"),
    (adapter_beside, "stale_shard", "adapter_model.safetensors"),
    (lora_inside, "tensor_names", "model.safetensors"),
    (pickle_only, "pickle_only", "pytorch_model.bin"),
    (truncated, "truncated_shard", "model.safetensors"),
    (truncated_header, "truncated_shard", "model.safetensors"),
    (empty_weights, "truncated_shard", "model.safetensors"),
    (padded, "malformed_header", "model.safetensors"),
    (garbage_header, "malformed_header", "model.safetensors"),
    (huge_header, "malformed_header", "model.safetensors"),
    (lying_header, "malformed_header", "model.safetensors"),
    (negative_shape, "malformed_header", "model.safetensors"),
    (untold_metadata, "malformed_header", "model.safetensors"),
    (lambda f: (f / "model.safetensors").unlink(), "no_weights", "model.safetensors"),
    (lambda f: (f / "config.json").unlink(), "no_config", "config.json"),
    (lambda f: (f / "config.json").write_text("{"), "malformed_json", "config.json"),
    (lambda f: (f / "config.json").write_text("[]"), "malformed_json", "config.json"),
    (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "malformed_json", "config.json"),
    (lambda f: (f / "config.json").write_text("[" * 99999), "malformed_json", "config.json"),
    (lambda f: (f / "tokenizer.json").unlink(), "missing_tokenizer", "tokenizer.json"),
    (lambda f: (f / "tokenizer.json").write_text("{}"), "malformed_tokenizer", "tokenizer.json"),
    (
        lambda f: edit_json(f / "tokenizer_config.json", tokenizer_class="NeverHeardOfIt"),
        "unknown_tokenizer",
        "tokenizer_config.json",
    ),
    (
        lambda f: edit_json(f / "tokenizer.json", added_tokens=[{"id": 8, "content": "<new>"}]),
        "vocabulary",
        "tokenizer.json",
    ),
    (lambda f: edit_json(f / "config.json", vocab_size=9), "vocabulary", "config.json"),
    (
        lambda f: edit_json(f / "config.json", architectures=["LlamaForCausalLM"]),
        "architecture",
        "config.json",
    ),
    (lambda f: edit_json(f / "config.json", architectures=None), "architecture", "config.json"),
    (
        lambda f: edit_json(f / "config.json", tie_word_embeddings=False),
        "architecture",
        "config.json",
    ),
    (
        lambda f: edit_weights(f, **{LAYER: np.ones((6, 4), np.int32)}),
        "tensor_dtypes",
        "model.safetensors",
    ),
    (
        lambda f: edit_weights(f, **{LAYER: np.ones((6, 4), np.complex64)}),
        "tensor_dtypes",
        "model.safetensors",
    ),
    (
        lambda f: edit_weights(f, **{LAYER: np.ones((7, 4), np.float32)}),
        "tensor_shapes",
        "model.safetensors",
    ),
    (
        lambda f: edit_weights(f, **{EMBED: np.ones((9, 4), np.float32)}),
        "vocabulary",
        "model.safetensors",
    ),
    (
        lambda f: save_file({EMBED: weights()[EMBED]}, f / "model.safetensors"),
        "tensor_names",
        "model.safetensors",
    ),
]


@pytest.mark.parametrize(("spoil", "reason", "file"), SINGLE_FILE_FAULTS)
def test_a_broken_single_file_checkpoint_is_refused(
    tmp_path: Path,
    base: CheckpointHeader,
    spoil: Callable[[Path], object],
    reason: str,
    file: str,
) -> None:
    folder = write(tmp_path / "sub")
    spoil(folder)
    error = refusal(folder, base)
    assert (error.reason, error.file) == (reason, file)
    assert error.cure
    assert 400 <= error.status < 500


SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


def index_names_elsewhere(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"][NORM] = "../base/model.safetensors"
    (folder / INDEX).write_text(json.dumps(index))


def index_older_than_shards(folder: Path) -> None:
    save_file({NORM: weights()[NORM], "extra": np.ones(1, np.float32)}, folder / SHARD)


def shard_lacks_its_tensor(folder: Path) -> None:
    save_file({"other": weights()[NORM]}, folder / SHARD)


def single_beside_shards(folder: Path) -> None:
    save_file(weights(), folder / "model.safetensors")


@pytest.mark.parametrize(
    ("spoil", "reason", "file"),
    [
        (lambda f: (f / SHARD).unlink(), "missing_shard", SHARD),
        (lambda f: os.truncate(f / SHARD, 30), "truncated_shard", SHARD),
        (lambda f: (f / INDEX).unlink(), "stale_shard", "model-00001-of-00003.safetensors"),
        (lambda f: (f / INDEX).write_text("{}"), "malformed_index", INDEX),
        (index_names_elsewhere, "malformed_index", INDEX),
        (shard_lacks_its_tensor, "missing_tensor", SHARD),
        (index_older_than_shards, "stale_index", SHARD),
        (single_beside_shards, "stale_index", "model.safetensors"),
    ],
)
def test_broken_shards_are_refused(
    tmp_path: Path,
    base: CheckpointHeader,
    spoil: Callable[[Path], object],
    reason: str,
    file: str,
) -> None:
    folder = write(tmp_path / "sub", single=False)
    spoil(folder)
    error = refusal(folder, base)
    assert (error.reason, error.file) == (reason, file)
    assert error.cure


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path, base: CheckpointHeader) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(tmp_path / "file", base).reason == "not_a_folder"
    assert refusal(tmp_path / "nothing", base).reason == "not_found"


def test_a_version_mismatch_names_both_versions(tmp_path: Path, base: CheckpointHeader) -> None:
    import transformers

    folder = write(tmp_path / "sub")
    edit_json(folder / "config.json", transformers_version="9.1.0")
    edit_json(folder / "tokenizer_config.json", tokenizer_class="TokenizerOfTomorrow")
    message = str(refusal(folder, base))
    assert "9.1.0" in message
    assert transformers.__version__ in message


@pytest.mark.parametrize("value", [["<a>"], {"image": "<a>"}])
def test_either_form_of_extra_special_tokens_passes(
    tmp_path: Path, base: CheckpointHeader, value: object
) -> None:
    folder = write(tmp_path / "sub")
    edit_json(folder / "tokenizer_config.json", extra_special_tokens=value)
    check_submission(folder, base)


def sparse_8b(folder: Path) -> None:
    """Four shards of 4 GB each and 400 tensors, with headers and no data on the disk."""
    weight_map: dict[str, str] = {}
    for number in range(4):
        file = f"model-{number}.safetensors"
        header, end = {}, 0
        for tensor in range(100):
            name = f"model.layers.{number}.{tensor}.weight"
            header[name] = {
                "dtype": "BF16",
                "shape": [20_000, 1_000],
                "data_offsets": [end, end + 40_000_000],
            }
            end += 40_000_000
            weight_map[name] = file
        text = json.dumps(header).encode()
        with (folder / file).open("wb") as stream:
            stream.write(struct.pack("<Q", len(text)) + text)
            stream.truncate(8 + len(text) + end)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def test_eight_billion_parameters_are_checked_by_their_headers_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "big")
    (folder / "model.safetensors").unlink()
    sparse_8b(folder)
    big = inspect(folder)
    assert big.num_parameters == 8_000_000_000
    started = time.monotonic()
    check_submission(folder, big)
    assert time.monotonic() - started < 60, "under a second when the machine is quiet"


def test_content_hash_follows_content_alone(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    os.utime(two / "config.json", (0, 0))
    (two / "optimizer.pt").write_bytes(b"state")
    (two / "trainer_state.json").write_text("{}")
    (two / "checkpoint-5").mkdir()
    assert content_hash(one) == content_hash(two)
    for name in ("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"):
        three = write(tmp_path / f"three-{name}")
        with (three / name).open("ab") as stream:
            stream.write(b" ")
        assert content_hash(three) != content_hash(one), name


def test_content_hash_tells_a_moved_byte(tmp_path: Path) -> None:
    """Where one file ends and the next begins counts, and so do the names."""
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    (one / "a.txt").write_text("xy")
    (one / "b.txt").write_text("z")
    (two / "a.txt").write_text("x")
    (two / "b.txt").write_text("yz")
    assert content_hash(one) != content_hash(two)


def test_checkpoint_files_leave_leftovers_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "one", single=False)
    for name in ("optimizer.pt", "training_args.bin", "README.md", "trainer_state.json"):
        (folder / name).write_text("x")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool.jinja").write_text("t")
    names = [path.relative_to(folder).as_posix() for path in checkpoint_files(folder)]
    assert names == [
        "additional_chat_templates/tool.jinja",
        "config.json",
        "model-00001-of-00003.safetensors",
        SHARD,
        "model-00003-of-00003.safetensors",
        INDEX,
        "tokenizer.json",
        "tokenizer_config.json",
    ]
