"""Weights & Biases: one W&B run a RunSpec, grouped by sweep, and one for the sweep itself.

A mirror of the ledgers, in a thread of its own: the recorder leaves the latest snapshot of each run
in a mailbox and goes on. Ids are deterministic and every mirror replays the whole history, so
recording again is idempotent: online W&B drops steps that it has, and offline the older folder of
the same run is replaced. Offline mode needs no network and no login. A snapshot that W&B failed to
take is offered again; when W&B keeps failing, the mirror stops with a warning, and the same sweep
command, run again, makes up for it.

W&B runs of this sweep: ``<sweep>-<run_id>``, and ``<sweep>-comparison`` with one table row a run.
"""

import logging
import os
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rl_bench.config import WandbConfig
from rl_bench.errors import SinkError
from rl_bench.events import RunState
from rl_bench.records import DriverPoint, RunSnapshot, SubmissionRow
from rl_bench.run_row import RUNS, RunRow
from rl_bench.run_view import RunView
from rl_bench.sinks.mailbox import Mailbox
from rl_bench.sinks.wandb_mirrored import COMPARISON, Mirrored
from rl_bench.sinks.wandb_tables import TABLES, bounded, shown

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

Value: TypeAlias = str | int | float | bool | None

INIT_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 60.0
MAX_FAILURES = 3
"""Failures in a row after which the mirror stops trying."""

_NOT_COMPARED = ("tasks", "baseline_scores", "mode_methods", "spec")


@dataclass(slots=True)
class _Mirror:
    """An open W&B run and how many points it has."""

    run: "wandb.Run"
    num_points: int


