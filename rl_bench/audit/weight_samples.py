"""Samples of a checkpoint's weights: a few blocks of each tensor, read in place.

A sample is the same places of every checkpoint, so that samples can be subtracted. Sixteen
gigabytes cost a few thousand small reads. Headers are checked by
`rl_bench.safetensors_header` first; element types other than floating point are left out.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_bench.checkpoint import weight_files
from rl_bench.safetensors_header import read_tensor_specs

Floats = NDArray[np.float64]
NUM_RUNS = 16
RUN_LENGTH = 256
BLOCK = 128
"""Rows and columns of the block whose structure is looked at."""
_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8}


class TensorPlace(NamedTuple):
    """Where a tensor's elements lie."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def num_elements(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a checkpoint by name; nothing is read until it is asked for."""

    tensors: Mapping[str, TensorPlace]

    @classmethod
    def of(cls, folder: Path) -> "Weights":
        """Reads the headers.

        Raises:
            SubmissionError: The checkpoint is malformed.
            OSError: A file cannot be read.
        """
        found: dict[str, TensorPlace] = {}
        for file in weight_files(folder):
            specs = read_tensor_specs(file)
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length))
            for name, spec in specs.items():
                start = 8 + length + header[name]["data_offsets"][0]
                found[name] = TensorPlace(file, spec.dtype, spec.shape, start)
        return cls(found)

    def sample(self, name: str) -> Floats:
        """Runs of elements at even distances, joined."""
        place = self.tensors[name]
        total = place.num_elements
        if total <= NUM_RUNS * RUN_LENGTH:
            return _read(place, [(0, total)])
        step = (total - RUN_LENGTH) // (NUM_RUNS - 1)
        return _read(place, [(number * step, RUN_LENGTH) for number in range(NUM_RUNS)])

    def block(self, name: str) -> Floats:
        """A block of a matrix's first columns, rows at even distances; shape (rows, columns)."""
        place = self.tensors[name]
        rows, columns = place.shape[0], place.num_elements // place.shape[0]
        height, width = min(rows, BLOCK), min(columns, BLOCK)
        step = rows // height
        runs = [(number * step * columns, width) for number in range(height)]
        return _read(place, runs).reshape(height, width)


def comparable(ours: Weights, theirs: Weights) -> Sequence[str]:
    """Names of floating-point tensors that both have in one shape."""
    return sorted(
        name
        for name, place in ours.tensors.items()
        if place.dtype in _BYTES
        and place.num_elements
        and name in theirs.tensors
        and theirs.tensors[name].dtype in _BYTES
        and theirs.tensors[name].shape == place.shape
    )


def rounded(values: Floats, dtype: str) -> Floats:
    """Values as a file of ``dtype`` would hold them, so that a mere cast is no change."""
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float64)
    if dtype == "BF16":
        bits = values.astype(np.float32).view(np.uint32)
        nearest = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, ties to even
        return (nearest & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    return values.astype(np.float32).astype(np.float64) if dtype == "F32" else values


def _read(place: TensorPlace, runs: Sequence[tuple[int, int]]) -> Floats:
    size = _BYTES[place.dtype]
    parts = []
    with place.file.open("rb", buffering=0) as stream:
        for first, count in runs:
            stream.seek(place.start + first * size)
            parts.append(stream.read(count * size))
    return _decode(b"".join(parts), place.dtype)


def _decode(data: bytes, dtype: str) -> Floats:
    if dtype == "BF16":
        wide = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
    return np.frombuffer(data, dtype=kinds[dtype]).astype(np.float64)
