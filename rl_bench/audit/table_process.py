"""Prints the texts in a Parquet or Arrow table, a line each, in a process with limits of its own.

    python -m rl_bench.audit.table_process FILE

Tables that an agent wrote can be damaged or made to hurt; nothing but this process meets them.
"""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MAX_MEMORY_BYTES = 3 * 1024**3
CPU_S = 20
BATCH_ROWS = 256


def texts_in(path: Path) -> Iterator[str]:
    """Every text of every row, row by row, those within lists and structures too."""
    for batch in _batches(path):
        for row in batch.to_pylist():
            yield " ".join(_texts(row))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS)
        return
    with pa.memory_map(str(path)) as source:
        try:
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def main(path: Path) -> int:
    """Prints; 1 for what is no table."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pa.set_cpu_count(1)
    try:
        for text in texts_in(path):
            line = text.replace("\n", " ") + "\n"
            sys.stdout.buffer.write(line.encode("utf-8", "replace"))
    except (pa.ArrowException, OSError, MemoryError, RecursionError, BrokenPipeError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
