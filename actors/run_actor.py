"""A run in a process of its own.

A plain class; `actors.factory` makes it a Ray actor that holds the run's CPUs and GPUs. All that
happens in a run is in `rl_bench.run`; this only gives it remote services.
"""

from pathlib import Path

from actors.remote import Handle, RemoteGrade
from rl_bench.config import RunSpec
from rl_bench.events import Entry, RunEnd
from rl_bench.paths import SweepPaths
from rl_bench.run import Run


class RunActor:
    """Carries out one attempt at one run."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        run_id: str,
        sweep: str,
        paths: SweepPaths,
        cache: Path,
        base_model: Path,
        num_threads: int,
        pool: Handle,
        recorder: Handle,
    ) -> None:
        self._run_id = run_id
        self._recorder = recorder
        self._run = Run(
            spec,
            run_id=run_id,
            sweep=sweep,
            paths=paths,
            cache=cache,
            base_model=base_model,
            num_threads=num_threads,
            grade=RemoteGrade(pool),
            on_entry=self._tell,
        )

    def __repr__(self) -> str:
        return f"RunActor({self._run_id})"

    def execute(self, *, attempt: int, is_last: bool) -> RunEnd:
        """Runs to the end; every failure of the run is a `RunEnd`, not an exception."""
        return self._run.execute(attempt=attempt, is_last=is_last)

    def _tell(self, entry: Entry) -> None:
        self._recorder.record.remote(self._run_id, [entry])
