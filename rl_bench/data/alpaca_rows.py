"""The train instructions of AlpacaEval: the first rows of tatsu-lab/alpaca.

The published protocol gives the agent the data set's first 2,000 rows.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from rl_bench.counts import plural

NUM_ROWS = 2000
COLUMNS = ("instruction", "input", "output")


def write_first_rows(downloads: Mapping[str, Path], target: Path) -> None:
    """Writes the first rows, one JSON object a line with ``instruction``, ``input``, ``output``.

    Raises:
        OSError, ValueError, KeyError: The download is no Parquet file with these columns.
    """
    import pyarrow.parquet as pq

    [source] = downloads.values()
    table = pq.read_table(source, columns=list(COLUMNS)).slice(0, NUM_ROWS)
    if table.num_rows < NUM_ROWS:
        raise ValueError(f"{plural(table.num_rows, 'row')}, {NUM_ROWS} wanted")
    with target.open("w", encoding="utf-8") as out:
        for row in table.to_pylist():
            out.write(json.dumps({name: row[name] for name in COLUMNS}) + "\n")
