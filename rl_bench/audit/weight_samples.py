"""Samples of a checkpoint's weights: a few blocks of each tensor, read in place.

A sample is the same places of every checkpoint, so that samples can be subtracted. Sixteen
gigabytes cost a few thousand small reads. Headers are checked by
`rl_bench.safetensors_header` first; element types other than floating point are left out.

Of a snapshot that goes, `Weights.keep` writes all samples that can be asked for into one small
file: what is compared with it later is compared as if the snapshot were there.
"""

import itertools
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_bench.checkpoint import weight_files
from rl_bench.clone import open_regular
from rl_bench.safetensors_header import read_tensor_specs
from rl_bench.whole_file import replacing

Floats = NDArray[np.float64]
NUM_RUNS = 16
RUN_LENGTH = 256
BLOCK = 128
"""Rows and columns of the block whose structure is looked at."""
MIN_BLOCK = 8
"""Rows and columns that a tensor must have for its block to tell anything."""
KEPT = "snapshot_samples"
"""The folder beside a sweep's snapshots that has samples of those that went, by content hash."""
_SAMPLING = [NUM_RUNS, RUN_LENGTH, BLOCK, MIN_BLOCK]
_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8}
_Runs = Sequence[tuple[int, int]]
"""First element and number of elements of each."""


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

    @property
    def is_sampled(self) -> bool:
        """Whether there are numbers in it."""
        return self.dtype in _BYTES and bool(self.num_elements)

    @property
    def has_block(self) -> bool:
        """Whether it is a matrix with a block to look at."""
        return self.is_sampled and len(self.shape) >= 2 and min(self.shape[:2]) >= MIN_BLOCK


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a checkpoint by name; nothing is read until it is asked for.

    Attributes:
        tensors: Where each lies.
        is_kept: In a file that `keep` wrote: its sample lies there, and its block behind that.
    """

    tensors: Mapping[str, TensorPlace]
    is_kept: bool = False

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
            with open_regular(file, follow=True) as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length))
            for name, spec in specs.items():
                start = 8 + length + header[name]["data_offsets"][0]
                found[name] = TensorPlace(file, spec.dtype, spec.shape, start)
        return cls(found)

    @classmethod
    def kept(cls, file: Path) -> "Weights":
        """The samples of a checkpoint that is gone.

        Raises:
            ValueError: They were not taken like today's, or the file is damaged.
            OSError: It cannot be read.
        """
        try:
            return cls(_kept_places(file), is_kept=True)
        except (TypeError, LookupError, RecursionError) as error:
            raise ValueError(f"{file} is damaged: {error}") from error

    def keep(self, file: Path) -> None:
        """Writes every sample and block to ``file``, bytes as they are.

        Raises:
            OSError: The disk refused.
        """
        places = {name: place for name, place in self.tensors.items() if place.is_sampled}
        tensors = [(name, place.dtype, place.shape) for name, place in places.items()]
        header = json.dumps({"sampling": _SAMPLING, "tensors": tensors}).encode()
        with replacing(file, is_durable=True, is_shared=True) as part, part.open("wb") as out:
            out.write(struct.pack("<Q", len(header)) + header)
            for place in places.values():
                out.write(_read(place, _sample_runs(place)))
                if place.has_block:
                    out.write(_read(place, _block(place)[0]))

    def sample(self, name: str) -> Floats:
        """Runs of elements at even distances, joined."""
        place = self.tensors[name]
        runs = _sample_runs(place)
        return _decode(_read(place, [(0, _total(runs))] if self.is_kept else runs), place.dtype)

    def block(self, name: str) -> Floats:
        """A block of a matrix's first columns, rows at even distances; shape (rows, columns)."""
        place = self.tensors[name]
        runs, shape = _block(place)
        if self.is_kept:
            runs = [(_total(_sample_runs(place)), _total(runs))]
        return _decode(_read(place, runs), place.dtype).reshape(shape)


def _kept_places(file: Path) -> dict[str, TensorPlace]:
    with open_regular(file) as stream:
        (length,) = struct.unpack("<Q", stream.read(8).ljust(8, b"\0"))
        if length > os.fstat(stream.fileno()).st_size:
            raise ValueError(f"{file} is damaged: it is shorter than its header")
        header = json.loads(stream.read(length))
    if header["sampling"] != _SAMPLING:
        raise ValueError(f"{file} holds other samples than those that are looked at today")
    starts = itertools.accumulate(
        (_num_kept_bytes(dtype, shape) for _, dtype, shape in header["tensors"]),
        initial=8 + length,
    )
    return {
        name: TensorPlace(file, dtype, tuple(shape), start)
        for (name, dtype, shape), start in zip(header["tensors"], starts, strict=False)
    }


def comparable(ours: Weights, theirs: Weights) -> Sequence[str]:
    """Names of floating-point tensors that both have in one shape."""
    return sorted(
        name
        for name, place in ours.tensors.items()
        if place.is_sampled
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


def _sample_runs(place: TensorPlace) -> _Runs:
    total = place.num_elements
    if total <= NUM_RUNS * RUN_LENGTH:
        return [(0, total)]
    step = (total - RUN_LENGTH) // (NUM_RUNS - 1)
    return [(number * step, RUN_LENGTH) for number in range(NUM_RUNS)]


def _block(place: TensorPlace) -> tuple[_Runs, tuple[int, int]]:
    """The block's runs and its shape."""
    rows, columns = place.shape[0], place.num_elements // place.shape[0]
    height, width = min(rows, BLOCK), min(columns, BLOCK)
    step = rows // height
    return [(number * step * columns, width) for number in range(height)], (height, width)


def _total(runs: _Runs) -> int:
    return sum(count for _, count in runs)


def _num_kept_bytes(dtype: str, shape: Sequence[int]) -> int:
    place = TensorPlace(Path(), dtype, tuple(shape), 0)
    block = _total(_block(place)[0]) if place.has_block else 0
    return (_total(_sample_runs(place)) + block) * _BYTES[dtype]


def _read(place: TensorPlace, runs: _Runs) -> bytes:
    size = _BYTES[place.dtype]
    parts = []
    with place.file.open("rb", buffering=0) as stream:
        for first, count in runs:
            stream.seek(place.start + first * size)
            parts.append(stream.read(count * size))
    return b"".join(parts)


def _decode(data: bytes, dtype: str) -> Floats:
    if dtype == "BF16":
        wide = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
    return np.frombuffer(data, dtype=kinds[dtype]).astype(np.float64)