class WandbSink:
    """Mirrors runs to W&B from a thread of its own.

    Args:
        folder: Where W&B writes: a sweep's ``wandb/`` (W&B wants that very name).
        config: Mode, project and entity.
        sweep: The sweep's name: the group of its runs.
        close_timeout_s: How long `close` waits for W&B before it leaves it behind.
    """

    name = "wandb"

    def __init__(
        self,
        folder: Path,
        *,
        config: WandbConfig,
        sweep: str,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self.folder = folder
        self._config = config
        self._sweep = sweep
        self._close_timeout_s = close_timeout_s
        self._mailbox = Mailbox()
        self._rows: Sequence[RunRow] = ()
        self._num_failures = 0
        self._mirrors: dict[str, _Mirror] = {}
        self._done: Mirrored | None = None
        self._comparison: wandb.Run | None = None
        self._thread = threading.Thread(target=self._work, name="wandb-sink", daemon=True)

    def __repr__(self) -> str:
        return f"WandbSink({self._sweep!r}, mode={self._config.mode!r})"

    def open(self) -> None:
        """Starts W&B and the sweep's own W&B run, which proves that W&B can be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for variable, value in surroundings(self.folder / "state").items():
                os.environ.setdefault(variable, value)
            # That of the process that started the sweep: there, ids may be taken, and it may end.
            os.environ.pop("WANDB_SERVICE", None)
            self._check_login()
            done = Mirrored(self.folder, sweep=self._sweep)
            done.forget(COMPARISON)
            self._comparison = self._init(COMPARISON, name=self._sweep, config={}, kind="sweep")
            self._done = done
        except SinkError:
            raise
        except Exception as error:  # W&B raises its own errors, OSError, ImportError and more
            raise SinkError(
                f"W&B ({self._config.mode}) cannot open: {error}",
                cure="Use sink=no_wandb, or sink.wandb.mode=offline",
            ) from error
        self._thread.start()

    def write_run(self, snapshot: RunSnapshot) -> None:
        """Leaves the snapshot in the mailbox, in place of an older one of the same run."""
        if snapshot.spec is None:
            return
        # What waits here is small, whatever the run holds.
        is_done = self.has(snapshot.run_id, snapshot.mark)
        batches = bounded(snapshot) if snapshot.view.is_final and not is_done else {}
        self._mailbox.put(replace(snapshot, batches=batches))
        self._raise_failure()

    def has(self, run_id: str, mark: str) -> bool:
        """Whether the run was mirrored to its end, which is at that mark."""
        return self._done is not None and self._done.has(run_id, mark)

    def close(self, rows: Sequence[RunRow]) -> None:
        """Lets the thread finish, for a bounded time, and log the comparison of all runs."""
        self._rows = list(rows)
        self._mailbox.close()
        self._thread.join(self._close_timeout_s)
        if self._thread.is_alive():
            raise SinkError(f"W&B did not finish within {self._close_timeout_s:.0f} s; left behind")
        self._raise_failure()

    def is_behind(self, views: Iterable[RunView]) -> bool:
        """Whether a run was not yet mirrored to the end that its ledger has, or that is gone."""
        done = Mirrored(self.folder, sweep=self._sweep)
        return not done.has(COMPARISON) or any(
            not done.has(view.run_id, view.mark) for view in views
        )

    def _raise_failure(self) -> None:
        failure = self._mailbox.take_failure()
        if failure is not None:
            raise SinkError(f"W&B failed: {failure}") from failure

    def _check_login(self) -> None:
        # W&B would ask for a key on the terminal and wait.
        if self._config.mode != "online":
            return
        import wandb

        wandb.setup(wandb.Settings(silent=True))
        if not wandb.login(prompt=False):
            raise SinkError(
                "W&B is online but there is no API key",
                cure="Run `wandb login`, or use sink.wandb.mode=offline",
            )

    def _work(self) -> None:
        while (snapshot := self._mailbox.take()) is not None:
            try:
                self._mirror(snapshot)
            except Exception as error:  # noqa: BLE001  a mirror's failure must stay in this thread
                self._note_failure(error, snapshot)
            else:
                self._num_failures = 0
                self._mailbox.note_taken(snapshot)
        try:
            self._finish_all(self._rows)
        except Exception as error:  # noqa: BLE001  as above
            self._mailbox.note_failed(error)

    def _note_failure(self, error: Exception, snapshot: RunSnapshot) -> None:
        self._mailbox.note_failed(error, snapshot)
        self._num_failures += 1
        if self._num_failures == MAX_FAILURES:
            self._mailbox.shut()
            log.warning("W&B failed %d times in a row: no more mirroring", MAX_FAILURES)

    def _mirror(self, snapshot: RunSnapshot) -> None:
        if snapshot.view.is_final and self.has(snapshot.run_id, snapshot.mark):
            return
        mirror = self._mirrors.get(snapshot.run_id)
        if mirror is None:
            mirror = self._mirrors[snapshot.run_id] = self._start(snapshot)
        points = _points(snapshot)
        for step in range(mirror.num_points, len(points)):
            mirror.run.log(points[step], step=step)
        mirror.num_points = len(points)
        mirror.run.summary.update(_summary(snapshot.view))
        if snapshot.view.is_final:
            self._end(snapshot)

    def _end(self, snapshot: RunSnapshot) -> None:
        import wandb

        mirror = self._mirrors[snapshot.run_id]
        for name in TABLES:
            rows = shown(snapshot.table(name))
            if rows.num_rows:
                data = [[_plain(value) for value in row.values()] for row in rows.to_pylist()]
                mirror.run.summary[name] = wandb.Table(columns=rows.column_names, data=data)
        failed = snapshot.view.is_infrastructure or snapshot.view.is_invalid
        del self._mirrors[snapshot.run_id]  # should finishing fail, the next try starts afresh
        mirror.run.finish(exit_code=int(failed))
        self._note_done(snapshot.run_id, snapshot.mark)

    def _note_done(self, name: str, mark: str = "") -> None:
        assert self._done is not None
        self._done.note(name, mark, is_online=self._config.mode == "online")

    def _start(self, snapshot: RunSnapshot) -> _Mirror:
        spec, view = snapshot.spec, snapshot.view
        assert spec is not None
        config = flatten(spec.model_dump(mode="json"))
        name = "/".join(
            (view.agent, view.driver, view.mode, "+".join(view.tasks), f"seed{view.seed}")
        )
        run = self._init(snapshot.run_id, name=name, config=config, kind="run")
        run.define_metric("budget_used_s")
        run.define_metric("*", step_metric="budget_used_s")
        # A resumed online run has its first points already; the ledger only ever grows.
        return _Mirror(run, num_points=run.step)

    def _init(
        self, suffix: str, *, name: str, config: Mapping[str, Value], kind: str
    ) -> "wandb.Run":
        import wandb

        wandb_id = f"{self._sweep}-{suffix}"
        if self._config.mode == "offline":
            _remove_superseded(self.folder, wandb_id)
        settings = wandb.Settings(
            silent=True,
            console="off",
            save_code=False,
            disable_git=True,
            init_timeout=INIT_TIMEOUT_S,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
        )
        return wandb.init(
            project=self._config.project,
            entity=self._config.entity or None,
            id=wandb_id,
            name=name,
            group=self._sweep,
            job_type=kind,
            config=dict(config),
            dir=self.folder.parent,
            mode="online" if self._config.mode == "online" else "offline",
            resume="allow",
            reinit="create_new",
            settings=settings,
        )

    def _finish_all(self, rows: Sequence[RunRow]) -> None:
        import wandb

        for mirror in self._mirrors.values():
            mirror.run.finish()
        self._mirrors.clear()
        if self._comparison is not None:
            columns = [name for name in RUNS.names if name not in _NOT_COMPARED]
            table = wandb.Table(columns=columns)
            for row in rows:
                table.add_data(*(_plain(getattr(row, name)) for name in columns))
            self._comparison.log({"comparison": table})
            self._comparison.summary.update({"num_runs": len({row.run_id for row in rows})})
            self._comparison.finish()
            self._comparison = None
            self._note_done(COMPARISON)


def surroundings(state: Path) -> dict[str, str]:
    """The environment variables that W&B is to be imported with, where a user sets none.

    Without them it stages files in the user's home, reports its own errors over the network, and
    advises other products to a process that has imported a model's client.

    Args:
        state: The folder for what it stages.
    """
    return {
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_DATA_DIR": str(state),
        "WANDB_CACHE_DIR": str(state),
        "WANDB_DISABLE_WEAVE": "true",
    }


def flatten(tree: Mapping[str, object], *, prefix: str = "") -> dict[str, Value]:
    """Nested config as dotted keys: ``{"task.0.name": "gsm8k"}``; lists by index."""
    flat: dict[str, Value] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, list):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= flatten(value, prefix=f"{name}.")
        elif value is None or isinstance(value, str | int | float | bool):
            flat[name] = value
        else:
            flat[name] = str(value)
    return flat


def _points(snapshot: RunSnapshot) -> list[dict[str, Value]]:
    """One point a verdict with a score, and one a look at the driver's use, in order."""
    is_multi = len(snapshot.view.tasks) > 1
    return [
        _driver_point(point)
        if isinstance(point, DriverPoint)
        else _point(point, prefix=f"{point.task}/" if is_multi else "")
        for point in snapshot.curve
    ]


def _driver_point(point: DriverPoint) -> dict[str, Value]:
    use = point.use
    fields: dict[str, Value] = {
        "budget_used_s": point.budget_used_s,
        "attempt": point.attempt,
        "driver/calls": use.num_calls,
        "driver/failed_calls": use.num_failed,
        "driver/input_tokens": use.input_tokens,
        "driver/output_tokens": use.output_tokens,
        "driver/cached_tokens": use.cached_tokens,
        "driver/cost_usd": use.cost_usd,
    }
    return _known(fields)


def _point(row: SubmissionRow, *, prefix: str) -> dict[str, Value]:
    point: dict[str, Value] = {
        "budget_used_s": row.budget_used_s,
        "submission_id": row.submission_id,
        "attempt": row.attempt,
        f"{prefix}score": row.score,
        f"{prefix}best": row.best_so_far,
        f"{prefix}improvement": row.improvement,
        f"{prefix}within_noise": row.within_noise,
        f"{prefix}is_invalid": row.is_invalid or None,
    }
    return _known(point | {f"{prefix}metrics/{name}": value for name, value in row.metrics})


def _summary(view: RunView) -> dict[str, Value]:
    """Summary fields; a missing number is left out, for W&B would chart a None as text."""
    fields: dict[str, Value] = {
        "state": view.state.value,
        "end": None if view.end is None else view.end.value,
        "is_infrastructure": view.is_infrastructure,
        "is_invalid": view.is_invalid,
        "invalid_reason": view.invalid_reason or None,
        "counts": view.counts,
        "num_attempts": view.num_attempts,
        "baseline_score": view.baseline,
        "best_score": view.best,
        "best_improvement": view.improvement,
        "within_noise": view.within_noise,
        "num_submissions": view.num_submissions,
        "num_graded": view.num_graded,
        "num_failed": view.num_failed,
        "num_rejected": view.num_rejected,
        "duration_s": view.duration_s,
        **_agent_summary(view),
    }
    if view.state is RunState.FINISHED:
        fields["final_budget_used_s"] = view.budget_used_s
    is_multi = len(view.tasks) > 1
    for name, task in view.tasks.items():
        fields[f"{name}/noise_floor" if is_multi else "noise_floor"] = task.noise_floor
        if is_multi:
            fields[f"{name}/baseline_score"] = task.baseline
            fields[f"{name}/best_score"] = task.best
            fields[f"{name}/best_improvement"] = task.improvement
            fields[f"{name}/within_noise"] = task.within_noise
    return _known(fields)


def _agent_summary(view: RunView) -> dict[str, Value]:
    """What agent and driver used, and what the audit says, by the names of table ``runs``."""
    driver, agent, audit = view.driver_use, view.agent_use, view.audit
    return {
        "sandbox": view.sandbox or None,
        "num_sessions": agent.num_sessions,
        "driver_calls": driver.num_calls,
        "driver_failed_calls": driver.num_failed,
        "driver_failure": driver.last_failure or None,
        "input_tokens": driver.input_tokens,
        "output_tokens": driver.output_tokens,
        "cached_tokens": driver.cached_tokens,
        "cost_usd": driver.cost_usd,
        "total_cost_usd": view.total_cost_usd,
        "num_turns": agent.told.num_turns,
        "num_tool_calls": agent.num_tool_calls if agent.num_events else None,
        "num_revisions": view.num_revisions,
        "mode_verdict": None if audit.verdict is None else audit.verdict.value,
        "mode_methods": ", ".join(audit.methods) or None,
        "audit_rules_version": audit.rules_version or None,
        "num_findings": audit.num_findings,
        "num_breaches": audit.num_breaches,
    }


def _known(fields: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in fields.items() if value is not None}


def _plain(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _remove_superseded(folder: Path, wandb_id: str) -> None:
    """Removes offline folders of an earlier mirror of the same run: the new one holds it all."""
    for old in folder.glob(f"offline-run-*-{wandb_id}"):
        if (old / f"run-{wandb_id}.wandb").exists():
            shutil.rmtree(old, ignore_errors=True)
