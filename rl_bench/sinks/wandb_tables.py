"""The tables of a run that W&B gets, cut to a size that its pages can show.

The whole of them is in Parquet.
"""

import pyarrow as pa
import pyarrow.compute as pc

from rl_bench.record_schema import LazyBatch
from rl_bench.records import RunSnapshot

MAX_CHARS = 500
TABLES = {"findings": 200, "trace": 1000}
"""How many rows of each table: the last ones, each text cut at ``MAX_CHARS``."""
_LEFT_OUT = ["run_id", "sweep"]


def bounded(snapshot: RunSnapshot) -> dict[str, tuple[LazyBatch, ...]]:
    """The tables of `TABLES` as they may wait in memory: small, and sharing nothing."""
    return {name: (_fixed(_cut(snapshot.table(name), num)),) for name, num in TABLES.items()}


def shown(table: pa.Table) -> pa.Table:
    """The columns that are shown: the run is the page's own."""
    return table.drop_columns(_LEFT_OUT)


def _cut(table: pa.Table, num_rows: int) -> pa.RecordBatch:
    last = table.slice(max(table.num_rows - num_rows, 0))
    arrays = []
    for field in last.schema:
        column = last.column(field.name).combine_chunks()
        if field.type == pa.string():
            column = pc.utf8_slice_codeunits(column, 0, MAX_CHARS)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=last.schema)


def _fixed(batch: pa.RecordBatch) -> LazyBatch:
    return LazyBatch(lambda: batch)
