"""A run in a process of its own.

A plain class; `actors.factory` makes it a Ray actor that holds the run's CPUs and GPUs. All that
happens in a run is in `rl_bench.run`; this only gives it remote services.
"""

from typing import Protocol

from actors.remote import Handle, RemoteGrade
from rl_bench.events import Entry, RunEnd
from rl_bench.grading import Grade
from rl_bench.run import OnEntry, Run


class RunFactory(Protocol):
    """Makes the run; everything but its services is decided already."""

    def __call__(self, *, grade: Grade, on_entry: OnEntry) -> Run:
        """The run, which grades through ``grade`` and tells ``on_entry`` of every ledger entry."""
        ...


class RunActor:
    """Carries out one attempt at one run."""

    def __init__(
        self, run_id: str, *, make_run: RunFactory, pool: Handle, recorder: Handle
    ) -> None:
        self._run_id = run_id
        self._recorder = recorder
        self._run = make_run(grade=RemoteGrade(pool), on_entry=self._tell)

    def __repr__(self) -> str:
        return f"RunActor({self._run_id})"

    def execute(self, *, attempt: int, is_last: bool) -> RunEnd:
        """Runs to the end; every failure of the run is a `RunEnd`, not an exception."""
        return self._run.execute(attempt=attempt, is_last=is_last)

    def _tell(self, entry: Entry) -> None:
        self._recorder.record.remote(self._run_id, [entry])
