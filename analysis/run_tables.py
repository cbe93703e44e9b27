"""Runs' own rows of a table, without a look at the other runs' files.

Opening a file costs more than the few rows in it: tables of several runs are best read together.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from rl_bench.records import SCHEMAS

Row = dict[str, Any]
"""A row of a table; its columns are in `rl_bench.records`."""
RunRows = Mapping[str, Sequence[Row]]
"""One run's rows by table, each in the ledger's order."""
TOGETHER = 32
"""Runs that are best read together: as many rows as memory is not felt for."""


def run_rows(
    runs: Sequence[tuple[Path, int]], tables: Mapping[str, Sequence[str]]
) -> list[RunRows]:
    """The rows of several runs, read together.

    Args:
        runs: Each run's own folder, ``runs.folder``, which need not be there any more, and the
            attempt whose rows are wanted.
        tables: Which, e.g. ``trace``, and which of their columns.

    Returns:
        For each run, in the given order.

    Raises:
        OSError, polars.exceptions.PolarsError: A file of one of the runs is damaged, or is none.
    """
    found: list[dict[str, list[Row]]] = [{name: [] for name in tables} for _ in runs]
    for name, columns in tables.items():
        files = {str(_file(folder, name)): place for place, (folder, _) in enumerate(runs)}
        there = [file for file in files if os.path.lexists(file)]
        for file in there:
            check_is_file(Path(file))
        if not there:
            continue
        for file, row in _rows(there, name, columns):
            place = files[file]
            if row["attempt"] == runs[place][1]:
                found[place][name].append(row)
    return list(found)


def _rows(files: Sequence[str], name: str, columns: Sequence[str]) -> list[tuple[str, Row]]:
    schema = table_schema(name)
    frame = (
        pl.scan_parquet(
            list(files),
            schema=schema,
            missing_columns="insert",
            extra_columns="ignore",
            include_file_paths=_FILE,
            glob=False,
        )
        .select(*dict.fromkeys((*columns, "attempt")), _FILE)
        .collect()
    )
    names = frame.columns[:-1]
    return [(row[-1], dict(zip(names, row, strict=False))) for row in frame.rows()]


_FILE = "file of the row"


def _file(folder: Path, name: str) -> Path:
    return folder.parent.parent / "tables" / name / f"{folder.name}.parquet"


def check_is_file(file: Path) -> None:
    """Refuses what only has the name of a table's file: a pipe would block, a folder holds others.

    Raises:
        OSError: It is no file.
    """
    if not file.is_file():
        what = "a link to nothing" if file.is_symlink() and not file.exists() else "no file"
        raise OSError(f"{file} is {what}")


@cache
def table_schema(name: str) -> pl.Schema:
    """The columns of a table that has no rows yet."""
    empty = pl.from_arrow(SCHEMAS[name].empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema
