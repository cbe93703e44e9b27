"""Whether two checkpoints hold the same weights, bit for bit, however they are cut into files.

Reads tensor by tensor and stops at the first that differs, which for a trained model is the first
of all. Headers must have been checked before (`rl_bench.checkpoint`).
"""

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rl_bench.clone import open_regular

_CHUNK_BYTES = 8 * 1024 * 1024


class _Place(NamedTuple):
    file: Path
    dtype: str
    start: int
    num_bytes: int


def same_weights(ours: Path, theirs: Path, *, names: Sequence[str]) -> bool:
    """Whether the tensors ``names`` are equal in both checkpoint folders.

    Raises:
        OSError: A file cannot be read.
    """
    mine, other = _places(ours), _places(theirs)
    return all(name in mine and name in other and _same(mine[name], other[name]) for name in names)


def _places(folder: Path) -> dict[str, _Place]:
    found: dict[str, _Place] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with open_regular(file, follow=True) as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                found[name] = _Place(file, entry["dtype"], 8 + length + start, end - start)
    return found


def _same(mine: _Place, other: _Place) -> bool:
    if (mine.dtype, mine.num_bytes) != (other.dtype, other.num_bytes):
        return False
    return all(a == b for a, b in zip(_chunks(mine), _chunks(other), strict=True))


def _chunks(place: _Place) -> Iterator[bytes]:
    with open_regular(place.file, follow=True) as stream:
        stream.seek(place.start)
        for offset in range(0, place.num_bytes, _CHUNK_BYTES):
            yield stream.read(min(_CHUNK_BYTES, place.num_bytes - offset))
