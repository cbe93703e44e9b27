"""Looks at every weight of a checkpoint before an engine sees it.

A NaN loads into an engine without a word and can outlive its checkpoint in the KV cache, so the
weights are proved finite first. The same pass sums each tensor up, by which the canary knows
whether two checkpoints should answer differently, and compares a tied model's spare head with its
embedding.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from rl_bench.checkpoint import HEAD, CheckpointHeader
from rl_bench.errors import GraderError, RlBenchError, SubmissionError
from rl_bench.safetensors_header import read_tensor_specs

NUM_THREADS = min(8, os.cpu_count() or 1)
"""Tensors that are looked at together: a pass over 16 GB on one core takes as long as a start."""


class TensorSummary(NamedTuple):
    """Smallest and largest element and the sum, in double precision."""

    low: float
    high: float
    total: float


def scan_weights(
    header: CheckpointHeader, files: list[Path], *, dtype: torch.dtype
) -> dict[str, TensorSummary]:
    """Proves that every weight is finite, also once cast to the engine's ``dtype``.

    Memory: none of its own; tensors are mapped from the page cache.

    Args:
        header: The checkpoint's header.
        files: Its weight files.
        dtype: What the engine computes in.

    Returns:
        A summary of every floating-point tensor by name: equal weights give equal summaries.

    Raises:
        SubmissionError: ``non_finite``, ``untied_head``, ``malformed_header`` or
            ``tensor_dtypes``, naming the file and, where it is one's fault, the tensor.
        GraderError: A file is not what ``header`` says any more.
        OSError: A file cannot be read.
    """
    summaries: dict[str, TensorSummary] = {}
    look = partial(_look, dtype=dtype)
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        for file in files:
            tensors = _tensors(file, header)
            of_file = repeat(file, len(tensors))
            # In their order, so that of two bad tensors always the same one is named.
            found = threads.map(look, tensors, tensors.values(), of_file)
            for name, summary in zip(tensors, found, strict=True):
                if summary is not None:
                    summaries[name] = summary
    if header.tied and HEAD in summaries:
        _check_tied(summaries, file=files[-1])
        del summaries[HEAD]  # a copy: the same model with and without it has the same weights
    return summaries


def _tensors(file: Path, header: CheckpointHeader) -> dict[str, torch.Tensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  not a mapping
    except SafetensorError as error:
        raise _refused(file, header, str(error)) from error


def _refused(file: Path, header: CheckpointHeader, why: str) -> RlBenchError:
    """Whose fault it is: of a file that is still as its header was, its own."""
    with suppress(SubmissionError):
        if read_tensor_specs(file).items() <= header.tensors.items():
            return SubmissionError(
                f"{file.name} cannot be read by safetensors: {why[:300]}",
                cure="save the model again with save_pretrained",
                reason="malformed_header",
                file=file.name,
            )
    return GraderError(
        f"{file} changed while it was looked at: {why[:300]}", cure="nothing may write a snapshot"
    )


def _look(
    name: str, tensor: torch.Tensor, file: Path, *, dtype: torch.dtype
) -> TensorSummary | None:
    if not (tensor.is_floating_point() and tensor.numel()):
        return None
    try:
        summary = _summarise(tensor)
    except NotImplementedError as error:  # half-byte floats
        raise SubmissionError(
            f"{name} in {file.name} is of dtype {str(tensor.dtype).removeprefix('torch.')}, "
            "which cannot be computed with",
            cure="save the model in bfloat16 or float32",
            reason="tensor_dtypes",
            file=file.name,
        ) from error
    _check_finite(name, file, summary, dtype=dtype)
    return summary


def _summarise(tensor: torch.Tensor) -> TensorSummary:
    if tensor.element_size() == 1:  # float8 has no reductions
        tensor = tensor.to(torch.float32)
    low, high = torch.aminmax(tensor)
    return TensorSummary(low.item(), high.item(), tensor.sum(dtype=torch.float64).item())


def _check_finite(name: str, file: Path, summary: TensorSummary, *, dtype: torch.dtype) -> None:
    limit = torch.finfo(dtype).max
    # NaN compares false with everything, so the test is for what is in range.
    if -limit <= summary.low and summary.high <= limit:
        return
    finite = summary.low > -float("inf") and summary.high < float("inf")
    raise SubmissionError(
        f"{name} in {file.name} holds "
        + (f"values beyond the range of {str(dtype).removeprefix('torch.')}" if finite else "")
        + ("" if finite else "NaN or infinite values"),
        cure="the training diverged: submit an earlier checkpoint, or train with a lower rate",
        reason="non_finite",
        file=file.name,
    )


def _check_tied(summaries: dict[str, TensorSummary], *, file: Path) -> None:
    """An engine ignores a tied model's own head: a head that was trained apart would be lost."""
    embeddings = [
        summary for name, summary in summaries.items() if name.endswith("embed_tokens.weight")
    ]
    if embeddings and embeddings[0] != summaries[HEAD]:
        raise SubmissionError(
            f"{HEAD} differs from the embedding, though config.json ties the two",
            cure="save the tied model with save_pretrained, which leaves the head out",
            reason="untied_head",
            file=file.name,
        )
