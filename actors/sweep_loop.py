"""The loop that keeps runs in flight: starts attempts, sees them end, tries broken ones again."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from actors.factory import run_factory, start_grader, start_run_actor, start_services
from actors.grader_fleet import GraderFleet
from actors.remote import Handle, last_line
from actors.status_poll import StatusPoll
from rl_bench.config import Experiment, RunSpec
from rl_bench.errors import LedgerError, SinkError
from rl_bench.events import RunEnd, RunFinished, RunStarted
from rl_bench.ledger import Ledger, read_ledger
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.progress import Progress
from rl_bench.run import WRITER_LIMIT_S
from rl_bench.run_view import RunView
from rl_bench.start_watch import StartWatch
from rl_bench.waiting import told_while

POLL_S = 0.5
CLOSE_LIMIT_S = 60.0
VIEWS_LIMIT_S = 60.0
MAX_UNBEGUN = 5
"""So often a run may get a process that is lost before it begins, e.g. on a node that Ray does not
yet know to be dead, without using up a try."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one run.

    Attributes:
        number: The run's attempts that began before it.
        num_left: The tries that remain when infrastructure breaks it.
        num_unbegun: The run's processes that were lost before they began.
    """

    run_id: str
    spec: RunSpec
    number: int
    num_left: int
    num_unbegun: int = 0


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt under way, and the actor that carries it out."""

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
        making = self._services.making
        self._fleet = GraderFleet(
            self._services.pool,
            self._services.graders,
            start=lambda name: start_grader(name, making),
            config=experiment.grader,
            say=progress.say,
        )
        self._gradings = StatusPoll(self._fleet.graders)
        self._in_flight: dict[ray.ObjectRef[Any], Flight] = {}
        self._idle: list[Handle] = []
        self._last_views: dict[str, RunView] = {}

    def run(self, todo: Sequence[RunSpec], views: Mapping[str, RunView]) -> None:
        """Runs ``todo`` to the end; ``views`` say where each stands."""
        self._require_recorder()
        start = StartWatch(views, say=self._progress.say)
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
                self._step(waiting, start)
        finally:
            self._close()

    def _step(self, waiting: deque[Attempt], start: StartWatch) -> None:
        """Starts what fits, takes what ended within `POLL_S`, shows where things stand."""
        while waiting and len(self._in_flight) < self._max_parallel():
            self._start(waiting.popleft())
        self._release_idle()
        ended, _ = ray.wait(list(self._in_flight), timeout=POLL_S)
        for reference in ended:
            again = self._settle(reference)
            if again is not None:
                waiting.append(again)
        self._fleet.tend()
        self._gradings.watch(self._fleet.graders)
        views, gradings = self._shown(waiting), self._gradings.look()
        start.look(views, gradings)
        self._progress.update(views, gradings)

    def _shown(self, waiting: Iterable[Attempt]) -> dict[str, RunView]:
        """Where runs stand, but for those that this command has yet to begin."""
        retries = self._experiment.cluster.num_run_retries
        ahead = {attempt.run_id for attempt in waiting if attempt.num_left == retries}
        return {name: view for name, view in self._views().items() if name not in ahead}

    def _close(self) -> None:
        """Writes the tables and ends the engines, also when the sweep is interrupted."""
        for flight in self._in_flight.values():
            ray.kill(flight.actor)
        self._release_idle()
        self._fleet.begin_close()
        with told_while("closing the tables and ending the engines", self._progress.say):
            close_recorder(self._services.recorder, say=self._progress.say)
            self._fleet.close()

    def _require_recorder(self) -> None:
        what = "starting the recorder, the graders and the rollout workers"
        self._progress.say(what)
        try:
            with told_while(what, self._progress.say):
                ray.get(self._services.recorder.views.remote(), timeout=VIEWS_LIMIT_S)
        except RayError as error:
            raise SinkError(f"the recorder cannot start: {last_line(error)}") from error

    def _views(self) -> dict[str, RunView]:
        """What the recorder knows; while it is being started again, what it knew."""
        with suppress(RayActorError, GetTimeoutError):
            known = {run_id: view.next_seq for run_id, view in self._last_views.items()}
            reference = self._services.recorder.views.remote(known)
            self._last_views |= ray.get(reference, timeout=VIEWS_LIMIT_S)
        return self._last_views

    def _max_parallel(self) -> int:
        """As many as the cluster's CPUs and GPUs hold, at least one, at most the configured bound.

        Asked anew each time, since a cluster grows and shrinks.
        """
        cluster = self._experiment.cluster
        total: dict[str, float] = ray.cluster_resources()
        by_cpu = int(total.get("CPU", 0.0) // cluster.cpus_per_run)
        by_gpu = (
            int(total.get("GPU", 0.0) // cluster.gpus_per_run) if cluster.gpus_per_run else by_cpu
        )
        bound = cluster.max_parallel_runs or by_cpu
        return max(1, min(by_cpu, by_gpu, bound))

    def _start(self, attempt: Attempt) -> None:
        """Starts an attempt, in a process that is up from another run where there is one."""
        if self._idle:
            actor = self._idle.pop()
        else:
            actor = start_run_actor(self._experiment.cluster, self._services)
        make_run = run_factory(
            attempt.spec,
            run_id=attempt.run_id,
            experiment=self._experiment,
            paths=self._paths,
            base_model=self._base_models[attempt.spec.model.name],
        )
        reference = actor.execute.remote(
            attempt.run_id,
            make_run=make_run,
            attempt=attempt.number,
            is_last=attempt.num_left == 0,
        )
        self._in_flight[reference] = Flight(attempt, actor)

    def _release_idle(self) -> None:
        """Gives back the CPUs and GPUs that no attempt waits for."""
        while self._idle:
            ray.kill(self._idle.pop())

    def _settle(self, reference: "ray.ObjectRef[Any]") -> Attempt | None:
        """Takes an ended attempt; returns the next one if another try may help."""
        flight = self._in_flight.pop(reference)
        attempt = flight.attempt
        has_begun = True
        try:
            result: tuple[RunEnd, bool] = ray.get(reference)
            end, is_final = result
        except RayError as error:
            ray.kill(flight.actor)  # it may be there, and must not begin any more
            has_begun = self._note_death(attempt, error)
            end, is_final = RunEnd.INFRA_ERROR, has_begun and attempt.num_left == 0
        if end.is_infrastructure:  # the next attempt gets a process that nothing has gone wrong in
            ray.kill(flight.actor)
        else:
            self._idle.append(flight.actor)
        self._services.pool.withdraw.remote(attempt.run_id)
        if is_final:
            if end.is_infrastructure and attempt.num_left > 0:
                self._progress.say(f"{attempt.run_id}: {end}; not tried again before it is mended")
            return None
        if not has_begun:
            self._progress.say(f"{attempt.run_id}: lost before it began; another process gets it")
            return replace(attempt, num_unbegun=attempt.num_unbegun + 1)
        self._progress.say(f"{attempt.run_id}: {end}; trying again")
        return replace(attempt, number=attempt.number + 1, num_left=attempt.num_left - 1)

    def _note_death(self, attempt: Attempt, error: RayError) -> bool:
        """Ends the ledger of an attempt whose actor could not do it itself.

        Returns:
            Whether it was an attempt: False, and nothing noted, if its process was lost before it
            began, unless that has happened too often.
        """
        path = self._paths.run(attempt.run_id).ledger
        may_repeat = isinstance(error, RayActorError) and attempt.num_unbegun < MAX_UNBEGUN
        message = f"the run's process was lost: {type(error).__name__}: {error}"[:2000]
        event = RunFinished(end=RunEnd.INFRA_ERROR, detail=message, final=attempt.num_left == 0)
        try:
            with Ledger(path, wait_s=WRITER_LIMIT_S) as ledger:
                if may_repeat and _num_begun(path) <= attempt.number:
                    return False
                entry = ledger.append(event)
        except LedgerError as broken:
            self._progress.say(f"{attempt.run_id}: {broken}")
            return True
        self._services.recorder.record.remote(attempt.run_id, [entry])
        return True


def _num_begun(ledger: Path) -> int:
    return sum(isinstance(each.event, RunStarted) for each in read_ledger(ledger, with_items=False))


def close_recorder(
    recorder: Handle, *, say: Callable[[str], None], limit_s: float = CLOSE_LIMIT_S
) -> None:
    """Has the tables completed, also by a recorder that is only just being started again.

    Args:
        recorder: The actor.
        say: Told when it did not close, and what completes the tables then.
        limit_s: How long it may take.
    """
    deadline = monotonic() + limit_s
    reason = ""
    while (left_s := deadline - monotonic()) > 0:
        try:
            ray.get(recorder.close.remote(), timeout=left_s)
        except RayActorError as error:
            reason = last_line(error)
            sleep(POLL_S)
        except RayError as error:
            reason = last_line(error)
            break
        else:
            return
    say(
        f"the recorder did not close ({reason}): tables or W&B may be incomplete; the same command "
        "completes them"
    )
