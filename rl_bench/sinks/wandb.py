"""Weights & Biases: one W&B run a RunSpec, grouped by sweep, and one for the sweep itself.

A mirror of the ledgers, in a thread of its own: the recorder leaves the latest snapshot of each run
in a mailbox and goes on. Ids are deterministic and every mirror replays the whole history, so
recording again is idempotent: online W&B drops steps that it has, and offline the older folder of
the same run is replaced. Offline mode needs no network and no login. When W&B keeps failing, the
mirror stops with a warning; the same sweep command, run again, makes up for it.

W&B runs of this sweep: ``<sweep>-<run_id>``, and ``<sweep>-comparison`` with one table row a run.
"""

import json
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rl_bench.config import WandbConfig
from rl_bench.errors import SinkError
from rl_bench.events import RunState
from rl_bench.records import RUNS, RunRow, RunSnapshot, SubmissionRow
from rl_bench.run_view import RunView

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

Value: TypeAlias = str | int | float | bool | None

INIT_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 60.0
MAX_FAILURES = 3
"""Failures in a row after which the mirror stops trying."""

_NOT_COMPARED = ("tasks", "baseline_scores", "spec")


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
        self._mailbox: OrderedDict[str, RunSnapshot] = OrderedDict()
        self._wake = threading.Condition()
        self._closing: Sequence[RunRow] | None = None
        self._failure: Exception | None = None
        self._num_failures = 0
        self._mirrors: dict[str, _Mirror] = {}
        self._done: dict[str, str] = {}
        self._comparison: wandb.Run | None = None
        self._thread = threading.Thread(target=self._work, name="wandb-sink", daemon=True)

    def __repr__(self) -> str:
        return f"WandbSink({self._sweep!r}, mode={self._config.mode!r})"

    def open(self) -> None:
        """Starts W&B and the sweep's own W&B run, which proves that W&B can be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # W&B reads these at import; it would otherwise stage files in the user's home and
            # report its own errors over the network.
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
            os.environ.setdefault("WANDB_DATA_DIR", str(self.folder / "state"))
            os.environ.setdefault("WANDB_CACHE_DIR", str(self.folder / "state"))
            self._check_login()
            self._comparison = self._init("comparison", name=self._sweep, config={}, kind="sweep")
            self._done = _read_done(self._done_path)
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
        with self._wake:
            failure, self._failure = self._failure, None
            if self._num_failures < MAX_FAILURES:
                self._mailbox[snapshot.run_id] = replace(
                    snapshot, item_batches=(), event_batches=()
                )
                self._wake.notify()
        if failure is not None:
            raise SinkError(f"W&B failed: {failure}") from failure

    def close(self, rows: Sequence[RunRow]) -> None:
        """Lets the thread finish, for a bounded time, and log the comparison of all runs."""
        with self._wake:
            self._closing = list(rows)
            self._wake.notify()
        self._thread.join(self._close_timeout_s)
        if self._thread.is_alive():
            raise SinkError(f"W&B did not finish within {self._close_timeout_s:.0f} s; left behind")
        if self._failure is not None:
            raise SinkError(f"W&B failed: {self._failure}") from self._failure

    @property
    def _done_path(self) -> Path:
        return self.folder / "mirrored.json"

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
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._mailbox or self._closing is not None)
                snapshot = self._mailbox.popitem(last=False)[1] if self._mailbox else None
            try:
                if snapshot is None:
                    self._finish_all(self._closing or [])
                    return
                self._mirror(snapshot)
            except Exception as error:  # noqa: BLE001  a mirror's failure must stay in this thread
                self._note_failure(error)
                if snapshot is None:
                    return
            else:
                self._num_failures = 0

    def _note_failure(self, error: Exception) -> None:
        with self._wake:
            self._failure = error
            self._num_failures += 1
            if self._num_failures >= MAX_FAILURES:
                self._mailbox.clear()
                log.warning("W&B failed %d times in a row: no more mirroring", MAX_FAILURES)

    def _mirror(self, snapshot: RunSnapshot) -> None:
        if snapshot.view.is_final and self._done.get(snapshot.run_id) == snapshot.mark:
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
        mirror = self._mirrors.pop(snapshot.run_id)
        mirror.run.finish(exit_code=int(snapshot.view.is_infrastructure))
        self._done[snapshot.run_id] = snapshot.mark
        _write_done(self._done_path, self._done)

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
    """One point a graded submission and task, in the order of the verdicts."""
    graded = [row for row in snapshot.submissions if row.graded_at and row.score is not None]
    graded.sort(key=lambda row: str(row.graded_at))
    is_multi = len(snapshot.view.tasks) > 1
    return [_point(row, prefix=f"{row.task}/" if is_multi else "") for row in graded]


def _point(row: SubmissionRow, *, prefix: str) -> dict[str, Value]:
    point: dict[str, Value] = {
        "budget_used_s": row.budget_used_s,
        "submission_id": row.submission_id,
        "attempt": row.attempt,
        f"{prefix}score": row.score,
        f"{prefix}best": row.best_so_far,
    }
    if row.improvement is not None:
        point[f"{prefix}improvement"] = row.improvement
    if row.within_noise is not None:
        point[f"{prefix}within_noise"] = row.within_noise
    return point | {f"{prefix}metrics/{name}": value for name, value in row.metrics}


def _summary(view: RunView) -> dict[str, Value]:
    """Summary fields; a missing number is left out, for W&B would chart a None as text."""
    fields: dict[str, Value] = {
        "state": view.state.value,
        "end": None if view.end is None else view.end.value,
        "is_infrastructure": view.is_infrastructure,
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
    return {name: value for name, value in fields.items() if value is not None}


def _plain(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _remove_superseded(folder: Path, wandb_id: str) -> None:
    """Removes offline folders of an earlier mirror of the same run: the new one holds it all."""
    for old in folder.glob(f"offline-run-*-{wandb_id}"):
        if (old / f"run-{wandb_id}.wandb").exists():
            shutil.rmtree(old, ignore_errors=True)


def _read_done(path: Path) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}  # Nothing was mirrored to the end yet: mirror again.


def _write_done(path: Path, done: Mapping[str, str]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(done))
    temporary.replace(path)
