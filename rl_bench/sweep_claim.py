"""A sweep's name fixes its config, and one driver at a time runs it.

At the first start ``sweep.json`` records the conditions of the experiment and its plan. A later
start under the same name must have the same conditions, so that resumed runs and earlier ones can
stand in one table. What does not change a result may differ: see `FREE`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from pydantic import JsonValue, ValidationError

from rl_bench.clone import read_regular
from rl_bench.config import Experiment, Frozen, RunSpec
from rl_bench.counts import plural
from rl_bench.errors import SweepConflictError
from rl_bench.paths import SweepPaths
from rl_bench.plan import run_id
from rl_bench.sweep_lock import hold_sweep
from rl_bench.whole_file import write_whole

FREE: Mapping[str, frozenset[str]] = {
    "sink": frozenset({"*"}),
    "audit": frozenset({"*"}),
    "paths": frozenset({"*"}),
    "cluster": frozenset(
        {
            "name",
            "address",
            "num_cpus",
            "num_gpus",
            "max_parallel_runs",
            "num_run_retries",
            "place_by_kind",
        }
    ),
    "grader": frozenset(
        {
            "name",
            "num_graders",
            "max_graders",
            "grow_after_s",
            "shrink_after_s",
            "affinity_wait_s",
            "split_items",
            "num_rollout_workers",
            "num_retries",
        }
    ),
}
"""Keys that may differ between starts under one name: how much runs at once, where results go and
how often infrastructure is retried. A run's own resources and an engine's settings are fixed."""
MAX_SHOWN = 12
DIGEST_LENGTH = 6


class SweepRecord(Frozen):
    """What ``sweep.json`` holds.

    Attributes:
        conditions: The experiment less the keys in `FREE`, as JSON.
        run_ids: The plan, in order.
    """

    version: int = 1
    created_utc: str
    conditions: dict[str, JsonValue]
    run_ids: tuple[str, ...]


@contextmanager
def claim_sweep(
    paths: SweepPaths, *, experiment: Experiment, plan: Sequence[RunSpec]
) -> Iterator[None]:
    """Holds the sweep's name while its runs are driven.

    Raises:
        SweepConflictError: Another process drives this sweep, or its config differs.
        PreflightError: The sweep's folder cannot be used.
    """
    with hold_sweep(paths):
        check_sweep_config(paths, experiment, plan)
        yield


def check_sweep_config(
    paths: SweepPaths, experiment: Experiment, plan: Sequence[RunSpec], *, write: bool = True
) -> None:
    """Compares the experiment with what the sweep's name is fixed to, and fixes it the first time.

    With ``write=False`` it only compares.

    Raises:
        SweepConflictError: The conditions or the runs differ; the message lists the differences.
    """
    now = SweepRecord(
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        conditions=conditions(experiment),
        run_ids=tuple(run_id(spec) for spec in plan),
    )
    if not paths.config.exists():
        if write:
            write_whole(paths.config, now.model_dump_json(indent=1), is_durable=True)
        return
    try:
        before = SweepRecord.model_validate_json(read_regular(paths.config))
    except (ValidationError, OSError) as error:
        raise SweepConflictError(
            f"{paths.config} cannot be read as a sweep's record",
            cure="Restore it, or choose another sweep.name=",
        ) from error
    lines = _differences(before, now)
    if lines:
        raise SweepConflictError(
            f"sweep '{experiment.sweep.name}' exists with another config: " + "; ".join(lines),
            cure="Choose another name with sweep.name=, or restore the config",
        )


def conditions(experiment: Experiment) -> dict[str, JsonValue]:
    """The part of an experiment that fixes its results, as JSON values."""
    dumped: dict[str, JsonValue] = json.loads(experiment.model_dump_json())
    fixed: dict[str, JsonValue] = {}
    for group, value in dumped.items():
        free = FREE.get(group, frozenset())
        if free != {"*"}:
            fixed[group] = (
                {k: v for k, v in value.items() if k not in free}
                if isinstance(value, dict)
                else value
            )
    return fixed


def conditions_digest(experiment: Experiment) -> str:
    """A few hex digits that stand for all that a name fixes, the name itself left out."""
    unnamed = experiment.sweep.model_copy(update={"name": "unnamed"})
    fixed = conditions(experiment.model_copy(update={"sweep": unnamed}))
    canonical = json.dumps(fixed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST_LENGTH]


def _differences(before: SweepRecord, now: SweepRecord) -> list[str]:
    old, new = _flat(before.conditions), _flat(now.conditions)
    lines = [
        f"{key}: {_shown(old.get(key))} before, {_shown(new.get(key))} now"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if not lines and before.run_ids != now.run_ids:
        lines = [
            f"plan: {plural(len(before.run_ids), 'run')} before, {len(now.run_ids)} now, other ids"
        ]
    extra = len(lines) - MAX_SHOWN
    return [*lines[:MAX_SHOWN], *([f"and {extra} more"] if extra > 0 else [])]


def _flat(value: JsonValue, prefix: str = "") -> dict[str, JsonValue]:
    """Leaves by dotted path; lists of plain values are leaves."""
    if isinstance(value, dict) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {prefix: value}
    leaves: dict[str, JsonValue] = {}
    for key, item in items:
        leaves |= _flat(item, f"{prefix}.{key}" if prefix else key)
    return leaves


def _shown(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
