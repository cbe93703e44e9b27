"""The sink: a line of text a run and task, for whoever wants no tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_bench.records import RunSnapshot
from rl_bench.run_row import RunRow


class ScoreLines:
    """A `rl_bench.sinks.base.Sink`.

    Args:
        folder: ``sinks/score_lines`` of the sweep's results; it exists.
        sweep: The sweep's name.
        settings: ``file``: where the lines go, in ``folder``.
    """

    name = "score_lines"

    def __init__(self, folder: Path, *, sweep: str, settings: Mapping[str, object]) -> None:
        self._path = folder / str(settings.get("file", "scores.txt"))
        self._sweep = sweep
        self._rows: dict[str, list[RunRow]] = {}

    def open(self) -> None:
        """Proves that the file can be written; what it raises stops the sweep at its start."""
        self._write()

    def write_run(self, snapshot: RunSnapshot) -> None:
        """Takes a run's latest records in place of its earlier ones."""
        self._rows[snapshot.run_id] = snapshot.run_rows()
        self._write()

    def close(self, rows: Sequence[RunRow]) -> None:
        """Writes the whole sweep once more."""
        self._rows = {"": list(rows)}
        self._write()

    def _write(self) -> None:
        rows = [row for rows in self._rows.values() for row in rows]
        lines = [f"{self._sweep} {row.agent} {row.task} {row.best_score}\n" for row in rows]
        self._path.write_text("".join(sorted(lines)), encoding="utf-8")
