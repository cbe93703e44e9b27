"""The loop that keeps runs in flight: starts attempts, sees them end, tries broken ones again."""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from actors.factory import start_run, start_services
from actors.remote import Handle
from actors.status_poll import StatusPoll
from rl_bench.config import Experiment, RunSpec
from rl_bench.errors import LedgerError, SinkError
from rl_bench.events import RunEnd, RunFinished
from rl_bench.ledger import Ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.progress import Progress
from rl_bench.run_view import RunView

POLL_S = 0.5
CLOSE_LIMIT_S = 60.0
VIEWS_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one run; ``num_left`` tries remain when infrastructure breaks it."""

    run_id: str
    spec: RunSpec
    number: int
    num_left: int


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt under way; the handle keeps its actor alive."""

    attempt: Attempt
    actor: Handle


class SweepLoop:
    """Runs attempts until every run has ended for good.

    Raises:
        SinkError: A configured sink cannot open.
    """

    def __init__(
        self,
        experiment: Experiment,
        paths: SweepPaths,
        *,
        base_models: Mapping[str, Path],
        progress: Progress,
    ) -> None:
        self._experiment = experiment
        self._paths = paths
        self._base_models = base_models
        self._progress = progress
        self._services = start_services(experiment, paths)
        self._gradings = StatusPoll(self._services.graders)
        self._in_flight: dict[ray.ObjectRef[Any], Flight] = {}
        self._last_views: dict[str, RunView] = {}

    def run(self, todo: Sequence[RunSpec], views: Mapping[str, RunView]) -> None:
        """Runs ``todo`` to the end; ``views`` say where each stands."""
        self._require_recorder()
        self._last_views = dict(views)
        waiting = deque(
            Attempt(
                run_id(spec),
                spec,
                number=views[run_id(spec)].num_attempts,
                num_left=self._experiment.cluster.num_run_retries,
            )
            for spec in todo
        )
        try:
            while waiting or self._in_flight:
                self._step(waiting)
        finally:
            self._close()

    def _step(self, waiting: deque[Attempt]) -> None:
        """Starts what fits, takes what ended within `POLL_S`, shows where things stand."""
        while waiting and len(self._in_flight) < self._max_parallel():
            self._start(waiting.popleft())
        ended, _ = ray.wait(list(self._in_flight), timeout=POLL_S)
        for reference in ended:
            again = self._settle(reference)
            if again is not None:
                waiting.append(again)
        self._progress.update(self._views(), self._gradings.look())

    def _close(self) -> None:
        """Writes the tables and ends the engines, also when the sweep is interrupted."""
        for flight in self._in_flight.values():
            ray.kill(flight.actor)
        closing = [grader.close.remote() for grader in self._services.graders]
        self._close_recorder()
        ray.wait(closing, num_returns=len(closing), timeout=CLOSE_LIMIT_S)

    def _close_recorder(self) -> None:
        """Has the tables completed, also by a recorder that is only just being started again."""
        deadline = monotonic() + CLOSE_LIMIT_S
        while (left_s := deadline - monotonic()) > 0:
            try:
                ray.get(self._services.recorder.close.remote(), timeout=left_s)
            except RayActorError:
                sleep(POLL_S)
            except RayError as error:
                self._progress.say(f"the tables may be incomplete: {error}")
                return
            else:
                return

    def _require_recorder(self) -> None:
        try:
            ray.get(self._services.recorder.views.remote(), timeout=VIEWS_LIMIT_S)
        except RayError as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise SinkError(f"the recorder cannot start: {reason}") from error

    def _views(self) -> dict[str, RunView]:
        """What the recorder knows; while it is being started again, what it knew."""
        with suppress(RayActorError, GetTimeoutError):
            reference = self._services.recorder.views.remote()
            self._last_views = ray.get(reference, timeout=VIEWS_LIMIT_S)
        return self._last_views

    def _max_parallel(self) -> int:
        """As many as the cluster's CPUs and GPUs hold, at least one, at most the configured bound.

        Asked anew each time, since a cluster grows and shrinks.
        """
        cluster = self._experiment.cluster
        total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        by_cpu = int(total.get("CPU", 0.0) // cluster.cpus_per_run)
        by_gpu = (
            int(total.get("GPU", 0.0) // cluster.gpus_per_run) if cluster.gpus_per_run else by_cpu
        )
        bound = cluster.max_parallel_runs or by_cpu
        return max(1, min(by_cpu, by_gpu, bound))

    def _start(self, attempt: Attempt) -> None:
        actor = start_run(
            attempt.spec,
            run_id=attempt.run_id,
            experiment=self._experiment,
            paths=self._paths,
            base_model=self._base_models[attempt.spec.model.name],
            services=self._services,
        )
        reference = actor.execute.remote(attempt=attempt.number, is_last=attempt.num_left == 0)
        self._in_flight[reference] = Flight(attempt, actor)

    def _settle(self, reference: "ray.ObjectRef[Any]") -> Attempt | None:
        """Takes an ended attempt; returns the next one if infrastructure broke it."""
        flight = self._in_flight.pop(reference)
        attempt = flight.attempt
        try:
            end: RunEnd = ray.get(reference)
        except RayError as error:
            end = RunEnd.INFRA_ERROR
            self._note_death(attempt, error)
        finally:
            ray.kill(flight.actor)
        if not end.is_infrastructure or attempt.num_left == 0:
            return None
        self._progress.say(f"{attempt.run_id}: {end}; trying again")
        return replace(attempt, number=attempt.number + 1, num_left=attempt.num_left - 1)

    def _note_death(self, attempt: Attempt, error: RayError) -> None:
        """Ends the ledger of an attempt whose actor could not do it itself."""
        message = f"the run's process was lost: {type(error).__name__}: {error}"[:2000]
        event = RunFinished(end=RunEnd.INFRA_ERROR, detail=message, final=attempt.num_left == 0)
        try:
            with Ledger(self._paths.run(attempt.run_id).ledger) as ledger:
                entry = ledger.append(event)
        except LedgerError as broken:
            self._progress.say(f"{attempt.run_id}: {broken}")
            return
        self._services.recorder.record.remote(attempt.run_id, [entry])
