"""What a result sink is: a view of the ledgers, written by the recorder.

A sink that cannot open stops the sweep at once; one that fails later is warned about and never
delays or fails a run. Sinks are idempotent: the same snapshot twice leaves what it left once, and a
later snapshot of a run replaces an earlier one.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from rl_bench.records import RunSnapshot
from rl_bench.run_row import RunRow
from rl_bench.run_view import RunView


class Sink(Protocol):
    """A place where results go beside the ledgers.

    Attributes:
        name: For warnings, e.g. ``parquet``.
    """

    name: str

    def open(self) -> None:
        """Makes ready; called once, before anything is written.

        Raises:
            SinkError: It cannot take records.
        """
        ...

    def write_run(self, snapshot: RunSnapshot) -> None:
        """Takes a run's records so far; must return soon.

        Raises:
            SinkError: They could not be taken; the recorder warns and goes on.
        """
        ...

    def close(self, rows: Sequence[RunRow]) -> None:
        """Finishes all writing, and writes the comparison of all runs.

        Args:
            rows: Table ``runs`` of the whole sweep.

        Raises:
            SinkError: Something could not be written.
        """
        ...


class TrackedSink(Sink, Protocol):
    """A sink of which is kept, over processes, how far it has got."""

    def is_behind(self, views: Iterable[RunView]) -> bool:
        """Whether it lacks something of these runs; it need not be open."""
        ...


@runtime_checkable
class RememberingSink(Sink, Protocol):
    """A sink that knows what it has taken, so that a run that it has need not be told again."""

    def has(self, run_id: str, mark: str) -> bool:
        """Whether it has all of the run up to that `rl_bench.run_view.RunView.mark`."""
        ...
