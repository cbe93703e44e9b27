"""The look at every weight of a checkpoint: sums, and which bad tensor is named."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_bench.checkpoint import inspect, weight_files
from rl_bench.compose import compose
from rl_bench.engine.prepared import Preparer
from rl_bench.engine.weights import TensorSummary, scan_weights
from rl_bench.errors import GraderError, SubmissionError
from rl_bench.models.base import resolve_model
from rl_bench.plan import expand


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny base model."""
    [spec] = expand(compose(["model=tiny", "task=gsm8k_mini", "agent=noop"]).experiment)
    copy = tmp_path / "checkpoint"
    shutil.copytree(resolve_model(spec.model, cache=tmp_path / "cache"), copy)
    return copy


def scan(folder: Path) -> dict[str, TensorSummary]:
    return scan_weights(inspect(folder), weight_files(folder), dtype=torch.float32)


def test_every_tensor_is_summed_up(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    summaries = scan(folder)
    assert list(summaries) == sorted(weights)
    for name, summary in summaries.items():
        tensor = weights[name].double()
        assert summary.low == tensor.min().item()
        assert summary.high == tensor.max().item()
        assert summary.total == pytest.approx(tensor.sum().item())


def test_of_several_bad_tensors_the_first_is_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    first, *_, last = sorted(weights)
    weights[last].view(-1)[0] = torch.inf
    weights[first].view(-1)[-1] = torch.nan
    save_file(weights, file, metadata={"format": "pt"})
    for _ in range(10):
        with pytest.raises(SubmissionError, match=first):
            scan(folder)


def write_tensors(file: Path, header: Mapping[str, object], *, num_bytes: int) -> None:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(num_bytes))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "malformed_header"),
        ({"w": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}, "tensor_dtypes"),
    ],
)
def test_what_the_format_forbids_or_nothing_computes_with_is_the_checkpoints_fault(
    folder: Path, header: Mapping[str, object], reason: str
) -> None:
    write_tensors(folder / "model.safetensors", header, num_bytes=4)
    with pytest.raises(SubmissionError, match=r"model\.safetensors") as refused:
        scan(folder)
    assert (refused.value.reason, refused.value.file) == (reason, "model.safetensors")


def test_a_file_that_changed_during_the_look_is_nobodys_score(folder: Path) -> None:
    header = inspect(folder)
    file = folder / "model.safetensors"
    for content in (b"", file.read_bytes()[:-1]):
        file.write_bytes(content)
        with pytest.raises(GraderError, match=r"model\.safetensors changed"):
            scan_weights(header, [file], dtype=torch.float32)


def test_a_disk_that_refuses_is_nobodys_score(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rl_bench.engine.prepared.scan_weights", refuse)
    preparer = Preparer(dtype=torch.float32, max_model_len=64)
    with pytest.raises(GraderError, match="Input/output error"):
        preparer.prove(preparer.open(folder, content_hash="0"))
