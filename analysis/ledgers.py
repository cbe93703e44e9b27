"""Sweeps as their ledgers have them now: read on from where the last look ended, never written.

For views of a sweep that is running; its tables, which lag behind, are left alone.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from analysis.errors import ResultsError
from rl_bench.clone import read_regular
from rl_bench.config import MAX_SECONDS
from rl_bench.errors import LedgerError
from rl_bench.ledger import read_ledger_part
from rl_bench.paths import SweepPaths
from rl_bench.run_table import PlannedRun
from rl_bench.run_view import RunView
from rl_bench.sweep_lock import is_driven

_LABEL_PARTS = 7
MAX_NAME = 255
"""Characters of a run's id, which is a folder's name."""


@dataclass(slots=True)
class _Tail:
    view: RunView
    offset: int = 0
    problem: str = ""


@dataclass(slots=True)
class SweepLedgers:
    """The runs of one sweep.

    Attributes:
        paths: Of the sweep.
    """

    paths: SweepPaths
    _tails: dict[str, _Tail] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, RunView]:
        """Of the runs that have begun; the same objects after each `update`."""
        return {name: tail.view for name, tail in self._tails.items() if tail.view.num_attempts}

    @property
    def problems(self) -> dict[str, str]:
        """By run: why its ledger cannot be read on."""
        return {name: tail.problem for name, tail in self._tails.items() if tail.problem}

    def update(self) -> None:
        """Folds what was written since the last look."""
        for ledger in sorted(self.paths.runs.glob("*/ledger.jsonl")):
            name = ledger.parent.name
            tail = self._tails.setdefault(name, _Tail(RunView(run_id=name)))
            try:
                size = ledger.stat().st_size
                if size < tail.offset:  # The run's folder was removed, to run it again.
                    tail = self._tails[name] = _Tail(RunView(run_id=name))
                if size > tail.offset:
                    _read_on(ledger, tail)
            except (LedgerError, OSError) as error:
                tail.problem = str(error)

    @property
    def is_driven(self) -> bool | None:
        """As `rl_bench.sweep_lock.is_driven`."""
        return is_driven(self.paths)

    @property
    def changed_utc(self) -> datetime:
        """When anything was written last, by the files' own times; nothing is read."""
        last_s = 0.0
        for file in (self.paths.config, *self.paths.runs.glob("*/ledger.jsonl")):
            with suppress(OSError):  # a run's folder may be removed just now, to run it again
                last_s = max(last_s, file.stat().st_mtime)
        return datetime.fromtimestamp(last_s, UTC)

    def plan(self) -> list[PlannedRun]:
        """Every planned run in the plan's order, those that have not begun as their ids say.

        Raises:
            ResultsError: The sweep's record is damaged.
        """
        views = self.views
        record = _record(self.paths)
        names, budget_s = record.run_ids, record.conditions.budget.wall_clock_s
        order = [*names, *sorted(set(views) - set(names))]
        return [
            _planned(views[name]) if name in views else _waiting(name, budget_s) for name in order
        ]


def _read_on(ledger: Path, tail: _Tail) -> None:
    part = read_ledger_part(ledger, offset=tail.offset, next_seq=tail.view.next_seq)
    for entry in part.entries:
        tail.view.fold(entry)
    tail.offset = part.offset
    tail.problem = ""


def sweeps_in(folders: Sequence[Path]) -> list[Path]:
    """The sweeps in ``folders``, each of which is one or holds some.

    Raises:
        ResultsError: One of them holds none, or is not there.
    """
    found: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            raise ResultsError(f"{folder} is no folder: name one below results/")
        sweeps = [folder] if _is_sweep(folder) else sorted(filter(_is_sweep, folder.glob("*")))
        if not sweeps:
            raise ResultsError(
                f"{folder} holds no sweep: name a folder below results/, which has sweep.json in it"
            )
        found += sweeps
    return list(dict.fromkeys(path.resolve() for path in found))


class _Budget(BaseModel):
    wall_clock_s: float = Field(default=0.0, ge=0, le=MAX_SECONDS)


class _Conditions(BaseModel):
    budget: _Budget = _Budget()


class _Record(BaseModel):
    """What is shown of a ``sweep.json``, of any version; see `rl_bench.sweep_claim.SweepRecord`."""

    run_ids: tuple[Annotated[str, Field(max_length=MAX_NAME)], ...] = ()
    conditions: _Conditions = _Conditions()


def _record(paths: SweepPaths) -> _Record:
    """The sweep's record; an empty one where it is not there or cannot be opened.

    Raises:
        ResultsError: It is damaged.
    """
    try:
        return _Record.model_validate_json(read_regular(paths.config))
    except OSError:
        return _Record()
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "JSON"
        raise ResultsError(
            f"{paths.config} cannot be read as a sweep's record: {where}: {problem['msg']}",
            cure="Restore it; without it, the runs that have begun are shown",
        ) from error


def planned_ids(paths: SweepPaths) -> tuple[str, ...]:
    """The plan that the sweep's name is fixed to; empty where it was not recorded.

    Raises:
        ResultsError: The record is damaged.
    """
    return _record(paths).run_ids


def _is_sweep(folder: Path) -> bool:
    # A report, too, has a folder runs/.
    return (folder / "sweep.json").is_file() or any(folder.glob("runs/*/ledger.jsonl"))


def _planned(view: RunView) -> PlannedRun:
    return PlannedRun(
        run_id=view.run_id,
        agent=view.agent,
        driver=view.driver,
        mode=view.mode,
        tasks=tuple(view.tasks),
        model=view.model,
        seed=view.seed,
        budget_s=view.budget_s,
    )


def _waiting(name: str, budget_s: float) -> PlannedRun:
    """A run that has no ledger yet: its conditions as `rl_bench.plan.run_id` put them together."""
    parts = name.split("-")
    seed = parts[-2][1:] if len(parts) == _LABEL_PARTS else ""
    if not seed.isdecimal():
        parts, seed = [name, "", "", "", "", "s0", ""], "0"
    agent, driver, mode, task, model = parts[:5]
    return PlannedRun(
        run_id=name,
        agent=agent,
        driver=driver,
        mode=mode,
        tasks=(task,),
        model=model,
        seed=int(seed),
        budget_s=budget_s,
    )
