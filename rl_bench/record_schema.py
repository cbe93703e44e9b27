"""From row classes to typed Arrow batches: what all tables of `rl_bench.records` are made with.

A table's schema is spelled by its row class. Rows that no longer change are kept as what they are
made from, and become batches of a fixed size once a sink asks.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from types import NoneType, UnionType
from typing import Generic, NamedTuple, TypeVar, get_args, get_type_hints

import pyarrow as pa

from rl_bench.events import Entry

SCHEMA_VERSION = 4
_ROWS_PER_BATCH = 256
_ARROW: dict[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
    tuple[str, ...]: pa.list_(pa.string()),
    tuple[float, ...]: pa.list_(pa.float64()),
    tuple[tuple[str, float], ...]: pa.map_(pa.string(), pa.float64()),
}
_Row = TypeVar("_Row")


def schema_of(table: str, row: type) -> pa.Schema:
    """The schema that a row class spells: a column a field, nullable where None is allowed."""
    columns = []
    for name, hint in get_type_hints(row).items():
        options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = next(option for option in options if option is not NoneType)
        columns.append(pa.field(name, _ARROW[kind], nullable=NoneType in options))
    return pa.schema(columns, metadata={"table": table, "schema_version": str(SCHEMA_VERSION)})


def to_batch(rows: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one typed batch; they must be of the class that ``schema`` was made from."""
    columns = [
        pa.array([getattr(row, name) for row in rows], type=schema.field(name).type)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Place(NamedTuple):
    """Where a row belongs."""

    run_id: str
    sweep: str
    attempt: int
    session: int = 0


class LazyBatch:
    """Rows that no longer change, turned into a batch when first asked for.

    Recording an event stays cheap, and tables that are up to date cost no conversion at all.
    """

    __slots__ = ("_batch", "_make")

    def __init__(self, make: Callable[[], pa.RecordBatch]) -> None:
        self._make: Callable[[], pa.RecordBatch] | None = make
        self._batch: pa.RecordBatch | None = None

    def get(self) -> pa.RecordBatch:
        """The batch; made once, after which its source is let go."""
        make = self._make
        if self._batch is None and make is not None:
            self._batch = make()
            self._make = None
        return self._batch


class Growing(Generic[_Row]):
    """A table that gets a row an entry, now and then asked for all it has.

    A look costs one batch at most, however often one looks: only full batches are sealed.

    Args:
        schema: Of the table.
        make: The row of an entry.
    """

    def __init__(self, schema: pa.Schema, make: Callable[[Place, Entry], _Row]) -> None:
        self._schema = schema
        self._make = make
        self._sealed: list[LazyBatch] = []
        self._open: list[tuple[Place, Entry]] = []

    def add(self, place: Place, entry: Entry) -> None:
        """Takes an entry."""
        self._open.append((place, entry))
        if len(self._open) >= _ROWS_PER_BATCH:
            self._sealed.append(self._seal())
            self._open = []

    def batches(self) -> tuple[LazyBatch, ...]:
        """All rows so far, independent of later ones."""
        return (*self._sealed, self._seal()) if self._open else tuple(self._sealed)

    def _seal(self) -> LazyBatch:
        return LazyBatch(partial(_batch, tuple(self._open), self._schema, self._make))


def _batch(
    entries: Sequence[tuple[Place, Entry]],
    schema: pa.Schema,
    make: Callable[[Place, Entry], object],
) -> pa.RecordBatch:
    return to_batch([make(place, entry) for place, entry in entries], schema)
