"""The look at every weight of a checkpoint: sums, and which bad tensor is named."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_bench.checkpoint import inspect, weight_files
from rl_bench.compose import compose
from rl_bench.engine.weights import TensorSummary, scan_weights
from rl_bench.errors import SubmissionError
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
