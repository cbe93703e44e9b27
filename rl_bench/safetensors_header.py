"""Reads the header of a safetensors file: names, dtypes, shapes and places, never a tensor.

The format (https://github.com/huggingface/safetensors#format): eight bytes with the length of a
JSON object, the object, then the tensors' bytes without gaps. A file whose size is not what its
header promises was cut short or written twice, and is refused here.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rl_bench.clone import open_regular
from rl_bench.counts import plural
from rl_bench.errors import SubmissionError

MAX_HEADER_BYTES = 32 * 1024 * 1024
"""Of all headers of a checkpoint together. A hundred thousand tensors take a third of it; the
format's own limit, 100 MB a file, would let a hostile one take gigabytes of memory and a minute."""
PREFIX_BYTES = 8
MAX_SHOWN = 200
"""Characters of a tensor's name in a message."""
MAX_DIMENSIONS = 16
MAX_SIZE = 2**63 - 1
"""Beyond them a hostile header could make the arithmetic on its shapes take hours."""

BITS = MappingProxyType(
    {
        "BOOL": 8,
        "U8": 8,
        "I8": 8,
        "F8_E4M3": 8,
        "F8_E5M2": 8,
        "F8_E8M0": 8,
        "I16": 16,
        "U16": 16,
        "F16": 16,
        "BF16": 16,
        "I32": 32,
        "U32": 32,
        "F32": 32,
        "I64": 64,
        "U64": 64,
        "F64": 64,
        "C64": 64,
        "F4": 4,
    }
)
"""Bits of an element, by the format's dtype names."""

_SAVE_AGAIN = "save the model again with save_pretrained and wait until it has returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor as its file's header describes it; ``dtype`` as the format spells it, e.g. BF16."""

    dtype: str
    shape: tuple[int, ...]


def read_tensor_specs(file: Path) -> Mapping[str, TensorSpec]:
    """The tensors that ``file`` holds, by name.

    Raises:
        SubmissionError: ``malformed_header`` or ``truncated_shard``.
    """
    size = file.stat().st_size
    with open_regular(file, follow=True) as stream:
        prefix = stream.read(PREFIX_BYTES)
        if len(prefix) < PREFIX_BYTES:
            raise _truncated(file, f"it has {plural(size, 'byte')}, too few for a header")
        length = header_length(prefix)
        if length > MAX_HEADER_BYTES:
            raise _malformed(file, f"its header claims {length} bytes, of {MAX_HEADER_BYTES}")
        text = stream.read(length)
    if len(text) < length:
        raise _truncated(file, f"its header has {len(text)} of {length} bytes")
    specs, data_bytes = _parse(file, text)
    expected = PREFIX_BYTES + length + data_bytes
    if size < expected:
        raise _truncated(file, f"it has {size} bytes of {expected}")
    if size > expected:
        raise _malformed(file, f"it has {size} bytes where its header accounts for {expected}")
    return specs


def header_length(prefix: bytes) -> int:
    """The length of the header, bytes, by a file's first `PREFIX_BYTES`; 0 where they are fewer."""
    return int(struct.unpack("<Q", prefix)[0]) if len(prefix) == PREFIX_BYTES else 0


def check_headers_length(files: Sequence[Path]) -> None:
    """Refuses weight files whose headers take too much memory together, before they are read.

    Raises:
        SubmissionError: ``malformed_header``.
    """
    total = 0
    for file in files:
        with open_regular(file, follow=True) as stream:
            total += header_length(stream.read(PREFIX_BYTES))
        if total > MAX_HEADER_BYTES:
            raise _malformed(
                file, f"headers up to its own claim {total} of {MAX_HEADER_BYTES} bytes"
            )


def _parse(file: Path, text: bytes) -> tuple[dict[str, TensorSpec], int]:
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _malformed(file, "its header is not JSON, or names something twice") from error
    if not isinstance(header, dict):
        raise _malformed(file, "its header is not a JSON object")
    specs: dict[str, TensorSpec] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            _check_metadata(file, entry)
            continue
        specs[name], span = _parse_entry(file, name, entry)
        spans.append(span)
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise _malformed(file, f"its tensors overlap or leave a gap at byte {end}")
        end = stop
    return specs, end


def _check_metadata(file: Path, metadata: object) -> None:
    """Readers of the format take texts by name and nothing else."""
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _malformed(file, "its __metadata__ is not an object of texts")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Readers differ in which of two equal names they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found


def _parse_entry(file: Path, name: str, entry: object) -> tuple[TensorSpec, tuple[int, int]]:
    try:
        if not isinstance(entry, dict):
            raise TypeError("an entry is an object")
        dtype = entry["dtype"]
        shape = tuple(entry["shape"])
        start, stop = entry["data_offsets"]
        bits = BITS[dtype]
        sizes = (*shape, start, stop)
        if len(shape) > MAX_DIMENSIONS or not all(map(_is_size, sizes)):
            raise ValueError("a size is no size")
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed(file, f"its entry for {name[:MAX_SHOWN]} is not valid") from error
    if (stop - start) * 8 != math.prod(shape) * bits:
        shown = name[:MAX_SHOWN]
        raise _malformed(
            file, f"{shown} takes {stop - start} bytes, not those of its shape {shape}"
        )
    return TensorSpec(dtype=dtype, shape=shape), (start, stop)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SIZE


def _malformed(file: Path, what: str) -> SubmissionError:
    return SubmissionError(
        f"{file.name} is not a valid safetensors file: {what}",
        cure=_SAVE_AGAIN,
        reason="malformed_header",
        file=file.name,
    )


def _truncated(file: Path, what: str) -> SubmissionError:
    return SubmissionError(
        f"{file.name} was cut short: {what}",
        cure=_SAVE_AGAIN,
        reason="truncated_shard",
        file=file.name,
    )
