"""Runs in a process of their own, one after the other.

A plain class; `actors.factory` makes it a Ray actor that holds a run's CPUs and GPUs. All that
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
    """Carries out attempts at runs, one at a time."""

    def __init__(self, *, pool: Handle, recorder: Handle) -> None:
        self._grade = RemoteGrade(pool)
        self._recorder = recorder

    def execute(
        self, run_id: str, *, make_run: RunFactory, attempt: int, is_last: bool
    ) -> tuple[RunEnd, bool]:
        """Runs to the end; every failure of the run is a `RunEnd`, not an exception.

        Returns:
            How it ended, and whether that is final.
        """

        def tell(entry: Entry) -> None:
            self._recorder.record.remote(run_id, [entry])

        run = make_run(grade=self._grade, on_entry=tell)
        return run.execute(attempt=attempt, is_last=is_last), run.is_final
